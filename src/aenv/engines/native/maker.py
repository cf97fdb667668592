"""A maker: a process that makes and ends instances for the engine of a gateway, which has its own to do.

    python -m aenv.engines.native.maker DESCRIPTOR HOME

It has an engine object of its own on the same home, with zygotes of its own. It ends when the gateway closes the
socket; its instances live on, and any engine object on that home can take them over.
"""

from __future__ import annotations

import asyncio
import contextlib
import gc
import os
import pickle
import socket
import sys
from collections.abc import Coroutine
from pathlib import Path
from typing import Any

from ...base import logs
from ...base.errors import AEnvError, StartFailed
from ...base.supervision import Tasks
from ...isolation.sandbox.rootfs import Rootfs
from ..base import Address, InstanceSpec
from .engine import NativeEngine
from .maker_messages import DestroyOrder, EndedNotice, Frames, GiveUpOrder, MakeOrder, MakerReady, OrderOutcome

_NEW_OBJECTS = 20_000  # between two collections, as in the gateway


def main() -> None:
    """Do what the gateway asks for until it is gone."""
    logs.configure()
    with asyncio.Runner(loop_factory=_new_loop) as runner:
        runner.run(_serve(int(sys.argv[1]), Path(sys.argv[2])))


def _new_loop() -> asyncio.AbstractEventLoop:
    """uvloop's for root; with the user ids of its instances it could be made to abort: see `serving/loops.py`."""
    if os.geteuid() != 0:
        return asyncio.new_event_loop()
    import uvloop

    loop: asyncio.AbstractEventLoop = uvloop.new_event_loop()
    return loop


async def _serve(descriptor: int, home: Path) -> None:
    roots: dict[str, Rootfs] = {}

    async def root_of(spec: InstanceSpec) -> Rootfs:
        return roots[spec.id]

    loop = asyncio.get_running_loop()
    async with NativeEngine(home, root_of) as engine, Tasks() as tasks:
        gc.freeze()
        gc.set_threshold(_NEW_OBJECTS, 20, 50)
        maker = _Maker(engine, roots, tasks)
        await loop.create_unix_connection(lambda: maker, sock=socket.socket(fileno=descriptor))
        maker.say(MakerReady())
        await maker.gone.wait()
        maker.stop()


class _Maker(asyncio.Protocol):
    """The connection to the gateway, and what was ordered on it."""

    def __init__(self, engine: NativeEngine, roots: dict[str, Rootfs], tasks: Tasks) -> None:
        self.gone = asyncio.Event()
        self._engine = engine
        self._roots = roots
        self._tasks = tasks
        self._frames = Frames()
        self._transport: asyncio.WriteTransport
        self._making: dict[int, asyncio.Task[None]] = {}
        self._watching: dict[str, asyncio.Task[None]] = {}
        self._tools_told: list[dict[str, Any]] | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = transport  # type: ignore[assignment]  # a stream's is one

    def connection_lost(self, exc: Exception | None) -> None:
        self.gone.set()

    def stop(self) -> None:
        """Give up what is being made: no one would learn of it."""
        for task in (*self._making.values(), *self._watching.values()):
            task.cancel()

    def say(self, message: object) -> None:
        if not self.gone.is_set():
            self._transport.write(Frames.packed(message))

    def data_received(self, data: bytes) -> None:
        for order in self._frames.unpacked(data):
            match order:
                case MakeOrder(number):
                    self._making[number] = self._tasks.create_task(self._make(order))
                case GiveUpOrder(number):
                    self._tasks.create_task(self._told(number, self._give_up(order)))
                case DestroyOrder(number, id):
                    self._tasks.create_task(self._told(number, self._destroy(id)))

    async def _make(self, order: MakeOrder) -> None:
        id = order.spec.id
        self._roots[id] = order.root
        try:
            address = await self._engine.create(order.spec, rehearse=order.rehearse)
        except Exception as error:  # boundary: the engine, and what the environment's code does to it
            self.say(OrderOutcome(order.number, error=_sendable(error)))
            return
        finally:
            del self._roots[id]
            self._making.pop(order.number, None)
        self._watching[id] = self._tasks.create_task(self._watch(id))
        self._tell_made(order.number, address)

    def _tell_made(self, number: int, address: Address) -> None:
        tools = None if address.tools is self._tools_told else address.tools
        self._tools_told = address.tools
        where = address.origin.socket or ""
        self.say(OrderOutcome(number, None, where, address.pid, address.root, address.not_enforced, tools))

    async def _told(self, number: int, work: Coroutine[Any, Any, None]) -> None:
        error = None
        try:
            await work
        except Exception as failure:  # boundary: the engine
            error = _sendable(failure)
        self.say(OrderOutcome(number, error=error))

    async def _give_up(self, order: GiveUpOrder) -> None:
        if task := self._making.pop(order.making, None):
            task.cancel()
            await asyncio.wait({task})
        await self._destroy(order.id)  # it may have been complete

    async def _destroy(self, id: str) -> None:
        if watching := self._watching.pop(id, None):
            watching.cancel()
        await self._engine.destroy(id)

    async def _watch(self, id: str) -> None:
        with contextlib.suppress(asyncio.CancelledError):
            reason = await self._engine.ended(id)
            if self._watching.pop(id, None):
                self.say(EndedNotice(id, reason))


def _sendable(error: Exception) -> Exception:
    """The error, if it means the same in another process."""
    if isinstance(error, AEnvError | OSError):
        with contextlib.suppress(
            Exception
        ):  # boundary: how its class was written decides whether it can be copied
            return error if str(pickle.loads(pickle.dumps(error))) == str(error) else StartFailed(str(error))
    return StartFailed(f"the native engine failed: {error!r}")


if __name__ == "__main__":
    main()
