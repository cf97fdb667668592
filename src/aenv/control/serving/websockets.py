"""The server's end of a WebSocket, on the connection of an upgrade. `websockets` reads and writes the frames."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator

from starlette.requests import Request
from websockets.exceptions import InvalidState
from websockets.frames import Frame, Opcode
from websockets.protocol import Protocol, Side, State
from websockets.utils import accept_key

from ...base.errors import InvalidRequest
from .upgrades import Upgrade, upgrade_of

_MAX_MESSAGE_BYTES = 64 << 10
_PING_EVERY = 20.0  # seconds
_SILENCE = 60.0  # seconds without a single frame, not even the answer to a ping
_VERSION = "13"


class WebSocket:
    """Messages both ways: text as `str`, and bytes. Pings are answered, and silent clients are left."""

    def __init__(self, upgrade: Upgrade) -> None:
        self._upgrade = upgrade
        self._protocol = Protocol(Side.SERVER, state=State.OPEN, max_size=_MAX_MESSAGE_BYTES)
        self._heard = time.monotonic()

    @classmethod
    def accept(cls, request: Request, protocol: str) -> WebSocket:
        """Take the connection of a request that offers this protocol."""
        upgrade = offered(request, protocol)
        key = request.headers["sec-websocket-key"]
        headers = [
            (b"upgrade", b"websocket"),
            (b"connection", b"Upgrade"),
            (b"sec-websocket-accept", accept_key(key).encode()),
            (b"sec-websocket-protocol", protocol.encode()),
        ]
        upgrade.take(headers)
        return cls(upgrade)

    async def messages(self) -> AsyncIterator[str | bytes]:
        """What the client says, until either side closes, or it has gone."""
        parts: list[bytes] = []
        is_text = False
        while self._protocol.state is not State.CLOSED:
            data = await self._read()
            if data:
                self._protocol.receive_data(data)
            else:
                self._protocol.receive_eof()
            for event in self._protocol.events_received():
                if not isinstance(event, Frame) or event.opcode not in (Opcode.TEXT, Opcode.BINARY, Opcode.CONT):
                    continue
                if event.opcode is not Opcode.CONT:
                    is_text = event.opcode is Opcode.TEXT
                if event.data:  # of empty parts a message can have any number
                    parts.append(bytes(event.data))
                if event.fin:
                    whole, parts = b"".join(parts), []
                    yield whole.decode(errors="replace") if is_text else whole
            await self._flush()
            if (
                not data or self._protocol.close_expected()
            ):  # after both have said so, it is the server that closes
                return

    async def _read(self) -> bytes:
        """The next bytes, with a ping now and then; empty when the client has gone or is silent."""
        reading = asyncio.ensure_future(self._upgrade.read())
        try:
            while True:
                done, _ = await asyncio.wait({reading}, timeout=_PING_EVERY)
                if done:
                    self._heard = time.monotonic()
                    return reading.result()
                if time.monotonic() - self._heard > _SILENCE:
                    return b""
                self._protocol.send_ping(b"")
                await self._flush()
        finally:
            reading.cancel()

    async def send(self, message: str | bytes) -> None:
        """Return when the client's socket takes more. ConnectionError when it is closed."""
        try:
            if isinstance(message, str):
                self._protocol.send_text(message.encode())
            else:
                self._protocol.send_binary(message)
        except InvalidState:
            raise ConnectionError("the WebSocket is closed") from None
        await self._flush()

    async def close(self, code: int, reason: str) -> None:
        """Say why, and that no more comes."""
        if self._protocol.state is State.OPEN:
            self._protocol.send_close(code, reason.encode()[:120].decode(errors="ignore"))
            await self._flush()

    async def _flush(self) -> None:
        if data := b"".join(self._protocol.data_to_send()):
            await self._upgrade.write(data)


def offered(request: Request, protocol: str) -> Upgrade:
    """The connection of a request that offers this protocol. InvalidRequest when it does not."""
    upgrade = upgrade_of(request.scope)
    headers = request.headers
    if upgrade is None or headers.get("sec-websocket-version") != _VERSION or "sec-websocket-key" not in headers:
        raise InvalidRequest(f"this takes a WebSocket of version {_VERSION}")
    said = ",".join(headers.getlist("sec-websocket-protocol"))
    if protocol not in (one.strip() for one in said.split(",")):
        raise InvalidRequest(f"the WebSocket does not offer the protocol {protocol!r}")
    return upgrade
