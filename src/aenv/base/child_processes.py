"""Child processes of ours: what one says when it serves, and how it is ended with all that it started."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
from asyncio.subprocess import Process

_GRACE = 10.0  # seconds that a child gets to close what it holds
_LINE_LIMIT = 64 << 20  # bytes of the ready line: it carries every tool's schema


async def end(process: Process) -> None:
    """Ask a child and what it started to end, and see to it: `process` must lead a session of its own."""
    if process.returncode is None:
        with contextlib.suppress(ProcessLookupError):  # it has just ended, and the loop does not know yet
            os.killpg(process.pid, signal.SIGTERM)
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(_GRACE):
                await process.wait()
    with contextlib.suppress(ProcessLookupError):  # the usual case: the whole group has ended
        os.killpg(process.pid, signal.SIGKILL)
    await process.wait()


async def read_line(descriptor: int) -> bytes:
    """The one line that a child writes to the pipe, which is closed; empty when it ended without."""
    reader = asyncio.StreamReader(limit=_LINE_LIMIT)
    transport, _ = await asyncio.get_running_loop().connect_read_pipe(
        lambda: asyncio.StreamReaderProtocol(reader), os.fdopen(descriptor, "rb", buffering=0)
    )
    try:
        return await reader.readline()
    finally:
        transport.close()
