"""A world in which one gateway runs after the other: real parts and a real SQLite store; a stub for the engine.

Time passes only when a test says so. Everything that can go wrong does so when a test says so.
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import itertools
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from aenv.base.addresses import Origin
from aenv.base.errors import StartFailed, Unavailable
from aenv.control.gateway import home as homes
from aenv.control.gateway.parts import Parts, parts, shared
from aenv.control.instances.catalog import PreparedProject, read_folders
from aenv.engines.base import Address, InstanceSpec
from tests.gateways import gateway_settings, make_project

CRASHED = "it crashed"
_ASKED = ("get", "write", "page", "totals", "lease")
_TURNS = 40  # of the event loop without a call of the store, in which every task has come to where it waits


class Killed(BaseException):
    """What the code of a gateway meets that was killed: it does nothing more."""


@dataclass
class World:
    """What outlasts a gateway."""

    running: dict[str, asyncio.Event] = field(default_factory=dict)
    """The instances that the engine has made; the event is set when one crashes."""
    now: float = 1_800_000_000.0
    at_once: bool = False
    """Whether the engine has every instance ready when it is asked for one."""
    stubborn: bool = False
    """Whether the engine finishes what it is told to cancel."""
    destroy_fails: bool = False
    """Whether the next destroy fails."""
    store_is_down: bool = False
    cut_off: bool = False
    """Whether the answer to the next write of an instance is lost."""
    _ids: itertools.count[int] = field(default_factory=itertools.count)
    _moments: itertools.count[int] = field(default_factory=itertools.count)

    def new_id(self, name: str) -> str:
        return f"{name}-{next(self._ids):026}"

    def time(self) -> float:
        """No two moments are the same."""
        return self.now + next(self._moments) * 1e-6


class StubEngine:
    """An engine as one gateway sees it. What it is told to make waits in `starting` for the test's word."""

    name = "stub"
    isolation: tuple[str, ...] = ()

    def __init__(self, world: World) -> None:
        self.starting: dict[str, asyncio.Future[str]] = {}
        self.is_dead = False
        self._world = world

    async def create(self, spec: InstanceSpec) -> Address:
        self._check()
        how = "ready" if self._world.at_once else await self._word(spec.id)
        self._check()
        match how:
            case "refuse":
                raise StartFailed("it does not start")
            case "run short":
                raise OSError(errno.ENOMEM, "no memory")
            case "give up":
                raise asyncio.CancelledError
        self._world.running[spec.id] = asyncio.Event()
        return Address(Origin("127.0.0.1", 1), 1)

    async def _word(self, id: str) -> str:
        self.starting[id] = asyncio.get_running_loop().create_future()
        try:
            return await self.starting[id]
        except asyncio.CancelledError:
            if not self._world.stubborn:
                raise
            for _ in range(_TURNS // 4):
                await asyncio.sleep(0)
            return "ready"
        finally:
            del self.starting[id]

    async def destroy(self, id: str) -> None:
        self._check()
        if self._world.destroy_fails:
            self._world.destroy_fails = False
            raise OSError(errno.EBUSY, "it is busy")
        self._world.running.pop(id, None)

    async def running(self) -> dict[str, Address]:
        return {id: Address(Origin("127.0.0.1", 1), 1) for id in self._world.running}

    async def ended(self, id: str) -> str:
        await self._world.running[id].wait()
        return CRASHED

    def _check(self) -> None:
        if self.is_dead:
            raise Killed


class Incarnation:
    """One gateway, from its start to its end."""

    def __init__(self, world: World, engine: StubEngine, made: Parts) -> None:
        self.engine = engine
        self.made = made
        self._world = world
        self._calls = 0
        for method in _ASKED:  # over the methods of a real object, which still does the work
            setattr(made.shared.store, method, self._breakable(method, getattr(made.shared.store, method)))

    def _breakable(self, method: str, original: Any) -> Any:
        async def call(*arguments: Any, **options: Any) -> Any:
            if self.engine.is_dead:
                raise Killed
            self._calls += 1
            try:
                if self._world.store_is_down:
                    raise Unavailable("the store is down")
                result = await original(*arguments, **options)
            finally:
                self._calls -= 1
            if self._world.cut_off and method == "write" and any(one.kind == "instances" for one in arguments):
                self._world.cut_off = False
                raise Unavailable("the connection broke before the reply")
            return result

        return call

    async def begin(self) -> None:
        """As `Parts.run` does; its loops do not run, and tests do what these would."""
        await self.made.upkeep.announce()
        await self.made.upkeep.take_over_all(await self.engine.running(), set())
        self.made.supervisor.refusal = None

    async def settle(self) -> None:
        """Return when every task waits for a word of the test."""
        calm = 0
        while calm < _TURNS:
            calm = 0 if self._calls else calm + 1
            await asyncio.sleep(0)

    async def kill(self) -> None:
        """As SIGKILL would, and the leases run out."""
        await self.made.upkeep.resign()
        self.engine.is_dead = True
        own = asyncio.current_task()
        while others := asyncio.all_tasks() - {own}:
            for task in others:
                task.cancel()
            await asyncio.wait(others)
        for id in [*self.made.supervisor]:  # so that nothing of it is ended when the parts are closed
            del self.made.supervisor._by_id[id]


@contextlib.asynccontextmanager
async def started(world: World, folder: Path, **settings: Any) -> AsyncIterator[Incarnation]:
    """A gateway on the home in `folder`, which has taken over what the one before left."""
    project = folder / "echo-1.0.0"
    if not project.exists():
        make_project(folder)
    known = gateway_settings(folder / "home", project, **settings)
    engine = StubEngine(world)
    async with (
        shared(known, read_folders([project], folder / "home")) as base,
        homes.opened(folder / "home") as own,
        parts(known, base, own, engine=engine, clock=lambda: world.now) as made,
    ):

        async def prepare(_: object) -> PreparedProject:
            return PreparedProject(None, None)

        made.catalog.prepare = prepare  # type: ignore[method-assign]  # it takes a thread: then no turn is the last
        incarnation = Incarnation(world, engine, made)
        await incarnation.begin()
        yield incarnation
