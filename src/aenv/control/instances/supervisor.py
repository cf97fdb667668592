"""The supervisor: looks after the instances of this gateway, from the first request until nothing of them is left.

This gateway made them, or took them over. What other gateways must know too is in the ledger.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from collections.abc import Awaitable, Coroutine, Iterator, Mapping
from functools import partial
from typing import Any

from ...base import logs
from ...base.errors import StartFailed, Unavailable
from ...base.supervision import Tasks
from ...base.wire import EnvStatus
from ...engines.base import Address, Engine, NoticesEnds
from ..board.seats import Seats
from ..serving.metrics import Metrics
from ..serving.queue import Queue
from ..stores.base import Stale
from .freezing import Freezing
from .ledger import Ledger
from .records import Record
from .states import State
from .supervised import Supervised
from .sweeper import Sweeper
from .transitions import Transitions

logger = logging.getLogger("aenv.control.instances.supervisor")

_WITH_PARENT = "the instance that made it has ended"


class Supervisor(Mapping[str, Supervised]):
    """The supervised instances by id. Leaving the `async with` ends them all, unless they were released."""

    def __init__(
        self,
        engine: Engine,
        ledger: Ledger,
        transitions: Transitions,
        sweeper: Sweeper,
        freezing: Freezing,
        queue: Queue,
        metrics: Metrics,
        gateway: str,
        seats: Seats,
    ) -> None:
        self.refusal: str | None = "the gateway is starting; its store has not answered yet"
        """Why no instance can be created now."""
        self._by_id: dict[str, Supervised] = {}
        self._by_key: dict[tuple[str | None, str], Supervised] = {}
        """By owner and Idempotency-Key."""
        self._tasks = Tasks()
        self._engine = engine
        self._notices = engine if isinstance(engine, NoticesEnds) else None  # asked once: it takes a while
        self._ledger = ledger
        self._transitions = transitions
        self._sweeper = sweeper
        self._freezing = freezing
        self._queue = queue
        self._metrics = metrics
        self._gateway = gateway
        self._seats = seats
        self._changed = asyncio.Event()

    async def __aenter__(self) -> Supervisor:
        await self._tasks.__aenter__()
        return self

    async def __aexit__(self, *exc: object) -> None:
        await self.close()
        await self._tasks.__aexit__(None, None, None)

    def __getitem__(self, id: str) -> Supervised:
        return self._by_id[id]

    def __iter__(self) -> Iterator[str]:
        return iter(self._by_id)

    def __len__(self) -> int:
        return len(self._by_id)

    def of_key(self, owner: str | None, key: str) -> Supervised | None:
        """The instance that a request of `owner` with this Idempotency-Key began."""
        return self._by_key.get((owner, key))

    async def close(self, *, keep: bool = False) -> None:
        """End every instance and refuse new ones; with `keep`, leave those that run to the next gateway."""
        self.refusal = "the gateway is stopping"
        ending: list[Awaitable[None]] = []
        for instance in list(self.values()):
            if keep and instance.state is State.RUNNING:
                self._transitions.release(instance)
                self._drop(instance)
            elif instance.is_live:
                ending.append(self.end(instance, "the gateway stopped"))
        for error in await asyncio.gather(*ending, return_exceptions=True):
            if isinstance(error, Exception):  # boundary: one that cannot be ended must not keep the others
                logger.error("an instance could not be ended", exc_info=error)

    async def idle(self, seconds: float) -> None:
        """Return when there has been no instance for so long."""
        while True:
            self._changed.clear()
            try:
                async with asyncio.timeout(None if self._by_id else seconds):
                    await self._changed.wait()
            except TimeoutError:
                return

    def start(self, instance: Supervised, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        """Do something for one instance, in a task. An error ends this instance as failed, and no other."""
        return self._tasks.create_task(work, partial(self._broke, instance))

    def _broke(self, instance: Supervised, error: Exception) -> None:
        reason = "the gateway failed to look after it; the gateway's log says why"
        if instance.creation:
            instance.creation.close(StartFailed(reason))
        if instance.is_live:
            self.start_ending(instance, reason, EnvStatus.FAILED)
        elif not instance.ended.is_set():  # its end itself went wrong
            self.gone(instance)

    def add(self, instance: Supervised) -> None:
        """From now on this gateway is asked about it."""
        record = instance.record
        self._by_id[record.id] = instance
        if record.key:
            self._by_key[record.owner, record.key] = instance
        self._changed.set()

    # Looking after those that run

    async def take_over(self, record: Record, address: Address | None) -> None:
        """Supervise an instance that another gateway made, unless another gateway has just changed its record.

        Recorded first: its own gateway, should it live, then leaves the record to us.
        """
        if record.status is EnvStatus.RUNNING:
            with contextlib.suppress(Unavailable):
                await self._freezing.wake(record.id)  # its last gateway may have frozen it, and told no other
        record.address = address
        instance = await self._transitions.adopt(record, self._gateway)
        if instance is None:
            return
        self.add(instance)
        if instance.state is State.RUNNING:
            self.look_after(instance)

    def look_after(self, instance: Supervised) -> None:
        """It runs: notice when it ends by itself, expires, or is not used."""
        self._count(instance)
        instance.watcher = self.start(instance, self._notice_end(instance))
        instance.used_at = self._sweeper.now()
        self._seat(instance)
        self.set_due(instance)
        self._freezing.watch(instance)

    def _seat(self, instance: Supervised) -> None:
        """Let data workers call it."""
        record = instance.record
        instance.seat = self._seats.give(
            record.id,
            record.address.origin.socket if record.address else None,
            demands_token=record.demands_token,
            self_check=bool(record.self_check),
        )

    def used(self, instance: Supervised) -> None:
        """A client calls it."""
        instance.used_at = self._sweeper.now()

    def _count(self, instance: Supervised) -> None:
        instance.counted = not instance.counted
        experiment = instance.record.labels.get("experiment", "")
        self._metrics.live(instance.record.name, experiment, 1 if instance.counted else -1)

    def update(self, instance: Supervised, record: Record) -> None:
        """Its record was changed in the store. One that is ending stays so: the store does not know of it yet."""
        if instance.is_live:
            instance.record = record
            self.set_due(instance)

    async def write_again(self, instance: Supervised) -> None:
        """The store has lost its record, and it runs: then it is recorded, and counted, again."""
        logger.warning("the store had lost the record of instance %s; it was written again", instance.record.id)
        with contextlib.suppress(Stale):  # another task was faster
            await self._ledger.restore(instance.record)

    def set_due(self, instance: Supervised) -> None:
        now = self._sweeper.now()
        instance.due = now + instance.record.expires_at - time.time()
        self._sweeper.add(min(instance.due, self._idle_due(instance)), instance.record.id)

    def _idle_due(self, instance: Supervised) -> float:
        timeout = instance.record.idle_timeout
        if not timeout:
            return instance.due
        return (self._sweeper.now() if instance.is_called else instance.last_used) + timeout

    async def _notice_end(self, instance: Supervised) -> None:
        if self._notices is None:
            return
        try:
            reason = await self._notices.ended(instance.record.id)
        except Exception:  # boundary: the engine; without its word the instance lives until its time is over
            logger.exception("the %s engine cannot tell when an instance ends", self._engine.name)
            return
        if instance.is_live:
            self.start_ending(instance, reason, EnvStatus.FAILED)

    def check(self, id: str) -> None:
        """For the sweeper: end what has expired, or was not used for too long."""
        instance = self.get(id)
        now = self._sweeper.now()
        if instance is None or not instance.is_live:
            return
        if instance.due <= now:
            self.start(instance, self._expire(instance))
        elif self._idle_due(instance) <= now:
            self.start(instance, self._end_idle(instance))
        else:
            self._sweeper.add(min(instance.due, self._idle_due(instance)), id)

    async def _expire(self, instance: Supervised) -> None:
        known = instance.record.expires_at
        try:
            stored = await self._ledger.find(instance.record.id)
        except Unavailable:
            stored = None  # what we know ourselves must do
        if instance.record.expires_at != known:
            return  # renewed while we looked
        if stored and stored.expires_at > known:  # renewed through another gateway
            self.update(instance, stored)
        elif instance.is_live:
            self.start_ending(instance, instance.record.expiry)
            self._metrics.swept(ended=True)

    async def _end_idle(self, instance: Supervised) -> None:
        since = instance.last_used
        try:
            if await self._ledger.is_used_elsewhere(instance.record.id):
                self.used(instance)
        except Unavailable:
            self.used(instance)  # what others may be using is not ended unasked
        if instance.seat:
            instance.seat.withdraw()  # and then look: a worker counts its call before it looks for the seat
        if instance.is_called or instance.last_used != since:
            if instance.seat and instance.is_live:
                instance.seat.restore()
            self.check(instance.record.id)
        elif instance.is_live:
            self.start_ending(instance, f"it was not used for {instance.record.idle_timeout or 0:g} s")

    # Ending

    def abandon(self, instance: Supervised) -> None:
        """Undo an instance that no client was told of, or that was deleted before it was complete."""
        if instance.is_being_created:
            assert instance.creation
            instance.creation.cancel()
        elif instance.is_live:
            self._transitions.undo(instance, EnvStatus.TERMINATED, "no client waited for it")
            self.start(instance, self._destroy(instance))

    async def end(self, instance: Supervised, reason: str) -> None:
        """Return when nothing of it is left."""
        if instance.is_being_created:
            self.abandon(instance)
        elif instance.is_live:
            self.start_ending(instance, reason)
        await instance.ended.wait()

    def start_ending(self, instance: Supervised, reason: str, status: EnvStatus = EnvStatus.TERMINATED) -> None:
        """End one that lives; `ended` is set when nothing of it is left."""
        self._transitions.end(instance, status, reason)
        self.start(instance, self._destroy(instance))

    async def _destroy(self, instance: Supervised) -> None:
        record = instance.record
        logs.instance_id.set(record.id)
        with self._transitions.under_way():
            if record.may_have_children:
                await asyncio.gather(self._end_quietly(instance), self.end_children(instance))
            else:
                await self._end_quietly(instance)
            await self._transitions.settle(instance)
        self._metrics.did("delete", record.name)
        self.gone(instance)
        logger.info("instance ended: %s", record.reason)

    async def _end_quietly(self, instance: Supervised) -> None:
        async with instance.frost:
            await self.destroy_quietly(instance.record.id)

    def has_parent(self, record: Record) -> bool:
        """Whether the instance that made it lives here; as it must, unless a client made it."""
        return not record.parent or ((parent := self.get(record.parent)) is not None and parent.is_live)

    async def end_children(self, instance: Supervised) -> None:
        """Return when nothing is left of the instances that it has made."""
        if not instance.record.may_have_children:
            return
        children = [one for one in self.values() if one.record.parent == instance.record.id]
        await asyncio.gather(*(self.end(one, _WITH_PARENT) for one in children))

    def end_orphans(self) -> None:
        """End those whose parent has ended while no gateway looked after them."""
        for instance in list(self.values()):
            if instance.is_live and not self.has_parent(instance.record):
                self.start(instance, self.end(instance, _WITH_PARENT))

    async def destroy_quietly(self, id: str) -> None:
        """Have the engine destroy it. Errors are logged: what is left is reaped when a gateway starts."""
        try:
            await self._engine.destroy(id)
        except Exception:  # boundary: the engine
            logger.exception("the %s engine could not end an instance", self._engine.name)
            self._metrics.swept(ended=False)

    def gone(self, instance: Supervised) -> None:
        """Nothing of it is left."""
        self._transitions.finish(instance)
        self._drop(instance)

    def _drop(self, instance: Supervised) -> None:
        self._freezing.forget(instance)
        self._sweeper.forget(instance.record.id)
        if instance.watcher:
            instance.watcher.cancel()
        if instance.counted:
            self._count(instance)
        self._by_id.pop(instance.record.id, None)
        if instance.record.key:
            self._by_key.pop((instance.record.owner, instance.record.key), None)
        instance.ended.set()
        self._changed.set()
        self._queue.freed()
