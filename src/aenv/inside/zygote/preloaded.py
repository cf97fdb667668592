"""An instance whose environment is loaded: all is done that can be done before it is told what it is.

What it does not know until then was given to no instance before: variables, arguments, its id.
"""

from __future__ import annotations

import asyncio
import gc
import socket
from collections.abc import Callable
from contextlib import AsyncExitStack
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType

from ...base import mcp
from ...base.limits import MAX_BODY_BYTES
from ..author.inject import Context
from ..author.registry import Registry
from ..runtime import orphans, program
from ..runtime.app import App
from ..runtime.fastmcp import find_server
from ..runtime.history import REMEMBERED
from ..runtime.http import Listener
from ..runtime.loader import LoadedProject
from ..runtime.serving import ServedEnvironment, app_of, offered
from . import warming

_UNASSIGNED = Context(id="", environment="", workspace=Path("/"), arguments=(), variables={})
_PAUSE = 0.0003  # seconds, in which an instance that was just told to its owner is not called yet
_IN_TIME = 0.001  # seconds; who wakes later than that is on a busy machine
_BODY = b'{"jsonrpc":"2.0","id":1,"method":"tools/list","params":{}}'
_REHEARSAL = (
    b"POST /mcp HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\n"
    b"accept: application/json, text/event-stream\r\ncontent-length: %d\r\n\r\n%b" % (len(_BODY), _BODY)
)


@dataclass(frozen=True)
class PreparedApp:
    """What answers the calls of a loaded environment, without a loop: it is forked with the rest."""

    offer: ServedEnvironment
    app: App
    ready_line: bytes
    """What each instance says of itself."""
    noted: orphans.Orphans
    """What is started from now on."""


def prepare(loaded: LoadedProject) -> PreparedApp | None:
    """None for a FastMCP server, which begins on the loop that it will run on."""
    registry, modules = loaded
    if find_server(modules) is not None:
        return None
    with asyncio.Runner(loop_factory=program.new_loop) as runner:
        prepared = runner.run(_offer(AsyncExitStack(), registry, modules, REMEMBERED))
    asyncio.set_event_loop(None)
    return prepared


async def _offer(
    stack: AsyncExitStack, registry: Registry, modules: list[ModuleType], remembered: int
) -> PreparedApp:
    offer = await stack.enter_async_context(
        offered(registry, modules, _UNASSIGNED, timeout=None, name="aenv-server", remembered=remembered)
    )
    ready_line = mcp.dumps({"ready": True, "tools": offer.tools}) + b"\n"
    return PreparedApp(offer, app_of(offer, loopback_only=False), ready_line, orphans.Orphans())


@dataclass(frozen=True)
class PreloadedInstance:
    """How an instance learns what it is."""

    loaded: LoadedProject
    prepared: PreparedApp | None
    keep_history: bool
    has_news: Callable[[], bool]
    """Whether `join`, or later `tell`, would not have to wait."""
    join: Callable[[], bool]
    """Waits until it is to be an instance; whether as a spare one, which is told later what it is."""
    tell: Callable[[], tuple[program.RuntimeOptions, bool]]
    """Its `ready_fd` is set where the engine wants it confirmed. And whether there is time to rehearse."""
    announce: Callable[[bytes], None]
    """Says a line to the engine."""

    async def serve(self) -> None:
        """Never returns: such an instance is ended from outside."""
        gc.freeze()
        gc.enable()
        async with AsyncExitStack() as stack:
            if self.prepared and self.keep_history:
                prepared = self.prepared
            else:
                prepared = await _offer(stack, *self.loaded, REMEMBERED if self.keep_history else 0)
            offer = prepared.offer
            async with Listener(prepared.app.handle, max_body_bytes=MAX_BODY_BYTES) as listener:
                has_rehearsed = not self.has_news()
                if has_rehearsed:  # so there is time
                    await _rehearse(offer, listener)
                if self.join():  # so there is more of it
                    await warming.one_call()
                    if not has_rehearsed and not self.has_news():
                        await _rehearse(offer, listener)
                    has_rehearsed = True
                # Who is told of it now finds all in place when the first call comes: that waits in the socket
                # until what is left has been done.
                self.announce(prepared.ready_line)
                options, has_time = self.tell()
                offer.begin(*program.situation(options))
                await offer.join_parts()
                offer.calls.after = orphans.begin(prepared.noted)
                data = socket.socket(fileno=options.fd)
                await listener.listen(data)
                program.announce(options, data, offer)
                offer.calls.start(offer.registry.starts)
                if has_time and not has_rehearsed:
                    await _rehearse_meanwhile(offer, listener)
                await asyncio.Event().wait()


async def _rehearse_meanwhile(offer: ServedEnvironment, listener: Listener) -> None:
    """Until the owner of the instance calls it there is time, unless the machine is busy."""
    loop = asyncio.get_running_loop()
    began = loop.time()
    await asyncio.sleep(_PAUSE)
    if loop.time() - began < _PAUSE + _IN_TIME:
        await _rehearse(offer, listener)


async def _rehearse(offer: ServedEnvironment, listener: Listener) -> None:
    """Do what a call does, without any code of the environment, so that the first one need not do it first."""
    loop = asyncio.get_running_loop()
    ours, theirs = socket.socketpair()
    with ours:
        ours.setblocking(False)
        theirs.setblocking(False)
        await loop.connect_accepted_socket(listener.connection, theirs)
        await loop.sock_sendall(ours, _REHEARSAL)
        await loop.sock_recv(ours, 1 << 16)
        await offer.calls.rehearse()
