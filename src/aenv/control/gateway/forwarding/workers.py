"""The data workers of a gateway, as its owner process sees them: started, replaced when they die, and stopped."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import socket
import sys
import time
from functools import partial
from types import TracebackType

from ....base.errors import StartFailed
from ....base.supervision import Tasks
from ...board.shared_memory import Board
from ..data_request import DataRules
from .owner_listener import OwnerListener
from .worker import READY, STOP, WorkerSettings

logger = logging.getLogger("aenv.control.gateway.forwarding")

_START_TIMEOUT = 60.0
_STOP_TIMEOUT = 10.0
_SHORT_LIFE = 5.0  # seconds; a worker that lived for less is replaced after a pause
_PAUSE = 1.0


class Workers:
    """`async with`: so many processes serve the data port, which all of them listen on."""

    def __init__(
        self, count: int, board: Board, listener: socket.socket, owner: OwnerListener, rules: DataRules
    ) -> None:
        self._columns = range(1, count + 1)  # column 0 is the owner's
        self._board = board
        self._listener = listener
        self._owner = owner
        self._rules = rules
        self._tasks = Tasks()
        self._stop = asyncio.Event()

    async def __aenter__(self) -> Workers:
        loop = asyncio.get_running_loop()
        ready: list[asyncio.Future[None]] = []
        for column in self._columns:
            ready.append(loop.create_future())
            self._tasks.keep(f"data worker {column}", partial(self._keep, column, ready[-1]))
        try:
            async with asyncio.timeout(_START_TIMEOUT):
                await asyncio.gather(*ready)
        except BaseException as error:
            await self.__aexit__(type(error), error, None)
            if isinstance(error, TimeoutError):
                raise StartFailed("the data workers did not start; the log says why") from None
            raise
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None
    ) -> None:
        self._stop.set()
        await self._tasks.__aexit__(None, None, None)

    async def _keep(self, column: int, ready: asyncio.Future[None]) -> None:
        """One worker after the other, until told to stop."""
        while not self._stop.is_set():
            began = time.monotonic()
            code = await self._run(column, ready)
            self._board.clear(column)
            if self._stop.is_set():
                return
            logger.warning("data worker %d ended (%d); its calls broke, and it is replaced", column, code)
            if time.monotonic() - began < _SHORT_LIFE:
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(_PAUSE):
                        await self._stop.wait()

    async def _run(self, column: int, ready: asyncio.Future[None]) -> int:
        """One worker; its exit status."""
        loop = asyncio.get_running_loop()
        ours, theirs = socket.socketpair()
        with ours:
            ours.setblocking(False)
            with theirs:
                process = await self._start(column, theirs)
            ended = self._tasks.create_task(_logged(column, process))
            stopping = asyncio.ensure_future(self._stop.wait())
            try:
                if await loop.sock_recv(ours, 1) == READY and not ready.done():
                    ready.set_result(None)
                await asyncio.wait({ended, stopping}, return_when=asyncio.FIRST_COMPLETED)
                if not ended.done():
                    await loop.sock_sendall(ours, STOP)
                    await asyncio.wait({ended}, timeout=_STOP_TIMEOUT)
            finally:
                stopping.cancel()
                if not ended.done():
                    process.kill()
                code = await ended
        return code

    async def _start(self, column: int, channel: socket.socket) -> asyncio.subprocess.Process:
        descriptors = (self._board.fd, self._listener.fileno(), self._owner.descriptor)
        settings = WorkerSettings(
            column,
            len(self._board.columns),
            self._board.fd,
            self._listener.fileno(),
            self._owner.path,
            self._rules.max_body_bytes,
            self._rules.loopback_only,
            sorted(self._rules.allowed),
        )
        module = f"{__package__}.worker"
        return await asyncio.create_subprocess_exec(
            sys.executable,
            "-P",  # or the folder that the gateway was started in would come before its own modules
            "-m",
            module,
            settings.to_text(),
            stdin=channel.fileno(),
            stdout=asyncio.subprocess.DEVNULL,
            stderr=asyncio.subprocess.PIPE,
            pass_fds=descriptors,
        )


async def _logged(column: int, process: asyncio.subprocess.Process) -> int:
    """Log what a worker says until it has ended; its exit status."""
    assert process.stderr
    async for line in process.stderr:
        logger.warning("data worker %d: %s", column, line.decode(errors="replace").rstrip())
    return await process.wait()
