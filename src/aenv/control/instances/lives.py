"""Lives: the instances that this gateway looks after, from the first request until nothing of them is left.

It made them, or took them over. What other gateways must know too is in the ledger.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from collections.abc import Awaitable, Coroutine
from functools import partial
from typing import Any

from ...base import logs
from ...base.errors import StartFailed, Unavailable
from ...base.supervision import Tasks
from ...base.wire import EnvStatus
from ...engines.base import Address, Engine, NoticesEnds
from ..serving.metrics import Metrics
from ..serving.queue import Queue
from ..stores.base import Stale
from .freezing import Freezing
from .ledger import Ledger
from .life import Life
from .records import Record
from .sweeper import Sweeper

logger = logging.getLogger("aenv.control.instances.lives")


class Lives:
    """The lives by id. Leaving the `async with` ends them all, unless they were let go."""

    def __init__(
        self,
        engine: Engine,
        ledger: Ledger,
        sweeper: Sweeper,
        freezing: Freezing,
        queue: Queue,
        metrics: Metrics,
        gateway: str,
    ) -> None:
        self.by_id: dict[str, Life] = {}
        self.by_key: dict[tuple[str | None, str], Life] = {}
        """By owner and Idempotency-Key."""
        self.refusal: str | None = "the gateway is starting; its store has not answered yet"
        """Why no instance can be created now."""
        self.tasks = Tasks()
        self._engine = engine
        self._ledger = ledger
        self._sweeper = sweeper
        self._freezing = freezing
        self._queue = queue
        self._metrics = metrics
        self._gateway = gateway
        self._unsaved: dict[str, Life] = {}
        self._changed = asyncio.Event()

    async def __aenter__(self) -> Lives:
        await self.tasks.__aenter__()
        return self

    async def __aexit__(self, *exc: object) -> None:
        await self.close()
        await self.tasks.__aexit__(None, None, None)

    async def close(self, *, keep: bool = False) -> None:
        """End every instance and refuse new ones; with `keep`, leave those that run to the next gateway."""
        self.refusal = "the gateway is stopping"
        ending: list[Awaitable[None]] = []
        for life in list(self.by_id.values()):
            if keep and life.record.status is EnvStatus.RUNNING and not life.is_being_created:
                self.gone(life)
            elif life.is_live:
                ending.append(self.end(life, "the gateway stopped"))
        for error in await asyncio.gather(*ending, return_exceptions=True):
            if isinstance(error, Exception):  # boundary: one that cannot be ended must not keep the others
                logger.error("an instance could not be ended", exc_info=error)

    async def idle(self, seconds: float) -> None:
        """Return when there has been no instance for so long."""
        while True:
            self._changed.clear()
            try:
                async with asyncio.timeout(None if self.by_id else seconds):
                    await self._changed.wait()
            except TimeoutError:
                return

    def start(self, life: Life, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        """Do something for one life, in a task. What goes wrong with it ends this life as failed, and no other."""
        return self.tasks.create_task(work, partial(self._broke, life))

    def _broke(self, life: Life, error: Exception) -> None:
        reason = "the gateway failed to look after it; the gateway's log says why"
        life.error = life.error or StartFailed(reason)
        if life.is_live:
            self.start_ending(life, reason, EnvStatus.FAILED)
        elif not life.ended.is_set():  # its end itself went wrong
            self.gone(life)

    def add(self, life: Life) -> None:
        """From now on this gateway is asked about it."""
        record = life.record
        self.by_id[record.id] = life
        if record.key:
            self.by_key[record.owner, record.key] = life
        self._changed.set()

    # Looking after those that run

    async def take_over(self, record: Record, address: Address | None) -> Life | None:
        """Look after an instance that another gateway made; None when somebody has just changed its record.

        Recorded first: its own gateway, should it live, then leaves the record to us.
        """
        if record.status is EnvStatus.RUNNING:
            with contextlib.suppress(Unavailable):
                await self._freezing.wake(record.id)  # its last gateway may have frozen it, and told nobody
        record.address = address
        record.gateway = self._gateway
        try:
            await self._ledger.save(record)
        except Stale:
            return None
        life = Life(record, told=1)
        self.add(life)
        if record.status is EnvStatus.RUNNING:
            self.look_after(life)
        return life

    def look_after(self, life: Life) -> None:
        self._count(life)
        life.watcher = self.start(life, self._notice_end(life))
        life.used_at = self._sweeper.now()
        self.set_due(life)
        self._freezing.watch(life)

    def used(self, life: Life) -> None:
        """Somebody calls it."""
        life.used_at = self._sweeper.now()

    def _count(self, life: Life) -> None:
        life.counted = not life.counted
        experiment = life.record.labels.get("experiment", "")
        self._metrics.live(life.record.name, experiment, 1 if life.counted else -1)

    def update(self, life: Life, record: Record) -> None:
        """Its record was changed in the store. One that is ending stays so: the store does not know of it yet."""
        if life.is_live:
            life.record = record
            self.set_due(life)

    async def write_again(self, life: Life) -> None:
        """The store has lost its record, and it runs: then it is recorded, and counted, again."""
        logger.warning("the store had lost the record of instance %s; it was written again", life.record.id)
        with contextlib.suppress(Stale):  # somebody was faster
            await self._ledger.restore(life.record)

    def set_due(self, life: Life) -> None:
        now = self._sweeper.now()
        life.due = now + life.record.expires_at - time.time()
        self._sweeper.add(min(life.due, self._idle_due(life)), life.record.id)

    def _idle_due(self, life: Life) -> float:
        timeout = life.record.idle_timeout
        if not timeout:
            return life.due
        return (self._sweeper.now() if life.calls else life.used_at) + timeout

    async def _notice_end(self, life: Life) -> None:
        if not isinstance(self._engine, NoticesEnds):
            return
        try:
            reason = await self._engine.ended(life.record.id)
        except Exception:  # boundary: the engine; without its word the instance lives until its time is over
            logger.exception("the %s engine cannot tell when an instance ends", self._engine.name)
            return
        if life.is_live:
            self.start_ending(life, reason, EnvStatus.FAILED)

    def check(self, id: str) -> None:
        """For the sweeper: end what has expired, or was not used for too long."""
        life = self.by_id.get(id)
        now = self._sweeper.now()
        if life is None or not life.is_live:
            return
        if life.due <= now:
            self.start(life, self._expire(life))
        elif self._idle_due(life) <= now:
            self.start(life, self._end_idle(life))
        else:
            self._sweeper.add(min(life.due, self._idle_due(life)), id)

    async def _expire(self, life: Life) -> None:
        known = life.record.expires_at
        try:
            stored = await self._ledger.find(life.record.id)
        except Unavailable:
            stored = None  # what we know ourselves must do
        if life.record.expires_at != known:
            return  # renewed while we looked
        if stored and stored.expires_at > known:  # renewed through another gateway
            self.update(life, stored)
        elif life.is_live:
            self.start_ending(life, life.record.expiry)
            self._metrics.swept(ended=True)

    async def _end_idle(self, life: Life) -> None:
        since = life.used_at
        try:
            if await self._ledger.is_used_elsewhere(life.record.id):
                self.used(life)
        except Unavailable:
            self.used(life)  # who cannot ask does not end what others may be using
        if life.calls or life.used_at != since:
            self.check(life.record.id)
        elif life.is_live:
            self.start_ending(life, f"it was not used for {life.record.idle_timeout or 0:g} s")

    # Ending

    def abandon(self, life: Life) -> None:
        """Undo a creation that nobody was told about, or that somebody deleted before it was complete."""
        if life.abandoned or not life.is_live:
            return
        life.abandoned = True
        if life.creation is None or not life.creation.cancel():
            self.start_ending(life, "nobody waited for it")

    async def end(self, life: Life, reason: str) -> None:
        if life.is_being_created:
            self.abandon(life)
        elif life.is_live:
            self.start_ending(life, reason)
        await life.ended.wait()

    def start_ending(self, life: Life, reason: str, status: EnvStatus = EnvStatus.TERMINATED) -> None:
        life.record.become(status, reason)  # first, so that no request is sent there any more
        self.start(life, self._destroy(life))

    async def _destroy(self, life: Life) -> None:
        record = life.record
        logs.instance_id.set(record.id)
        async with life.frost:
            await self.destroy_quietly(record.id)
        await self.settle(life)
        self._metrics.did("delete", record.name)
        self.gone(life)
        logger.info("instance ended: %s", record.reason)

    async def destroy_quietly(self, id: str) -> None:
        try:
            await self._engine.destroy(id)
        except Exception:  # boundary: the engine; what it leaves is reaped when a gateway starts
            logger.exception("the %s engine could not end an instance", self._engine.name)
            self._metrics.swept(ended=False)

    async def settle(self, life: Life) -> None:
        """Tell the store of its end, or that it never was; while the store does not answer, `save_rest` will."""
        self._unsaved[life.record.id] = life
        try:
            await (self._ledger.forget(life.record) if life.abandoned else self._save_end(life.record))
        except Unavailable:
            return
        except Exception:  # boundary: the store; what it refuses once it refuses again, and others wait behind it
            logger.exception("the store refused the end of an instance; upkeep ends the record")
        self._unsaved.pop(life.record.id, None)

    async def _save_end(self, record: Record) -> None:
        while True:
            try:
                await self._ledger.save(record)
                return
            except Stale:
                stored = await self._ledger.find(record.id)
            if stored is None or not stored.is_live:
                return  # another gateway has ended it too
            if stored.gateway != record.gateway and record.status is EnvStatus.FAILED:
                return  # another gateway took it over to end it, and all that we did was to notice
            record.revision = stored.revision

    async def save_rest(self) -> None:
        """Write down what ended while the store did not answer."""
        for life in list(self._unsaved.values()):
            await self.settle(life)
            if self.is_unsaved(life):
                return

    def is_unsaved(self, life: Life) -> bool:
        """Whether the store could not be told of its end."""
        return life.record.id in self._unsaved

    def gone(self, life: Life) -> None:
        """Nothing of it is left, or it is no longer ours to look after."""
        self._freezing.forget(life)
        self._sweeper.forget(life.record.id)
        if life.watcher:
            life.watcher.cancel()
        if life.counted:
            self._count(life)
        self.by_id.pop(life.record.id, None)
        if life.record.key:
            self.by_key.pop((life.record.owner, life.record.key), None)
        life.ended.set()
        self._changed.set()
        self._queue.freed()
