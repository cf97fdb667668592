"""A runtime that is the command of a container: what the engine tells it, and what it tells the engine.

There is no inherited socket and no pipe. The engine's words are a variable (`base/container_start.py`), and the
ready line goes to standard output, which the engine reads as the container's log.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import socket
from collections.abc import AsyncIterator, Mapping
from functools import partial

from ...base import settings
from ...base.container_start import READY_MARK, VARIABLE, ContainerStart
from ...base.errors import InvalidRequest
from .port_relay import copy


def told() -> ContainerStart | None:
    """What the engine says, if a container was started by one. The variable is gone afterwards."""
    text = settings.runtime_settings().start
    settings.forget(VARIABLE)
    return ContainerStart.parse(text) if text else None


def listen(path: str) -> socket.socket:
    """A unix socket at this path; in the place of one that an earlier start of the container has left."""
    listener = socket.socket(socket.AF_UNIX)
    try:
        with contextlib.suppress(FileNotFoundError):
            os.unlink(path)
        listener.bind(path)
        os.chmod(path, 0o666)  # which users reach it is decided by the folder that it lies in
    except OSError as error:
        listener.close()
        raise InvalidRequest(f"cannot listen on {path!r}: {error.strerror}") from error
    return listener


def say(line: bytes) -> None:
    """Write the ready line to standard output, whatever `sys.stdout` is by now."""
    rest = memoryview(READY_MARK + line)
    while rest:
        rest = rest[os.write(1, rest) :]


@contextlib.asynccontextmanager
async def passed_on(ways_out: Mapping[str, str]) -> AsyncIterator[None]:
    """Inside, connections to these ports of the loopback are passed on to the unix sockets that are named."""
    async with contextlib.AsyncExitStack() as stack:
        for port, path in ways_out.items():
            server = await asyncio.start_server(partial(_pass_on, path), "127.0.0.1", int(port))
            await stack.enter_async_context(server)
        yield


async def _pass_on(path: str, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    with contextlib.closing(writer), contextlib.suppress(OSError):
        there, back = await asyncio.open_unix_connection(path)
        with contextlib.closing(back):
            await asyncio.gather(copy(reader, back), copy(there, writer))
