"""The replicas of one service: as many as its record says, of the version that it says, replaced one by one.

What shall be stands in the record, which others may change; this makes it so, step by step, and looks again
whenever something happens. No other code writes which instances the service has.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Awaitable, Callable, Mapping, Sequence

from ...base import wire
from ...base.addresses import Origin
from ...base.errors import AEnvError, Unavailable
from ...base.supervision import Tasks
from ...base.wire import ServiceStatus
from ...engines.base import Address, InstanceSpec
from . import storage
from .replica import Means, Replica
from .service_records import ServiceRecord, ServiceRecords, Setup

logger = logging.getLogger("aenv.control.services")

_MAX_SESSIONS = 4096
RUNTIME_PORT = 8081  # what config.json says of every published environment: the runtime, wherever it listens here

Spec = Callable[[ServiceRecord, Setup, str], Awaitable[InstanceSpec]]
"""What the engine is asked for, for a replica of this id."""


class Replicas:
    """The replicas of a service that this gateway looks after."""

    def __init__(
        self,
        record: ServiceRecord,
        running: Mapping[str, Address],
        means: Means,
        records: ServiceRecords,
        spec: Spec,
    ) -> None:
        self.id = record.id
        self.owner = record.owner
        self._created_at = record.created_at
        self._means = means
        self._records = records
        self._spec = spec
        self._woken = asyncio.Event()
        self._tasks = Tasks()
        self._leaving: dict[Replica, asyncio.Task[None]] = {}
        self._sessions: dict[int, Replica] = {}
        """By the hash of their id, which a client may make as long as it likes."""
        self._turns = 0
        self._given_up: dict[int, str] = {}
        """Generations that did not start on the service's storage, and why."""
        self._here = [
            self._replica(record, id, generation, running.get(id)) for id, generation in record.instances.items()
        ]

    def _replica(self, record: ServiceRecord, id: str, generation: int, address: Address | None = None) -> Replica:
        setup = record.setups[generation]
        origin = address.origin if address else None
        port = None if record.port == RUNTIME_PORT else record.port
        return Replica(id, generation, self._means, lambda: self._spec(record, setup, id), self.wake, origin, port)

    # What the data path asks

    def choose(self, session: str | None) -> Replica:
        """A healthy replica: the one that has the session, else the least busy."""
        replica = self._sessions.get(hash(session)) if session else None
        if replica is None or not replica.serves:
            ready = [replica for replica in self._here if replica.serves]
            if not ready:
                raise Unavailable(f"service {self.id!r} has no healthy replica at this moment")
            replica = min(ready, key=lambda one: (one.busy, one.turn))
            if session:
                if len(self._sessions) >= _MAX_SESSIONS:
                    del self._sessions[next(iter(self._sessions))]
                self._sessions[hash(session)] = replica
        self._turns += 1
        replica.turn = self._turns
        return replica

    def suspect(self, origin: Origin) -> None:
        for replica in self._here:
            if replica.is_at(origin):
                replica.suspect()

    # Making it so

    def wake(self) -> None:
        """Have it look again: the record, or a replica, has changed."""
        self._woken.set()

    async def run(self) -> None:
        """Until the service is deleted and gone. Cancelled, it leaves the replicas as they are."""
        async with self._tasks:
            while not await self._step():
                with contextlib.suppress(TimeoutError):
                    # Also without an event: another gateway may have changed the record.
                    async with asyncio.timeout(self._means.pace.check_every):
                        await self._woken.wait()

    async def close(self) -> None:
        """After `run` was cancelled: end what it has left."""
        await asyncio.gather(*(replica.destroy() for replica in (*self._here, *self._leaving)))

    async def _step(self) -> bool:
        """Come nearer to what the record says; True when there is nothing more to do, ever."""
        self._woken.clear()
        try:
            record = await self._records.find(self.id)
            if record and record.created_at != self._created_at:
                record = None  # it was deleted, and its name has a new service already
            if record is None or record.is_deleted:
                await self._end(record)
                return True
            await self._approach(record)
        except AEnvError as error:
            logger.warning("service %s waits: %s", self.id, error)
        except Exception:  # boundary: the store, and folders of storage; the next step tries again
            logger.exception("a step of service %s failed", self.id)
        return False

    async def _approach(self, record: ServiceRecord) -> None:
        for replica in self._here:
            replica.begin(self._tasks)
        generation = self._target(record)
        missing, surplus = plan(self._here, generation, record.replicas, overlap=record.storage is None)
        for replica in surplus:
            pace = self._means.pace
            self._let_go(replica, pace.drain_alone if record.storage else pace.drain)
        if record.storage and self._leaving:
            missing = 0  # two must not write to the same folder
        if missing:
            await self._add(generation, missing)
        if self._seen(record) != record:
            await self._records.change(self.id, self._seen, durable=False)

    def _target(self, record: ServiceRecord) -> int:
        """The generation to run. With storage an old one had to go first: if the new one fails, it comes back."""
        wanted, good = record.generation, record.good
        if record.storage is None or good is None or good == wanted:
            return wanted
        for replica in self._here:
            if replica.generation == wanted and replica.has_failed:
                self._given_up[wanted] = replica.reason or "it did not start"
        return good if wanted in self._given_up else wanted

    async def _add(self, generation: int, count: int) -> None:
        new = {wire.new_instance_id(self.id): generation for _ in range(count)}

        def add(record: ServiceRecord) -> ServiceRecord:
            return record if record.is_deleted else record.having(instances={**record.instances, **new})

        # Written first: the record names every instance that may have been started.
        record = await self._records.change(self.id, add, durable=False)
        for id in new.keys() & record.instances.keys():
            self._here.append(self._replica(record, id, generation))
            self._here[-1].begin(self._tasks)

    def _let_go(self, replica: Replica, drain: float) -> None:
        self._here.remove(replica)
        self._leaving[replica] = self._tasks.create_task(self._stop(replica, drain))

    async def _stop(self, replica: Replica, drain: float) -> None:
        await replica.stop(drain)
        del self._leaving[replica]
        self.wake()

    def _seen(self, record: ServiceRecord) -> ServiceRecord:
        known = {replica.id: replica.generation for replica in (*self._here, *self._leaving)}
        shown = self.shown(record)
        new = any(replica.serves and replica.generation == record.generation for replica in self._here)
        good = record.generation if new else record.good
        return shown.having(instances=known, good=good).without_old_setups()

    def shown(self, record: ServiceRecord) -> ServiceRecord:
        """The record with how it goes at this moment."""
        serving = [replica for replica in self._here if replica.serves]
        reasons = [self._given_up.get(record.generation), *(replica.reason for replica in self._here)]
        if not serving:
            failed = bool(self._here) and all(replica.has_failed for replica in self._here)
            status = ServiceStatus.FAILED if failed else ServiceStatus.CREATING
        else:
            current = [replica for replica in serving if replica.generation == record.generation]
            complete = len(current) >= record.replicas and len(self._here) == record.replicas
            status = ServiceStatus.RUNNING if complete else ServiceStatus.UPDATING
        ports = {replica.port_problem for replica in self._here if replica.port_problem}
        fixed = [line for line in record.not_enforced if not line.startswith("port: ")]
        return record.having(
            status=status,
            available=len(serving),
            reason=next((reason for reason in reasons if reason), None),
            not_enforced=(*fixed, *sorted(ports)),
        )

    async def _end(self, record: ServiceRecord | None) -> None:
        for replica in list(self._here):
            self._let_go(replica, drain=0.0)
        for replica in self._leaving:
            replica.hurry()
        await asyncio.gather(*self._leaving.values())
        if record and record.storage and record.delete_storage:
            await storage.remove(self._means.home, record.owner, record.storage)
        if record:
            await self._records.remove(record)


def plan(here: Sequence[Replica], generation: int, wanted: int, *, overlap: bool) -> tuple[int, list[Replica]]:
    """How many replicas of `generation` to start and which to stop now: one step towards so many of it.

    With `overlap` a new one is healthy before an old one stops, and at most one more than wanted runs meanwhile.
    Otherwise the old ones stop first.
    """
    new = sorted((one for one in here if one.generation == generation), key=lambda one: not one.serves)
    old = sorted((one for one in here if one.generation != generation), key=lambda one: one.serves)
    ready = sum(one.serves for one in new)
    leaving = old[: max(0, ready + len(old) - wanted)] if overlap else old
    staying = len(old) - len(leaving)
    room = wanted + bool(staying) - staying - len(new)
    return max(0, min(room, wanted - len(new))), [*leaving, *new[wanted:]]
