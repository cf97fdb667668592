"""The first use of a sidecar that is made only then: until then the engine holds the socket of its listener.

A call of the main part waits in the queue of that socket while the sidecar is made, which then takes it over.
When it cannot be made, the calls that wait are answered with the reason; the next call is another attempt.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import socket
from collections.abc import Awaitable, Callable

from ...base import sockets
from ...base.errors import AEnvError, StartFailed
from ...base.outcomes import Outcome
from ..descriptors import readable

logger = logging.getLogger("aenv.engines.native")

Start = Callable[[socket.socket], Awaitable[None]]
"""Makes the sidecar, and hands the listener over."""

_PATIENCE = 10.0  # seconds in which a refused call must have read why
_PIECE_BYTES = 1 << 16


class DestroyedMeanwhile(StartFailed):
    """The instance was destroyed while its sidecar started: nothing is missing, so it is not `not_ready`."""


class SidecarFirstUses:
    """Those that an engine waits for."""

    def __init__(self) -> None:
        self._waiting: dict[str, asyncio.Task[None]] = {}

    def wait(self, id: str, listener: socket.socket, start: Start) -> None:
        """Take the listener, and start the sidecar of this instance when a call of the main part comes."""
        self._waiting[id] = asyncio.create_task(_wait(listener, start))

    async def stop(self, id: str) -> None:
        """Return when it is neither waited for nor made any more."""
        if task := self._waiting.pop(id, None):
            task.cancel()
            await asyncio.wait({task})

    async def close(self) -> None:
        for id in [*self._waiting]:
            await self.stop(id)


async def _wait(listener: socket.socket, start: Start) -> None:
    with listener:
        listener.setblocking(False)
        while True:
            await readable(listener.fileno())
            try:
                await start(listener)
                return
            except DestroyedMeanwhile as error:
                await _refuse(listener, error)
            except AEnvError as error:
                await _refuse(listener, error, outcome=Outcome.NOT_READY)
            except Exception as error:  # boundary: the caller is answered, whatever went wrong
                logger.error("a sidecar could not be made", exc_info=error)
                await _refuse(listener, StartFailed("the sidecar failed; the gateway's log says why"))


async def _refuse(listener: socket.socket, error: AEnvError, **further: str) -> None:
    """Answer all who wait now."""
    body = json.dumps({"success": False, "error": f"no sidecar: {error.message}", **further}).encode()
    head = f"HTTP/1.1 {error.status} Refused\r\ncontent-type: application/json\r\nconnection: close\r\n\r\n"
    async with asyncio.TaskGroup() as answers:
        with contextlib.suppress(BlockingIOError):
            while True:
                answers.create_task(_answer(listener.accept()[0], head.encode() + body))


async def _answer(connection: socket.socket, text: bytes) -> None:
    loop = asyncio.get_running_loop()
    connection.setblocking(False)
    sockets.refuse_descriptors(connection)
    with connection, contextlib.suppress(OSError, TimeoutError):
        async with asyncio.timeout(_PATIENCE):
            await loop.sock_sendall(connection, text)
            connection.shutdown(socket.SHUT_WR)
            # What was asked is of no interest; but to close before it is read would take the answer back.
            while await loop.sock_recv(connection, _PIECE_BYTES):
                pass
