"""Who may use a server on loopback: the page that was opened by the address with the key, and no other.

Other users of this machine can connect to such a server, and pages of other origins can try. The key opens one
session, whose token every request has from then on.
"""

from __future__ import annotations

import hmac
import secrets

from starlette.requests import Request

from ..base import mcp
from ..base.errors import Forbidden, Unauthenticated
from ..control.serving.clients import too_large

MAX_BYTES = 4096
"""Of the body that has a key."""


class SessionKey:
    """A key that opens one session. `command` is what a user runs for another one."""

    def __init__(self, command: str) -> None:
        self.key = secrets.token_urlsafe(24)
        self._token = secrets.token_urlsafe(24)
        self._command = command

    def exchange(self, body: bytes) -> str:
        """The token of the session. A key opens one: who reads it later in a history has nothing."""
        try:
            said = mcp.loads(body)
        except ValueError:
            said = None
        given = said.get("key") if isinstance(said, dict) else None
        if (
            not self.key
            or not isinstance(given, str)
            or not hmac.compare_digest(given.encode(), self.key.encode())
        ):
            raise Forbidden(f"this key has been used, or was never one; run '{self._command}' again for another")
        self.key = ""
        return self._token

    def check(self, request: Request) -> None:
        """Unauthenticated unless the request has the session's token."""
        expected = f"Bearer {self._token}".encode()
        if not hmac.compare_digest(request.headers.get("authorization", "").encode(), expected):
            raise Unauthenticated(f"this session has ended; run '{self._command}' again")


async def body_of(request: Request, limit: int) -> bytes:
    """The whole body. TooLarge above `limit` bytes."""
    parts, size = [], 0
    async for chunk in request.stream():
        size += len(chunk)
        if size > limit:
            raise too_large(limit)
        parts.append(chunk)
    return b"".join(parts)
