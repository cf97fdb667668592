"""The lives of instances: created once however often they are asked for, ended once for one reason.

Records are in memory: they, and the instances, live as long as the gateway does.
"""

from __future__ import annotations

import asyncio
import logging
import time

from .. import logs, refs, wire
from ..engines.base import Address, Engine, InstanceSpec, NoticesEnds
from ..errors import AEnvError, Conflict, NotFound, StartFailed, Unavailable
from ..models import CreateInstance
from ..wire import EnvStatus
from . import admission
from .catalog import Catalog
from .records import Record
from .selection import Selection
from .sweeper import Sweeper

logger = logging.getLogger("aenv.gateway.instances")

REMEMBERED = 3600.0  # seconds for which an instance that has ended can still be asked about


class Instances:
    """All instances of this gateway. Leaving the `async with` ends them all."""

    def __init__(self, engine: Engine, catalog: Catalog, sweeper: Sweeper, *, start_timeout: float) -> None:
        self.engine = engine
        self._catalog = catalog
        self._sweeper = sweeper
        self._start_timeout = start_timeout
        self._records: dict[str, Record] = {}
        self._by_key: dict[str, Record] = {}
        self._tasks = asyncio.TaskGroup()
        self._closed = False
        self._changed = asyncio.Event()

    async def __aenter__(self) -> Instances:
        await self._tasks.__aenter__()
        return self

    async def __aexit__(self, *exc: object) -> None:
        await self.close()
        await self._tasks.__aexit__(None, None, None)

    async def close(self) -> None:
        """End every instance and refuse new ones."""
        self._closed = True
        await asyncio.gather(*(self._end(record, "the gateway stopped") for record in self._live()))

    async def idle(self, seconds: float) -> None:
        """Return when there has been no instance for so long."""
        while True:
            self._changed.clear()
            try:
                async with asyncio.timeout(None if self._live() else seconds):
                    await self._changed.wait()
            except TimeoutError:
                return

    # What routes and proxy ask

    async def create(self, request: CreateInstance, *, id: str | None = None, key: str | None = None) -> Record:
        """Return the instance once it is ready. Asking again with the same `id` or `key` gives the same one.

        Cancelling leaves nothing behind, unless somebody else waits for the same instance.
        """
        record = await self._find_or_begin(request, id, key)
        assert record.creation
        record.waiting += 1
        try:
            await asyncio.wait({record.creation})
        except asyncio.CancelledError:
            if record.waiting == 1 and not record.delivered:
                self._abandon(record)
            raise
        finally:
            record.waiting -= 1
        if record.error:
            raise record.error
        if not record.is_live:
            raise Conflict(f"instance {record.id!r} has ended; create another one")
        record.delivered = True
        return record

    def get(self, id: str) -> Record:
        try:
            return self._records[id]
        except KeyError:
            raise NotFound(f"instance {id!r} not found") from None

    def address(self, id: str) -> Address:
        """Where to send data for `id`: only to one that runs."""
        record = self.get(id)
        if record.status is EnvStatus.CREATING:
            raise Unavailable(f"instance {id!r} is still starting")
        if record.address is None or not record.is_live:
            raise NotFound(f"instance {id!r} not found: it has ended: {record.reason}")
        return record.address

    def select(self, selection: Selection) -> list[Record]:
        """The instances that `selection` is about."""
        return selection.of(self._records.values())

    def renew(self, id: str, ttl: float) -> Record:
        """Let a running instance live for `ttl` seconds from now."""
        record = self.get(id)
        if record.status is not EnvStatus.RUNNING:
            raise Conflict(f"instance {id!r} is {record.status.lower()}; only one that runs can be renewed")
        record.live_for(ttl, self._sweeper.now())
        self._sweeper.add(record.due, record.id)
        return record

    async def delete(self, id: str) -> None:
        """Return once the instance is gone; fine when it has ended before."""
        await self._end(self.get(id), "deleted")

    async def delete_all(self, selection: Selection) -> int:
        """Return once all of them are gone; says how many they were."""
        chosen = self.select(selection)
        await asyncio.gather(*(self._end(record, "deleted") for record in chosen))
        return len(chosen)

    # Creating

    async def _find_or_begin(self, request: CreateInstance, id: str | None, key: str | None) -> Record:
        while record := self._known(request, id, key):
            if not record.abandoned:
                return record
            # A client whose connection broke asks again while its first attempt is being undone.
            await record.ended.wait()
        return self._begin(request, id, key)

    def _known(self, request: CreateInstance, id: str | None, key: str | None) -> Record | None:
        record = self._records.get(id) if id else self._by_key.get(key) if key else None
        if record and record.request != request:
            # No details: whoever guessed an id, or repeats a key, learns nothing about the other request.
            raise Conflict(f"instance {id!r} exists already" if id else "this Idempotency-Key was used before")
        return record

    def _begin(self, request: CreateInstance, id: str | None, key: str | None) -> Record:
        if self._closed:
            raise Unavailable("the gateway is stopping")
        project = self._catalog.find(refs.parse(request.env_name))
        id = id or wire.new_instance_id(project.name)
        record = Record(id, request, project, admission.ttl_of(request, project), key=key)
        spec = admission.spec_for(id, request, project, self._start_timeout)
        self._records[id] = record
        self._changed.set()
        if key:
            self._by_key[key] = record
        record.creation = self._tasks.create_task(self._create(record, spec))
        record.creation.add_done_callback(lambda task: self._undone(record) if task.cancelled() else None)
        return record

    async def _create(self, record: Record, spec: InstanceSpec) -> None:
        logs.instance_id.set(record.id)
        began = time.perf_counter()
        try:
            address = await self.engine.create(spec)
        except AEnvError as error:
            self._fail(record, error)
            logger.info("instance of %s failed to start", spec.environment)
        except Exception:  # boundary: the engine
            logger.exception("the %s engine failed", self.engine.name)
            self._fail(record, StartFailed(f"the {self.engine.name} engine failed; the gateway's log says why"))
        else:
            record.run(address, self._sweeper.now())
            record.watcher = self._tasks.create_task(self._notice_end(record))
            self._sweeper.add(record.due, record.id)
            logger.info("instance of %s ready in %.0f ms", spec.environment, 1e3 * (time.perf_counter() - began))

    def _fail(self, record: Record, error: AEnvError) -> None:
        record.error = error
        record.become(EnvStatus.FAILED, error.message)
        self._gone(record)

    def _abandon(self, record: Record) -> None:
        """Undo a creation that nobody was told about, or that somebody deleted before it was complete."""
        if record.abandoned or not record.is_live:
            return
        record.abandoned = True
        if record.creation and not record.creation.cancel():
            self._start_ending(record, "nobody waited for it")

    def _undone(self, record: Record) -> None:
        record.become(EnvStatus.TERMINATED, "it was deleted while it started")
        self._gone(record)

    # Ending

    async def _end(self, record: Record, reason: str) -> None:
        if record.status is EnvStatus.CREATING:
            self._abandon(record)
        elif record.is_live:
            self._start_ending(record, reason)
        await record.ended.wait()

    def _start_ending(self, record: Record, reason: str, status: EnvStatus = EnvStatus.TERMINATED) -> None:
        record.become(status, reason)  # first, so that no request is sent there any more
        self._tasks.create_task(self._destroy(record))

    async def _destroy(self, record: Record) -> None:
        logs.instance_id.set(record.id)
        try:
            await self.engine.destroy(record.id)
        except Exception:  # boundary: the engine; what it leaves is reaped when a gateway starts
            logger.exception("the %s engine could not end an instance", self.engine.name)
        if record.watcher:
            record.watcher.cancel()
        self._gone(record)
        logger.info("instance ended: %s", record.reason)

    def _gone(self, record: Record) -> None:
        record.ended.set()
        self._changed.set()
        if record.abandoned:
            self._forget(record)
        else:
            record.due = self._sweeper.now() + REMEMBERED
            self._sweeper.add(record.due, record.id)

    async def _notice_end(self, record: Record) -> None:
        if isinstance(self.engine, NoticesEnds):
            reason = await self.engine.ended(record.id)
            if record.is_live:
                self._start_ending(record, reason, EnvStatus.FAILED)

    # Time

    def check(self, id: str) -> None:
        """For the sweeper: end what has expired, forget what ended long ago."""
        record = self._records.get(id)
        if record is None or record.due > self._sweeper.now():
            return
        if record.is_live:
            self._start_ending(record, f"its time to live of {record.ttl:g} s was over")
        else:
            self._forget(record)

    def _forget(self, record: Record) -> None:
        self._records.pop(record.id, None)
        if record.key:
            self._by_key.pop(record.key, None)

    def _live(self) -> list[Record]:
        return [record for record in self._records.values() if record.is_live]
