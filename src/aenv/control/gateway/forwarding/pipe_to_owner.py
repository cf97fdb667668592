"""A connection that the owner process answers from here on, byte by byte, after an odd request."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, cast

if TYPE_CHECKING:
    from .data_connection import DataConnection
    from .forwarder import Forwarder

_IDLE = 6 * 3600.0  # seconds without a byte either way; the owner itself closes nothing


class PipeToOwner(asyncio.Protocol):
    """The owner's end of it."""

    def __init__(self, client: DataConnection, forwarder: Forwarder) -> None:
        self._client = client
        self._transport: asyncio.Transport | None = None
        self._has_ended = False
        self._loop = forwarder.loop
        self._used = self._loop.time()
        self._timer = self._loop.call_later(_IDLE, self._look)
        client.pause_sending()
        forwarder.start(self._connect(forwarder))

    async def _connect(self, forwarder: Forwarder) -> None:
        if not await forwarder.pipe(lambda: self):
            self._client.close()

    def send(self) -> None:
        """Pass on what came from the client, once there is a connection."""
        self._used = self._loop.time()
        if self._transport and (data := self._client.taken()):
            self._transport.write(data)

    def end(self) -> None:
        """The client sends no more."""
        self._has_ended = True
        if self._transport and self._transport.can_write_eof():
            self._transport.write_eof()

    def abandon(self) -> None:
        self._has_ended = True
        self._timer.cancel()
        if self._transport:
            self._transport.abort()

    def _look(self) -> None:
        if (left := self._used + _IDLE - self._loop.time()) > 0:
            self._timer = self._loop.call_later(left, self._look)
        else:
            self._client.close()

    def pause_reading(self) -> None:
        if self._transport:
            self._transport.pause_reading()

    def resume_reading(self) -> None:
        if self._transport:
            self._transport.resume_reading()

    # What asyncio calls.

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)  # uvloop's is one in all but its class
        self.send()
        self._client.resume_sending()
        if self._has_ended:
            self.end()

    def data_received(self, data: bytes) -> None:
        self._used = self._loop.time()
        self._client.write(data)

    def connection_lost(self, exc: Exception | None) -> None:
        self._transport = None
        self._client.close()

    def pause_writing(self) -> None:
        self._client.pause_sending()

    def resume_writing(self) -> None:
        self._client.resume_sending()
