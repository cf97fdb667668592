"""What browsers are told: which pages may read our replies, and that an instance's page is not one of ours.

Not here: whose requests are refused (`origins.py`).
"""

from __future__ import annotations

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from ...base.origins import Allowed
from ...base.wire import TOKEN_HEADER

_Headers = list[tuple[bytes, bytes]]
_METHODS = b"GET, HEAD, POST, PUT, DELETE"
_READABLE = f"Mcp-Session-Id, {TOKEN_HEADER}, X-Total-Count, Retry-After".encode()
_FOR = b"600"  # seconds that a browser remembers what it may send


def allowing(app: ASGIApp, allowed: Allowed) -> ASGIApp:
    """`app`, whose replies the pages of these origins may read, and which they may ask with any header."""
    if not allowed:
        return app

    async def shared(scope: Scope, receive: Receive, send: Send) -> None:
        sent = dict(scope["headers"]) if scope["type"] == "http" else {}
        origin = sent.get(b"origin", b"")
        if origin.decode("latin-1") not in allowed:
            await app(scope, receive, send)
        elif scope["method"] == "OPTIONS" and b"access-control-request-method" in sent:
            await _promise(sent, origin, send)
        else:
            readable = [*_allow(origin), (b"access-control-expose-headers", _READABLE)]
            await app(scope, receive, _adding(send, readable, instead_of=b"access-control-"))

    return shared


def apart(app: ASGIApp) -> ASGIApp:
    """`app`, whose pages have an origin of their own: what they ask of this server is asked by a stranger."""

    async def sandboxed(scope: Scope, receive: Receive, send: Send) -> None:
        await app(scope, receive, _adding(send, [(b"content-security-policy", b"sandbox")]))

    return sandboxed


async def _promise(sent: dict[bytes, bytes], origin: bytes, send: Send) -> None:
    """The answer to a browser that asks what it may send; it asks on behalf of a page that is listed."""
    headers = [
        *_allow(origin),
        (b"access-control-allow-methods", _METHODS),
        (b"access-control-allow-headers", sent.get(b"access-control-request-headers", b"")),
        (b"access-control-max-age", _FOR),
        (b"content-length", b"0"),
    ]
    if sent.get(b"access-control-request-private-network") == b"true":
        headers.append((b"access-control-allow-private-network", b"true"))
    await send({"type": "http.response.start", "status": 204, "headers": headers})
    await send({"type": "http.response.body", "body": b""})


def _allow(origin: bytes) -> _Headers:
    return [(b"access-control-allow-origin", origin), (b"vary", b"Origin")]


def _adding(send: Send, headers: _Headers, *, instead_of: bytes | None = None) -> Send:
    """`send` that adds these headers to a reply, in place of an instance's own that begin so."""

    async def added(message: Message) -> None:
        if message["type"] == "http.response.start":
            kept = [pair for pair in message["headers"] if not (instead_of and pair[0].startswith(instead_of))]
            message = {**message, "headers": [*kept, *headers]}
        await send(message)

    return added
