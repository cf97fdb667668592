"""The leases of this process at one gateway: one held request, over which all its instances are leased.

It is opened for the first lease, and ends some seconds after the last. Not here: the calls that are made under a
lease (`nearby.py`), and what is said (`base/leasing.py`).
"""

from __future__ import annotations

import asyncio
import atexit
import contextlib
import logging
import os
import threading
import time

from ..base.addresses import Origin
from ..base.errors import AEnvError
from ..base.http1 import PushedBody, Response
from ..base.leasing import PATH, CallTally, Grant, LeaseLine, LeaseLines
from ..base.wire import LEASES_HEADER
from .api import Api

logger = logging.getLogger("aenv.client.lease_holder")

_LINGER = 10.0  # seconds without a lease after which the request ends: rollouts follow each other
_TRY_AGAIN = 30.0  # seconds after a gateway refused to hold leases
_FIRST_PAUSE, _LONGEST_PAUSE = 0.1, 1.0  # seconds between attempts to have a lost lease again
_AT_EXIT = 1.0  # seconds for the last words of a process
_HEADERS = [("content-type", "application/x-ndjson"), ("accept", "application/x-ndjson")]


class HeldLease:
    """A lease that the gateway has given. All that call the instance on this loop share it."""

    def __init__(self, holder: LeaseHolder, id: str, grant: Grant) -> None:
        self.id = id
        self.grant = grant
        self.loop = holder.loop
        self.is_held = True
        self.tally = CallTally()
        self.calls = 0
        """How many are under way."""
        self.used_at = holder.loop.time()
        self._holder = holder
        self._finished: asyncio.Event | None = None
        holder.loop.call_later(grant.quiet, self._look)

    async def why_it_ended(self) -> str:
        """Why the instance does not answer; empty when it lives, or the gateway does not say."""
        return await self._holder.why_it_ended(self.id) if self.is_held else ""

    def begin_call(self) -> None:
        self.calls += 1

    def end_call(self) -> None:
        self.calls -= 1
        self.used_at = self.loop.time()
        if not self.calls and self._finished:
            self._finished.set()

    async def take_again(self) -> None:
        """The gateway has gone, or lost it, while calls are under way: have them counted again until they end."""
        self._finished = asyncio.Event()
        pause = _FIRST_PAUSE
        while self.calls:
            if lease := await LeaseHolder.of(*self._holder.gateway).take(self.id, patient=False):
                lease.begin_call()
                await self._finished.wait()
                lease.end_call()
                return
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._finished.wait(), pause)
            pause = min(2 * pause, _LONGEST_PAUSE)

    def let_go(self) -> None:
        """End it, unless calls are under way: then some quiet seconds after the last of them."""
        if self.is_held and not self.calls:
            self._holder.drop(self)

    def _look(self) -> None:
        if not self.is_held:
            return
        rest = self.grant.quiet - (0.0 if self.calls else self.loop.time() - self.used_at)
        if rest <= 0.0:
            self.let_go()
        else:
            self.loop.call_later(rest, self._look)


