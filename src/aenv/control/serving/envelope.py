"""Replies of the control routes, and every error of the gateway: one JSON envelope."""

from __future__ import annotations

import math
from typing import Any

from starlette.responses import Response

from ...base import mcp
from ...base.errors import AEnvError, MethodNotAllowed, TooManyRequests, Unavailable


def success(data: Any, **extra: Any) -> Response:
    """`data` as a reply; `extra` stands beside it, as `total` does in lists."""
    return reply(200, {"success": True, "code": 0, "message": "", "data": data, **extra})


def failure(error: AEnvError) -> Response:
    """`error` as a reply: its status, its code, by which our client raises it again, and where a queue stands."""
    body: dict[str, Any] = {
        "success": False,
        "code": error.status,
        "message": error.message,
        "data": None,
        "error": error.code,
    }
    if queue := error.details.get("queue"):
        body["queue"] = queue
    response = reply(error.status, body)
    if isinstance(error, TooManyRequests | Unavailable):
        response.headers["retry-after"] = str(math.ceil(error.retry_after))
    if isinstance(error, MethodNotAllowed):
        response.headers["allow"] = ", ".join(error.allowed)
    return response


def reply(status: int, body: dict[str, Any]) -> Response:
    return Response(mcp.dumps(body), status, media_type="application/json")
