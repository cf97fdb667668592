"""Freezing: an instance without calls gets no CPU until its next call, which thaws it first.

Why no call ever waits for a frozen instance: a call counts itself before it looks whether the instance is frozen;
the freezer looks at that count and marks the instance in one step, with nothing awaited between. So either the
freezer sees the call, or the call sees the mark. A call that sees it waits for the lock, which the freezer holds
until the engine has answered, and only then thaws. Data workers are other processes: for these the freezer looks
at the count once more when it has frozen the instance (`board/seats.py`). Gateways that share a node do the same
through a lease in the store: one takes the lease, then thaws; the other freezes, then looks for the lease.
"""

from __future__ import annotations

import asyncio
import logging
import time

from ...base.errors import NotFound, Unavailable
from ...base.supervision import Tasks
from ...engines.base import Engine, Freeze
from .ledger import Ledger
from .supervised import Supervised
from .sweeper import Clock, Sweeper

logger = logging.getLogger("aenv.control.instances.freezing")

_PATIENCE = 5.0  # seconds for the engine: a group whose processes wait for a disk may take long to freeze
_AWAKE = 3600.0  # seconds without a call through another gateway after which an instance may be frozen here


class Freezing:
    """`async with`: watches instances inside. Where the engine cannot freeze, it does nothing."""

    def __init__(self, engine: Engine, ledger: Ledger, after: float, clock: Clock = time.monotonic) -> None:
        self.frozen: dict[str, Supervised] = {}
        """Those that are, the longest first."""
        self._engine = engine if isinstance(engine, Freeze) else None
        self._ledger = ledger
        self._after = after
        self._sweeper = Sweeper(clock)
        self._watched: dict[str, Supervised] = {}
        self._tasks = Tasks()

    async def __aenter__(self) -> Freezing:
        await self._tasks.__aenter__()
        return self

    async def __aexit__(self, *exc: object) -> None:
        await self._tasks.__aexit__(None, None, None)

    async def run(self) -> None:
        """Until cancelled."""
        await self._sweeper.run(self.check)

    def watch(self, instance: Supervised) -> None:
        """From now on it is frozen when it gets no call for long enough."""
        if self._engine and self.patience(instance):
            self._watched[instance.record.id] = instance
            self._look_later(instance)

    def forget(self, instance: Supervised) -> None:
        """It has ended, or is no longer ours."""
        self._watched.pop(instance.record.id, None)
        self.frozen.pop(instance.record.id, None)
        self._sweeper.forget(instance.record.id)

    def check(self, id: str) -> None:
        """For the sweeper. One that is awake always has one look ahead of it, or the task that freezes it."""
        instance = self._watched.get(id)
        if instance is None or instance.frozen_at is not None:
            return
        if self._is_idle(instance):
            self._tasks.create_task(self._freeze(instance), lambda _: self._look_later(instance))
        else:
            self._look_later(instance)

    async def awake(self, instance: Supervised) -> None:
        """Return when it runs; so it will, until the calls that are counted have ended. The caller's must be."""
        if instance.frozen_at is None or not instance.is_live:
            return
        # Not the caller's to cancel half-way: then it would not be known whether it runs.
        await asyncio.shield(self._tasks.create_task(self._thaw(instance)))
        if instance.frozen_at is not None and instance.is_live:
            raise Unavailable(f"instance {instance.record.id!r} was frozen, and could not be thawed")

    async def wake(self, id: str) -> None:
        """Thaw what another gateway may have frozen; fine when none has."""
        if self._engine is None:
            return
        try:
            async with asyncio.timeout(_PATIENCE):
                await self._engine.thaw(id)
        except NotFound:
            return  # it has just ended, as the caller will learn
        except Exception as error:  # boundary: the engine
            logger.exception("an instance could not be thawed")
            raise Unavailable(f"instance {id!r} may be frozen, and could not be thawed") from error

    async def keep_awake(self, id: str) -> None:
        """For one of another gateway of this node, before it is called. In this order, as above."""
        if self._engine:
            await self._ledger.keep_awake(id, _AWAKE)
            await self.wake(id)

    # When

    def patience(self, instance: Supervised) -> float:
        """Seconds without a call after which it is frozen; 0: never."""
        own = instance.record.freeze_after
        return self._after if own is None else own

    def _is_idle(self, instance: Supervised) -> bool:
        quiet_since = instance.last_used + self.patience(instance)
        return instance.is_live and not instance.is_called and quiet_since <= self._sweeper.now()

    def _look_later(self, instance: Supervised) -> None:
        since = self._sweeper.now() if instance.is_called else instance.last_used
        self._sweeper.add(since + self.patience(instance), instance.record.id)

    # How

    async def _freeze(self, instance: Supervised) -> None:
        async with instance.frost:
            if await self._is_used_elsewhere(instance):
                instance.used_at = self._sweeper.now()
            if self._is_idle(instance):
                instance.mark_frozen(time.time())  # before the engine is asked: see above
                await self._ask_to_freeze(instance)
            else:
                self._look_later(instance)

    async def _ask_to_freeze(self, instance: Supervised) -> None:
        assert self._engine
        self.frozen[instance.record.id] = instance
        try:
            async with asyncio.timeout(_PATIENCE):
                await self._engine.freeze(instance.record.id)
        except Exception:  # boundary: the engine
            if instance.is_live:
                logger.exception("an instance could not be frozen, and will not be")
            self._watched.pop(instance.record.id, None)
            await self._ask_to_thaw(instance)
            return
        _note(instance, "frozen")
        if instance.is_called or await self._is_used_elsewhere(instance):
            await self._ask_to_thaw(instance)

    async def _thaw(self, instance: Supervised) -> None:
        async with instance.frost:
            if instance.frozen_at is not None and instance.is_live:
                await self._ask_to_thaw(instance)

    async def _ask_to_thaw(self, instance: Supervised) -> None:
        try:
            await self.wake(instance.record.id)
        except Unavailable:
            return  # it counts as frozen: the next call tries again
        self.frozen.pop(instance.record.id, None)
        instance.mark_frozen(None)
        instance.used_at = self._sweeper.now()
        _note(instance, "thawed")
        if instance.record.id in self._watched:
            self._look_later(instance)

    async def _is_used_elsewhere(self, instance: Supervised) -> bool:
        try:
            return await self._ledger.is_kept_awake(instance.record.id)
        except Unavailable:
            return True  # what others may be calling is not frozen unasked


def _note(instance: Supervised, what: str) -> None:
    events = instance.record.events
    if what == "frozen" and [event["what"] for event in events[-2:]] == ["frozen", "thawed"]:
        instance.record.events = events[:-2]  # the last time is enough: a rollout has one after each of its steps
    instance.record.note(what)