class LeaseHolder:
    """Belongs to the loop that it was made on: `LeaseHolder.of`."""

    def __init__(self, origin: Origin, api_key: str | None) -> None:
        self.loop = asyncio.get_running_loop()
        self.gateway = (origin, api_key)
        self._api = Api(origin, api_key=api_key, max_retries=0)
        self.key = ""
        """By which creates name the request; empty while there is none."""
        self._body: PushedBody | None = None
        """Of the request, once its answer has begun."""
        self._task: asyncio.Task[None] | None = None
        self._held: dict[str, HeldLease] = {}
        self._taking: dict[str, asyncio.Future[HeldLease | None]] = {}
        self._asking: dict[str, asyncio.Future[str]] = {}
        self._linger: asyncio.TimerHandle | None = None

    @classmethod
    def of(cls, origin: Origin, api_key: str | None) -> LeaseHolder:
        """That of the running loop for this gateway and this account."""
        of_loop = _holders.setdefault(asyncio.get_running_loop(), {})
        holder = of_loop.get((origin, api_key))
        if holder is None:
            holder = of_loop[origin, api_key] = cls(origin, api_key)
        return holder

    def given(self, key: str, id: str, grant: Grant) -> HeldLease | None:
        """The lease that came with a create; None where the request with this key has ended meanwhile."""
        if not key or key != self.key:
            return None
        self._stay()
        return self._held.setdefault(id, HeldLease(self, id, grant))

    def forgo(self, id: str) -> None:
        """Its create failed, or its answer was lost: should there be a lease, it ends."""
        if id not in self._held:
            self._say(LeaseLine("drop", id))

    @classmethod
    def open_at(cls, origin: Origin, api_key: str | None) -> LeaseHolder | None:
        """That of the running loop, where its request is held."""
        holder = _holders.get(asyncio.get_running_loop(), {}).get((origin, api_key))
        return holder if holder and holder.key else None

    async def take(self, id: str, *, patient: bool = True) -> HeldLease | None:
        """A lease on the instance, which runs now; None when the gateway gives none.

        A gateway that has just refused is not asked again for a while; with `patient` off it is.
        """
        if lease := self._held.get(id):
            return lease
        taking = self._taking.get(id)
        if taking is None:
            if patient and self._task is None and time.monotonic() < _not_before.get(self.gateway, 0.0):
                self._retire()
                return None
            taking = self._taking[id] = self.loop.create_future()
            self._stay()
            self._say(LeaseLine("take", id))
        return await asyncio.shield(taking)  # others wait for the same

    def drop(self, lease: HeldLease) -> None:
        """End it at the gateway, and say what was called."""
        lease.is_held = False
        if self._held.pop(lease.id, None):
            self._say(LeaseLine("drop", lease.id, calls=lease.tally.lines()))
        if self._task and not self._held and not self._taking and self._linger is None:
            self._linger = self.loop.call_later(_LINGER, self._end)

    async def why_it_ended(self, id: str) -> str:
        """Why an instance under a lease does not answer; empty when it lives, or the gateway does not say."""
        if self._body is None:
            return ""
        asking = self._asking.get(id)
        if asking is None:
            asking = self._asking[id] = self.loop.create_future()
            self._say(LeaseLine("why", id))
        return await asyncio.shield(asking)

    def _say(self, line: LeaseLine) -> None:
        if self._body:
            self._body.send(line.encode())
        # else `_hold` says it as soon as it can: nothing but "take" comes before.

    def _stay(self) -> None:
        """Have the request held, from now on or still."""
        if self._linger:
            self._linger.cancel()
            self._linger = None
        if self._task is None:
            self._task = self.loop.create_task(self._hold(), name="aenv-leases")
            # A program that closes its loop without asyncio.run need not hear that this was still there.
            self._task._log_destroy_pending = False  # type: ignore[attr-defined]

    def _end(self) -> None:
        """Say good-bye: the gateway ends its answer, and with it `_hold`."""
        for lease in list(self._held.values()):
            self.drop(lease)
        self._retire()
        self.key = ""
        if self._body:
            self._body.end()

    async def _hold(self) -> None:
        lines, body = LeaseLines(), PushedBody()
        response: Response | None = None
        try:
            response = await self._api.raw("POST", PATH, _HEADERS, body)
            self._body = body
            self.key = response.header(LEASES_HEADER.lower().encode()) or ""
            for id in self._taking:
                self._say(LeaseLine("take", id))
            while piece := await response.piece():
                for line in lines.feed(piece):
                    self._hear(line)
            self._count_again()
        except AEnvError as error:
            logger.debug("%s holds no leases now: %s", self._api.origin, error)
            _not_before[self.gateway] = time.monotonic() + _TRY_AGAIN
            self._count_again()
        finally:
            self._end()  # for one that is cancelled: what it called is told
            self._lose()
            if response:
                response.close()
            await self._api.close()

    def _count_again(self) -> None:
        """The gateway has ended the request: calls that are under way must not be taken for none."""
        for lease in self._held.values():
            if lease.calls:
                _tasks.add(task := self.loop.create_task(lease.take_again(), name="aenv-lease-again"))
                task.add_done_callback(_tasks.discard)

    def _hear(self, line: LeaseLine) -> None:
        if line.what == "why":
            if asking := self._asking.pop(line.id, None):
                asking.set_result(line.reason)
        elif taking := self._taking.pop(line.id, None):
            lease = HeldLease(self, line.id, line.grant) if line.grant else None
            if lease:
                self._held[line.id] = lease
            taking.set_result(lease)

    def _retire(self) -> None:
        """The next caller gets another one; and this one does not keep its loop."""
        of_loop = _holders.get(self.loop, {})
        if of_loop.get(self.gateway) is self:
            del of_loop[self.gateway]
            if not of_loop:
                del _holders[self.loop]

    def _lose(self) -> None:
        """The gateway holds nothing for this process any more."""
        self._task = self._body = None
        self.key = ""
        for lease in self._held.values():
            lease.is_held = False
        self._held.clear()
        taking, self._taking = self._taking, {}
        asking, self._asking = self._asking, {}
        for taken in taking.values():
            taken.set_result(None)
        for asked in asking.values():
            asked.set_result("")
        if self._linger:
            self._linger.cancel()
            self._linger = None

    # The ends of processes.

    def finish(self) -> None:
        """At exit, from another thread: the loop of the sync facade never ends by itself."""
        said = threading.Event()

        def end() -> None:
            self._end()
            said.set()

        if self._body and self.loop.is_running():
            self.loop.call_soon_threadsafe(end)
            said.wait(_AT_EXIT)

    def abandon(self) -> None:
        """In a fork: the request is the parent's alone, whose end must end it."""
        if self._body and (handle := self._body.fileno()) >= 0:
            with open(os.devnull, "rb") as null:
                os.dup2(null.fileno(), handle)
        self._body = None
        self.key = ""
        for lease in self._held.values():
            lease.is_held = False


_Gateway = tuple[Origin, str | None]
_tasks: set[asyncio.Task[None]] = set()
"""Those that have lost leases counted again."""
_holders: dict[asyncio.AbstractEventLoop, dict[_Gateway, LeaseHolder]] = {}
_not_before: dict[_Gateway, float] = {}
"""When a gateway that has refused to hold leases is asked again, by the clock of the process."""


def _all() -> list[LeaseHolder]:
    return [holder for of_loop in list(_holders.values()) for holder in of_loop.values()]


def _after_fork() -> None:
    for holder in _all():
        holder.abandon()
    _holders.clear()


@atexit.register
def _at_exit() -> None:
    for holder in _all():
        holder.finish()


os.register_at_fork(after_in_child=_after_fork)
