"""Replies of the control routes, and every error of the gateway: one JSON envelope."""

from __future__ import annotations

from typing import Any

from starlette.responses import Response

from ...base import mcp
from ...base.errors import AEnvError
from .error_bodies import error_body, error_headers


def success(data: Any, **extra: Any) -> Response:
    """`data` as a reply; `extra` stands beside it, as `total` does in lists."""
    return reply(200, {"success": True, "code": 0, "message": "", "data": data, **extra})


def failure(error: AEnvError) -> Response:
    """`error` as a reply."""
    response = reply(error.status, error_body(error))
    response.headers.update(error_headers(error))
    return response


def reply(status: int, body: dict[str, Any]) -> Response:
    return Response(mcp.dumps(body), status, media_type="application/json")
