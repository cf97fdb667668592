"""Transitions: the one place that changes the state of an instance and writes that down.

A move to RUNNING is written first and then made: no client hears of an instance that the next gateway would not
find. A move to ENDING or UNDOING is made first, so that no call is sent there any more; the store is told by
`settle` when the engine has destroyed the instance, or later when it does not answer.
"""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from functools import partial

from ...base.errors import Unavailable
from ...base.wire import EnvStatus
from ...engines.base import Address
from ..stores.base import LimitReached, Stale
from .instance_changes import InstanceChanges
from .ledger import Ledger
from .records import Record
from .states import State, Stored
from .supervised import Supervised

logger = logging.getLogger("aenv.control.instances.transitions")


_CROWD = 8  # instances that begin or end at the same time: then their records are written together
_TURN = 0.02  # seconds for which each of them keeps the others waiting, on two cores that others use as well
_LONGEST = 5.0  # seconds


class Transitions:
    """Those of the instances of one gateway."""

    def __init__(self, ledger: Ledger, changes: InstanceChanges | None = None) -> None:
        self._ledger = ledger
        self._changes = changes or InstanceChanges()
        self._under_way = 0
        self._unsaved: dict[Supervised, Callable[[], Awaitable[None]]] = {}
        """What the store could not be told yet. Not by id: several attempts at one may have ended meanwhile."""

    # Beginning

    @contextlib.contextmanager
    def under_way(self) -> Iterator[None]:
        """An instance is being created, or ended, inside."""
        self._under_way += 1
        try:
            yield
        finally:
            self._under_way -= 1

    @property
    def is_crowded(self) -> bool:
        """Whether so many begin or end that each of them waits for the others more than for its own."""
        return self._under_way >= _CROWD

    @property
    def delay(self) -> float:
        """Seconds by which one that begins now runs later than it would alone."""
        return min(_TURN * self._under_way, _LONGEST)

    async def record(self, *instances: Supervised, limits: Mapping[str, int]) -> None:
        """Write new records, all or none. LimitReached when there is no room for them, Stale when one exists."""
        with _recording(*instances):
            records = (one.record for one in instances)
            await self._ledger.begin(*records, limits=limits, gather=self.is_crowded and not limits)
        for one in instances:
            self._changes.tell(one.record)

    async def run(self, instance: Supervised, address: Address, isolation: Sequence[str]) -> None:
        """It serves at `address`. On failure it is what it was before."""
        instance.check_move(State.RUNNING)
        running = instance.record.started(address, isolation)
        if instance.stored is Stored.YES:
            await self._ledger.save(running, gather=self.is_crowded)
        else:
            with _recording(instance):
                await self._ledger.begin(running, limits={}, gather=self.is_crowded)
        instance.record = running
        instance.move(State.RUNNING)
        self._changes.tell(running)

    async def adopt(self, record: Record, gateway: str) -> Supervised | None:
        """From now on `gateway` supervises it; None when another gateway has just changed its record."""
        record.gateway = gateway
        try:
            await self._ledger.save(record)
        except Stale:
            return None
        return Supervised(record, Stored.YES, told=1)

    # Ending

    def end(self, instance: Supervised, status: EnvStatus, reason: str) -> None:
        """It ends, for good: the store will say how and why."""
        instance.move(State.ENDING)
        instance.record.become(status, reason)
        self._changes.tell(instance.record)

    def undo(self, instance: Supervised, status: EnvStatus, reason: str) -> None:
        """It ends as if it had never been asked for. Until it is gone, `reason` says why."""
        instance.move(State.UNDOING)
        instance.record.become(status, reason)
        self._changes.tell(instance.record)

    async def settle(self, instance: Supervised) -> None:
        """Tell the store of the end, or let it forget; while the store does not answer, `save_rest` will."""
        record = instance.record
        if instance.state is State.ENDING:
            await self._tell(instance, partial(self._save_end, record))
        elif instance.stored is not Stored.NO:
            await self._tell(instance, partial(self._ledger.forget, record))

    def renewed(self, record: Record) -> None:
        """Its time to live has changed, and is written."""
        self._changes.tell(record)

    def finish(self, instance: Supervised) -> None:
        """Nothing of it runs any more."""
        instance.move(State.ENDED)

    def release(self, instance: Supervised) -> None:
        """Leave it to the next gateway, as it runs."""
        instance.move(State.RELEASED)

    async def bury(self, record: Record, status: EnvStatus, reason: str) -> None:
        """End the record of an instance that has lost its gateway; left alone where one has just changed it."""
        self.end(Supervised(record, Stored.YES), status, reason)
        with contextlib.suppress(Stale):
            await self._ledger.save(record)

    # What the store could not be told

    async def save_rest(self) -> None:
        """Write down what ended while the store did not answer."""
        for instance, work in list(self._unsaved.items()):
            await self._tell(instance, work)
            if instance in self._unsaved:
                return

    def is_unsaved(self, instance: Supervised) -> bool:
        """Whether the store could not be told of its end."""
        return instance in self._unsaved

    async def _tell(self, instance: Supervised, work: Callable[[], Awaitable[None]]) -> None:
        self._unsaved[instance] = work  # before it is tried: it may be cancelled half-way
        try:
            await work()
        except Unavailable:
            return
        except Exception:  # boundary: the store; what it refuses once it refuses again, and others wait behind it
            logger.exception("the store refused the end of an instance; upkeep ends the record")
        self._unsaved.pop(instance, None)

    async def _save_end(self, record: Record) -> None:
        while True:
            try:
                await self._ledger.save(record, gather=self.is_crowded)
                return
            except Stale:
                stored = await self._ledger.find(record.id)
            if stored is None or not stored.is_live or stored.requested_at != record.requested_at:
                return  # another gateway has ended it too, and the id may have been used again
            if stored.gateway != record.gateway and record.status is EnvStatus.FAILED:
                return  # another gateway took it over to end it, and all that we did was to notice
            record.revision = stored.revision


@contextlib.contextmanager
def _recording(*instances: Supervised) -> Iterator[None]:
    """A first write of them is under way inside."""
    _note(instances, Stored.PERHAPS)
    try:
        yield
    except (LimitReached, Stale):  # then nothing was written
        _note(instances, Stored.NO)
        raise
    _note(instances, Stored.YES)


def _note(instances: Sequence[Supervised], stored: Stored) -> None:
    for one in instances:
        one.stored = stored
