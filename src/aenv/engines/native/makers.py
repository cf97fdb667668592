"""The native engine of a gateway that has several processors: bursts of instances are made by other processes.

One create after the other is made here, which takes the least time. Where many come together each is handed to a
maker (`maker.py`), in turns. Makers are started when creates crowd, and let go when none has for long. What they
have made is written down in the same home, so all but creating and ending is done here.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import socket
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from ...base.addresses import Origin
from ...base.config import Project
from ...base.supervision import Tasks, to_the_end
from ...isolation.sandbox.rootfs import Rootfs
from ..base import Address, InstanceSpec
from . import gvisor
from .engine import NativeEngine, RootOf
from .maker_messages import DestroyOrder, EndedNotice, Frames, GiveUpOrder, MakeOrder, MakerReady, OrderOutcome
from .sidecars import LazySidecarRootfs, SidecarRootfs

logger = logging.getLogger("aenv.engines.native")

_CROWD = 6  # creates under way at once, from which on makers take them
_QUEUE = 32  # and from which on they wait for makers that are being started
_UNUSED = 600.0  # seconds after which makers are let go
_CORES_EACH = 4  # one maker, with its stagers, zygotes and young instances, keeps so many busy
_MOST = 8
_ANSWERS = 10.0  # seconds after the time that an instance has to start
_ENDS = 30.0  # seconds


class MakerLost(Exception):
    """The maker has ended, and with it what it was making."""


class ManyCoreEngine(NativeEngine):
    """Makes instances here, and in makers where many are asked for at once."""

    def __init__(
        self,
        home: Path,
        root_of: RootOf,
        *,
        sidecar_rootfs: SidecarRootfs | None = None,
        lazy_sidecar_rootfs: LazySidecarRootfs | None = None,
        describe_root: Callable[[Project], str] | None = None,
        makers: int | None = None,
        crowd: int = _CROWD,
        queue: int = _QUEUE,
    ) -> None:
        """`makers`: how many; None for as many as the processors of this process can use.

        They take creates where more than `crowd` are under way; more than `queue` wait until there are makers.
        """
        super().__init__(
            home,
            root_of,
            sidecar_rootfs=sidecar_rootfs,
            lazy_sidecar_rootfs=lazy_sidecar_rootfs,
            describe_root=describe_root,
        )
        self._most = _fitting(len(os.sched_getaffinity(0))) if makers is None else makers
        self._crowd = crowd
        self._queue = queue
        self._makers: list[_MakerProcess] = []
        self._made_by: dict[str, _MakerProcess] = {}
        self._turn = 0
        self._under_way = 0
        self._crowded_at = 0.0
        self._starting: asyncio.Task[None] | None = None
        self._letting_go: asyncio.TimerHandle | None = None
        self._tasks = Tasks()

    async def __aexit__(self, *exc: object) -> None:
        await self._let_go()
        await self._tasks.__aexit__(None)
        await super().__aexit__(*exc)

    async def create(self, spec: InstanceSpec, *, rehearse: bool | None = None) -> Address:
        """Return once the instance serves requests. On failure, and on cancellation, leave nothing behind."""
        self._under_way += 1
        try:
            maker = await self._maker_for(spec)
            if maker is None:
                return await super().create(spec, rehearse=rehearse)
            root = await self._root_of(spec)
            try:
                self._made_by[spec.id] = maker
                return await maker.create(spec, root, rehearse=self._under_way == 1)
            except MakerLost:
                self._made_by.pop(spec.id, None)
                await super().destroy(spec.id)  # as far as it was made
                return await super().create(spec, rehearse=rehearse)
            except BaseException:
                self._made_by.pop(spec.id, None)
                raise
        finally:
            self._under_way -= 1

    async def destroy(self, id: str) -> None:
        """End the instance and everything it started."""
        maker = self._made_by.pop(id, None)
        if maker:
            try:
                await maker.destroy(id)
                return
            except MakerLost:
                pass  # it lives on, like one of a gateway before this one
        await super().destroy(id)

    async def ended(self, id: str) -> str:
        """Return, with the reason, when the instance has ended by itself (or has been destroyed)."""
        if maker := self._made_by.get(id):
            with contextlib.suppress(MakerLost):
                return await maker.ended(id)
        return await super().ended(id)

    # Makers

    async def _maker_for(self, spec: InstanceSpec) -> _MakerProcess | None:
        """Whose turn it is; None for what is made here."""
        # What needs more than its folder to be looked after stays with this process: proxies, sidecars, relays.
        is_plain = (
            not (spec.sidecar or spec.storage or spec.model or spec.uses_environments or spec.works_in)
            and spec.network.kind != "egress"
        )
        if not is_plain or spec.isolation == gvisor.NAME or self._missing or not self._most:
            return None
        if self._under_way <= self._crowd or any(self.warm().values()):
            return None
        self._keep_makers()
        if self._under_way > self._queue:
            await self._begun()
        ready = [maker for maker in self._makers if maker.is_ready]
        if not ready:
            return None
        self._turn += 1
        return ready[self._turn % len(ready)]

    def _keep_makers(self) -> None:
        """Creates crowd: see to it that there are makers, and for how long."""
        loop = asyncio.get_running_loop()
        self._crowded_at = loop.time()
        if len(self._makers) < self._most and self._starting is None:
            self._starting = self._tasks.create_task(self._start_makers())
        if self._letting_go is None:
            self._letting_go = loop.call_later(_UNUSED, self._look)

    async def _start_makers(self) -> None:
        try:
            while len(self._makers) < self._most:
                self._makers.append(await _MakerProcess.start(self._home, self._lost))
        except OSError as error:
            logger.warning("no process could be started that makes instances: %s", error)
        finally:
            self._starting = None

    def _lost(self, maker: _MakerProcess) -> None:
        """It has ended, and was not told to."""
        logger.warning("a process that made instances ended; those that run go on")
        if maker in self._makers:
            self._makers.remove(maker)
        self._tasks.create_task(self._clear_after(maker))

    async def _clear_after(self, maker: _MakerProcess) -> None:
        await maker.close()
        await self.sweep()  # the control groups of what it was making

    async def _begun(self) -> None:
        """Return when all makers that were started can be used, or never will."""
        if self._starting:
            await asyncio.wait({self._starting})
        if starting := {maker.begun for maker in self._makers if not maker.begun.done()}:
            await asyncio.wait(starting)

    def _look(self) -> None:
        loop = asyncio.get_running_loop()
        self._letting_go = None
        if (rest := self._crowded_at + _UNUSED - loop.time()) > 0:
            self._letting_go = loop.call_later(rest, self._look)
        else:
            self._tasks.create_task(self._let_go())

    async def _let_go(self) -> None:
        if self._letting_go:
            self._letting_go.cancel()
            self._letting_go = None
        if self._starting:
            await asyncio.wait({self._starting})
        makers, self._makers = self._makers, []
        await asyncio.gather(*(maker.close() for maker in makers))


def _fitting(cores: int) -> int:
    """How many makers keep so many processors busy, beside the gateway itself."""
    return 0 if cores < 2 else min(_MOST, max(1, cores // _CORES_EACH))


class _MakerProcess(asyncio.Protocol):
    """One maker, as the gateway sees it."""

    def __init__(self, process: subprocess.Popen[bytes], lost: Callable[[_MakerProcess], None]) -> None:
        self.is_over = False
        self._is_closing = False
        self._lost = lost
        self.begun: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        """Done when it can be used, or has ended before."""
        self._process = process
        self._frames = Frames()
        self._transport: asyncio.WriteTransport
        self._number = 0
        self._outcomes: dict[int, asyncio.Future[Address | None]] = {}
        self._ends: dict[str, asyncio.Future[str]] = {}
        self._tools: list[dict[str, Any]] = []
        self._gone: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    @property
    def is_ready(self) -> bool:
        return self.begun.done() and not self.is_over

    @classmethod
    async def start(cls, home: Path, lost: Callable[[_MakerProcess], None]) -> _MakerProcess:
        """Start one; it can be used when it `is_ready`. `lost` is called when it ends before it is closed."""
        ours, theirs = socket.socketpair()
        with theirs:
            command = [sys.executable, "-P", "-m", "aenv.engines.native.maker", str(theirs.fileno()), str(home)]
            process = await asyncio.to_thread(
                subprocess.Popen, command, stdin=subprocess.DEVNULL, pass_fds=[theirs.fileno()]
            )
        loop = asyncio.get_running_loop()
        maker = cls(process, lost)
        await loop.create_unix_connection(lambda: maker, sock=ours)
        return maker

    async def create(self, spec: InstanceSpec, root: Rootfs, *, rehearse: bool) -> Address:
        """As of an engine; MakerLost when the maker ended meanwhile."""
        number, made = self._order(lambda number: MakeOrder(number, spec, root, rehearse))
        self._ends[spec.id] = asyncio.get_running_loop().create_future()
        try:
            async with asyncio.timeout(spec.start_timeout + _ANSWERS):
                address = await asyncio.shield(made)
        except TimeoutError:  # it would have told of one of its own: it stands still
            self._process.kill()
            raise MakerLost from None
        except asyncio.CancelledError:
            _, given_up = self._order(lambda own: GiveUpOrder(own, number, spec.id))
            try:
                with contextlib.suppress(MakerLost):
                    await to_the_end(given_up)
            finally:
                self._ends.pop(spec.id, None)
            raise
        except BaseException:
            self._ends.pop(spec.id, None)
            raise
        assert address
        return address

    async def destroy(self, id: str) -> None:
        _, done = self._order(lambda number: DestroyOrder(number, id))
        await asyncio.shield(done)
        if (ended := self._ends.pop(id, None)) and not ended.done():
            ended.set_result("it was destroyed")

    async def ended(self, id: str) -> str:
        """Return, with the reason, when it has ended."""
        ended = self._ends.get(id)
        if ended is None:
            raise MakerLost
        return await asyncio.shield(ended)

    async def close(self) -> None:
        """Return when it is gone; its instances live on."""
        self._is_closing = True
        self._transport.close()
        await self._gone
        try:
            await asyncio.to_thread(self._process.wait, _ENDS)
        except subprocess.TimeoutExpired:
            self._process.kill()
            await asyncio.to_thread(self._process.wait)

    def _order(self, order: Callable[[int], object]) -> tuple[int, asyncio.Future[Address | None]]:
        if self.is_over:
            raise MakerLost
        self._number += 1
        outcome = self._outcomes[self._number] = asyncio.get_running_loop().create_future()
        self._transport.write(Frames.packed(order(self._number)))
        return self._number, outcome

    # What asyncio calls

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = transport  # type: ignore[assignment]  # a stream's is one

    def connection_lost(self, exc: Exception | None) -> None:
        self.is_over = True
        if not self.begun.done():
            self.begun.set_result(None)
        waiting: list[asyncio.Future[Any]] = [*self._outcomes.values(), *self._ends.values()]
        for one in waiting:
            if not one.done():
                one.set_exception(MakerLost())
                one.exception()  # read, so that it is not reported as lost where no one waits
        self._outcomes.clear()
        self._ends.clear()
        self._gone.set_result(None)
        if not self._is_closing:
            self._lost(self)

    def data_received(self, data: bytes) -> None:
        for message in self._frames.unpacked(data):
            match message:
                case MakerReady():
                    self.begun.set_result(None)
                case EndedNotice(id, reason):
                    ended = self._ends.get(id)
                    if ended and not ended.done():
                        ended.set_result(reason)
                case OrderOutcome(number):
                    self._settle(self._outcomes.pop(number), message)

    def _settle(self, waiting: asyncio.Future[Address | None], outcome: OrderOutcome) -> None:
        address = None
        if outcome.socket:
            self._tools = self._tools if outcome.tools is None else outcome.tools
            origin = Origin("localhost", socket=outcome.socket)
            address = Address(origin, outcome.pid, self._tools, outcome.root, outcome.not_enforced)
        if waiting.done():
            return
        if outcome.error:
            waiting.set_exception(outcome.error)
            waiting.exception()
        else:
            waiting.set_result(address)
