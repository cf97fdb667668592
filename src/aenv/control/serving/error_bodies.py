"""Errors as replies, before any web framework has to do with them: the data workers have none."""

from __future__ import annotations

import math
from typing import Any

from ...base.errors import AEnvError, MethodNotAllowed, TooManyRequests, Unavailable


def error_body(error: AEnvError) -> dict[str, Any]:
    """Its status, its code, by which our client raises it again, and where a queue stands."""
    body: dict[str, Any] = {
        "success": False,
        "code": error.status,
        "message": error.message,
        "data": None,
        "error": error.code,
    }
    if queue := error.details.get("queue"):
        body["queue"] = queue
    return body


def error_headers(error: AEnvError) -> dict[str, str]:
    """What its reply says beside the body."""
    headers = {}
    if isinstance(error, TooManyRequests | Unavailable):
        headers["retry-after"] = str(math.ceil(error.retry_after))
    if isinstance(error, MethodNotAllowed):
        headers["allow"] = ", ".join(error.allowed)
    return headers
