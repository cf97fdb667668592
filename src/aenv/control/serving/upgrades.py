"""Requests that ask to speak another protocol on their connection, as WebSocket does.

Such a request passes everything that others pass, and is answered like them. Its handler finds an `Upgrade` in the
scope, under `UPGRADE`; when it takes the connection, both sides send bytes of their own from then on.
"""

from __future__ import annotations

import asyncio
import http
from collections.abc import MutableMapping
from typing import Any, cast

from starlette.types import ASGIApp, Scope

from ...base.http1 import RawHeaders

UPGRADE = "aenv.upgrade"
BEARER = "aenv.bearer."
"""Before a token, in the list of protocols that a page offers: it can send no other header with a WebSocket."""
_PROTOCOLS = b"sec-websocket-protocol"
_UNREAD_TIMEOUT = 30.0
_AHEAD_BYTES = 64 << 10  # that were received and not read, before the socket is paused


class Upgrade(asyncio.Protocol):
    """The connection of one such request, from its head on."""

    def __init__(self, scope: Scope, transport: asyncio.Transport) -> None:
        self.scope = with_bearer(scope)
        self._transport = transport
        self._received = bytearray()
        self._is_paused = False
        self._has_ended = False
        self.is_taken = False
        """Whether the other protocol is spoken."""
        self._is_asked = False
        self._head = b""
        self._came = asyncio.Event()
        self._may_write = asyncio.Event()
        self._may_write.set()
        self.scope[UPGRADE] = self
        transport.set_protocol(self)

    async def run(self, app: ASGIApp) -> None:
        """Let the application answer; then the connection ends."""
        try:
            await app(self.scope, self._receive, self._send)
        finally:
            self._transport.close()
            # What the client has not read by then, it will not read.
            asyncio.get_running_loop().call_later(_UNREAD_TIMEOUT, self._transport.abort)

    # What a handler may do with it.

    def take(self, headers: RawHeaders) -> None:
        """Answer that from now on the other protocol is spoken; `headers` say which."""
        self.is_taken = True
        self._transport.write(b"HTTP/1.1 101 Switching Protocols\r\n" + _lines(headers) + b"\r\n")

    async def read(self) -> bytes:
        """What has come from the client; empty when it sends no more."""
        while not self._received and not self._has_ended:
            self._came.clear()
            await self._came.wait()
        data = bytes(self._received)
        self._received.clear()
        if self._is_paused:
            self._is_paused = False
            self._transport.resume_reading()
        return data

    async def write(self, data: bytes) -> None:
        """Return when the client's socket takes more. ConnectionError when it has gone."""
        if self._has_ended and self._transport.is_closing():
            raise ConnectionError("the client has gone")
        self._transport.write(data)
        await self._may_write.wait()

    def shutdown(self) -> None:
        """The server stops."""
        self._transport.close()

    # The application's side until then

    async def _receive(self) -> MutableMapping[str, Any]:
        if not self._is_asked:
            self._is_asked = True
            return {"type": "http.request", "body": b"", "more_body": False}
        while not self._has_ended:
            self._came.clear()
            await self._came.wait()
        return {"type": "http.disconnect"}

    async def _send(self, message: MutableMapping[str, Any]) -> None:
        if self.is_taken:
            return
        if message["type"] == "http.response.start":
            status = message["status"]
            line = f"HTTP/1.1 {status} {http.HTTPStatus(status).phrase}\r\n".encode()
            self._head = line + _lines(message.get("headers", [])) + b"connection: close\r\n\r\n"
            return
        head, self._head = self._head, b""
        self._transport.write(head + message.get("body", b""))
        if message.get("more_body", False):
            await self._may_write.wait()  # a client that does not read waits, and not this process's memory
        else:
            self._transport.close()

    # What asyncio calls.

    def data_received(self, data: bytes) -> None:
        self._received += data
        if len(self._received) > _AHEAD_BYTES and not self._is_paused:
            self._is_paused = True
            self._transport.pause_reading()
        self._came.set()

    def eof_received(self) -> None:
        self._has_ended = True  # and the transport closes: a WebSocket that sends no more has gone
        self._came.set()

    def connection_lost(self, exc: Exception | None) -> None:
        self._has_ended = True
        self._came.set()
        self._may_write.set()

    def pause_writing(self) -> None:
        self._may_write.clear()

    def resume_writing(self) -> None:
        self._may_write.set()


def upgrade_of(scope: Scope) -> Upgrade | None:
    """The connection of a request that asks for another protocol."""
    return cast(Upgrade | None, scope.get(UPGRADE))


def with_bearer(scope: Scope) -> Scope:
    """The request with a token that came among its protocols where programs send it, and nowhere else."""
    headers, token = [], b""
    for name, value in scope["headers"]:
        if name == _PROTOCOLS:
            offered = [one.strip() for one in value.split(b",")]
            token = next((one[len(BEARER) :] for one in offered if one.startswith(BEARER.encode())), token)
            value = b", ".join(one for one in offered if not one.startswith(BEARER.encode()))
        if value or name != _PROTOCOLS:
            headers.append((name, value))
    if token and not any(name == b"authorization" for name, _ in headers):
        headers.append((b"authorization", b"Bearer " + token))
    return {**scope, "headers": headers}


def _lines(headers: RawHeaders) -> bytes:
    return b"".join(b"%b: %b\r\n" % pair for pair in headers)
