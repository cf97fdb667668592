"""Creating instances: once however often they are asked for, and all of a batch or none."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Awaitable, Iterable, Sequence
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar

from ...base import logs, mcp, wire
from ...base.config import Project
from ...base.errors import AEnvError, Conflict, InvalidRequest, StartFailed, Unavailable
from ...base.limits import shortage, spell_bytes
from ...base.models import CreateInstance
from ...base.wire import EnvStatus
from ...engines.base import Address, Engine, InstanceSpec
from ..serving import doing
from ..serving.accounts import Caller
from ..serving.metrics import Metrics
from ..serving.named_secrets import Secrets
from ..serving.queue import Queue
from ..stores.base import Stale
from . import admission, secret_variables
from .catalog import Catalog
from .ledger import Ledger, check_fits, fingerprint
from .reclaim import Reclaim
from .records import Record
from .secret_variables import masked_create
from .supervised import Supervised
from .supervisor import Supervisor
from .this_gateway import ThisGateway

if TYPE_CHECKING:
    from .warmth import Warmth

logger = logging.getLogger("aenv.control.instances.creation")

T = TypeVar("T")
_Admitted = asyncio.Task[tuple[Project, InstanceSpec] | Exception]

_MAX_TOOLS_BYTES = 4 << 20
_ATTEMPTS = 20  # to create what others create and undo at the same time
_LOOK_AGAIN = 0.1  # seconds between looks at an instance that another gateway is creating


class Creator:
    """Makes instances of requests."""

    def __init__(
        self,
        engine: Engine,
        catalog: Catalog,
        ledger: Ledger,
        supervisor: Supervisor,
        queue: Queue,
        metrics: Metrics,
        here: ThisGateway,
        reclaim: Reclaim,
        warmth: Warmth,
        secrets: Secrets,
    ) -> None:
        self._engine = engine
        self._catalog = catalog
        self._ledger = ledger
        self._supervisor = supervisor
        self._queue = queue
        self._metrics = metrics
        self._here = here
        self._reclaim = reclaim
        self._warmth = warmth
        self._secrets = secrets

    async def create(
        self,
        request: CreateInstance,
        caller: Caller,
        *,
        id: str | None = None,
        key: str | None = None,
        checks: bool = False,
    ) -> Record:
        """Return the instance once it is ready. Asking again with the same `id` or `key` gives the same one.

        Cancelling leaves nothing behind, unless somebody else waits for the same instance. One that `checks` is
        made for a self-check, and counts for no quota.
        """
        for _ in range(_ATTEMPTS):
            # Who chooses the id is a client of ours, which sends the token that it gets. Published ones send none.
            asked = self._record(request, caller, id, key, demands_token=id is not None)
            asked.self_check = "own" if checks else ""
            instance = await self._known(asked) or self._begin([asked], request, caller)[0]
            try:
                return await self._delivered(instance)
            except Stale:
                if record := await self._made_elsewhere(asked):
                    return record
        raise Unavailable("the same instance is created and undone all the time; try again")

    async def create_many(self, request: CreateInstance, caller: Caller, ids: Sequence[str]) -> list[Record]:
        """Instances with these ids, all or none. Conflict when one of the ids is taken."""
        records = [self._record(request, caller, id, demands_token=True) for id in ids]
        for record in records:
            await self._known(record)  # one that is being undone is waited for
        for record in records:
            if self._begun(record):
                raise _taken(record.id)
        instances = self._begin(records, request, caller)
        try:
            outcomes = await asyncio.gather(*(_outcome(self._delivered(instance)) for instance in instances))
        except asyncio.CancelledError:
            for instance in instances:  # those that are ready, too: nobody was told of any
                self._supervisor.start(instance, self._supervisor.end(instance, "nobody waited for it"))
            raise
        failed = [outcome for outcome in outcomes if isinstance(outcome, Exception)]
        if failed:
            if isinstance(failed[0], Unavailable):  # its client repeats it, with the same ids
                for instance in instances:
                    self._supervisor.abandon(instance)
            await asyncio.gather(
                *(self._supervisor.end(instance, "another one of its batch failed") for instance in instances)
            )
            if isinstance(failed[0], Stale):  # of an instance that another gateway has, or that has ended
                raise _taken(failed[0].key)
            raise failed[0]
        return [instance.record for instance in instances]

    # Creating

    def _record(
        self,
        request: CreateInstance,
        caller: Caller,
        id: str | None = None,
        key: str | None = None,
        *,
        demands_token: bool,
    ) -> Record:
        owner = admission.owner_of(request, caller)
        return Record(
            id=id or wire.new_instance_id(admission.ref_of(request).name),
            node=self._here.node,
            gateway=self._here.name,
            fingerprint=fingerprint(request, owner),
            owner=owner,
            account=caller.account,
            demands_token=demands_token and caller.account is not None,
            labels=request.labels,
            key=key,
        )

    async def _known(self, asked: Record) -> Supervised | None:
        """The instance that the same request has begun here."""
        while instance := self._begun(asked):
            _check_same(asked, instance.record)
            if not instance.abandoned:
                return instance
            # A client whose connection broke asks again while its first attempt is being undone.
            await instance.ended.wait()
        return None

    def _begun(self, asked: Record) -> Supervised | None:
        if asked.key:
            return self._supervisor.by_key.get((asked.owner, asked.key))
        return self._supervisor.by_id.get(asked.id)

    def _begin(self, records: Sequence[Record], request: CreateInstance, caller: Caller) -> list[Supervised]:
        if self._supervisor.refusal:
            raise Unavailable(self._supervisor.refusal)
        instances = [Supervised(record, asked=(request, caller)) for record in records]
        doing.listen(partial(_tell, instances))
        tasks = self._supervisor.tasks
        admitted = tasks.create_task(
            _outcome(self._admit([instance.record for instance in instances], request, caller))
        )
        for instance in instances:
            self._supervisor.add(instance)
            instance.creation = self._supervisor.start(instance, self._create(instance, request, admitted))
            instance.creation.add_done_callback(partial(self._undo_if_cancelled, instance, admitted))
        return instances

    async def _admit(
        self, records: list[Record], request: CreateInstance, caller: Caller
    ) -> tuple[Project, InstanceSpec]:
        """Find the environment and wait for room; then all of them are in the ledger.

        But for one that meets no limit: it can be started at once, and is recorded meanwhile.
        """
        began = time.perf_counter()
        project = await self._catalog.find(admission.ref_of(request), caller)
        spec = admission.check(request, project, self._here.rules)
        if caller.account:
            spec = replace(spec, tenant=records[0].owner or "")
        given = await secret_variables.resolve(
            self._secrets, request.environment_variables, project, records[0].owner, caller.account
        )
        spec = given.added_to(spec)
        for record in records:
            admission.complete(record, request, project, self._here.rules)
            record.secrets = list(given.names)
        self._metrics.took("find", time.perf_counter() - began)
        limits = self._ledger.limits(records[0], caller.max_instances)
        check_fits(records, limits)
        if not limits and len(records) == 1:
            return project, spec
        began = time.perf_counter()
        await self._queue.admit(
            records[0].owner or "",
            limits,
            lambda: self._ledger.begin(*records, limits=limits),
            admission.wait_of(request),
        )
        self._metrics.took("admit", time.perf_counter() - began)
        return project, spec

    async def _create(self, instance: Supervised, request: CreateInstance, admitted: _Admitted) -> None:
        record = instance.record
        logs.instance_id.set(record.id)
        began = time.perf_counter()
        try:
            outcome = await asyncio.shield(admitted)
            if isinstance(outcome, Exception):
                raise outcome
            if record.revision:
                await self._record_start(record, await self._start(record, request, *outcome))
            else:
                await self._start_and_record(record, request, *outcome)
        except Exception as error:  # boundary: the engine, and what the environment's code does to it
            await self._fail(instance, error)
        else:
            self._metrics.did("create", record.name)
            self._supervisor.look_after(instance)
            logger.info("instance of %s ready in %.0f ms", record.environment, 1e3 * (time.perf_counter() - began))

    async def _start_and_record(
        self, record: Record, request: CreateInstance, project: Project, spec: InstanceSpec
    ) -> None:
        """Both at once; one that was made ahead runs before it is recorded. What cannot be recorded is ended."""
        starting = self._supervisor.tasks.create_task(_outcome(self._start(record, request, project, spec)))
        try:
            await asyncio.sleep(0)  # it has asked for what it needs when the store is written to
            began = time.perf_counter()
            if not starting.done() or isinstance(starting.result(), Exception):
                await self._ledger.begin(record, limits={})
                self._metrics.took("admit", time.perf_counter() - began)
            outcome = await asyncio.shield(starting)
            if isinstance(outcome, Exception):
                raise outcome
            recorded = bool(record.revision)
            await self._record_start(record, outcome)
            if not recorded:
                self._metrics.took("admit", time.perf_counter() - began)
        except BaseException:
            starting.cancel()
            await asyncio.wait({starting})
            if not starting.cancelled() and not isinstance(starting.result(), Exception):
                await self._supervisor.destroy_quietly(record.id)
            raise

    async def _record_start(self, record: Record, address: Address) -> None:
        """It runs. StartFailed when what the instance says of itself cannot be recorded, or be said in a reply."""
        record.run(address, self._engine.isolation)
        try:
            _check_tools(address.tools)
            await (self._ledger.save(record) if record.revision else self._ledger.begin(record, limits={}))
        except (InvalidRequest, ValueError) as error:
            message = f"what {record.environment!r} says of its tools cannot be recorded: {error}"
            raise StartFailed(message) from None

    async def _start(
        self, record: Record, request: CreateInstance, project: Project, spec: InstanceSpec
    ) -> Address:
        began = time.perf_counter()
        prepared = await self._catalog.prepare(project)
        record.layer = prepared.layer.name if prepared.layer else ""
        record.runtime = prepared.runtime
        spec = replace(
            prepared.added_to(spec),
            id=record.id,
            start_timeout=self._here.start_timeout,
            keep_history=self._here.keep_history,
        )
        self._metrics.took("prepare", time.perf_counter() - began)
        if not (request.resources or request.network or request.datasource):  # then it is like no blank one
            self._warmth.created(spec, project)
        await self._reclaim.relieve()
        began = time.perf_counter()
        address = await masked_create(self._engine, spec)
        self._metrics.took("engine", time.perf_counter() - began)
        return address

    async def _fail(self, instance: Supervised, error: Exception) -> None:
        record = instance.record
        self._metrics.did("create", record.name, "failure")
        if record.status is EnvStatus.RUNNING:  # it could not be recorded, so it must not be
            await self._supervisor.destroy_quietly(record.id)
        record.address = None  # what the instance said of itself may be why
        if isinstance(error, Stale) and record.revision:  # deleted through another gateway
            instance.error = _ended(record)
        elif isinstance(error, AEnvError | Stale):
            instance.error = error
        elif isinstance(error, OSError) and (short := shortage(error.errno)):
            logger.error("the %s engine had no more %s: %s", self._engine.name, short, error)
            error = instance.error = Unavailable(
                f"the host has no more {short} for another instance", retry_after=5
            )
        else:
            logger.error("the %s engine failed", self._engine.name, exc_info=error)
            instance.error = StartFailed(f"the {self._engine.name} engine failed; the gateway's log says why")
        # Refused before anything was made; or to be repeated, and then nothing of this attempt may be in the way.
        instance.abandoned = record.revision == 0 or isinstance(error, Unavailable)
        record.become(EnvStatus.FAILED, str(getattr(error, "message", "the engine failed")))
        if record.revision or isinstance(error, Unavailable):  # which may have been written all the same
            logger.info("instance of %s failed to start", record.environment)
            await self._supervisor.settle(instance)
        self._supervisor.gone(instance)

    def _undo_if_cancelled(self, instance: Supervised, admitted: _Admitted, creation: asyncio.Task[None]) -> None:
        if creation.cancelled():
            self._supervisor.start(instance, self._undo(instance, admitted))

    async def _undo(self, instance: Supervised, admitted: _Admitted) -> None:
        """A creation was cancelled: as if it had never been asked for."""
        admitted.cancel()
        await asyncio.wait({admitted})
        record = instance.record
        if record.status is EnvStatus.RUNNING:
            await self._supervisor.destroy_quietly(record.id)
        instance.abandoned = True
        record.become(EnvStatus.TERMINATED, "it was deleted while it started")
        await self._supervisor.settle(instance)
        self._supervisor.gone(instance)

    async def _delivered(self, instance: Supervised) -> Record:
        """Wait for a creation. The last who stops waiting takes it along, if nobody has been told of it."""
        instance.waiting += 1
        try:
            if instance.creation:  # there is none where it was taken over
                await asyncio.wait({instance.creation})
        except asyncio.CancelledError:
            if instance.waiting == 1 and not instance.delivered:
                self._supervisor.abandon(instance)
            raise
        finally:
            instance.waiting -= 1
        if instance.error:
            raise instance.error
        if instance.abandoned or not instance.is_live:
            raise _ended(instance.record)
        instance.told += 1
        return instance.record

    def not_delivered(self, records: Iterable[Record]) -> None:
        """The client that asked for them has gone without the answer: what no other client knows of is ended."""
        for record in records:
            instance = self._supervisor.by_id.get(record.id)
            if instance and instance.record.requested_at == record.requested_at:
                instance.lost += 1
                if not (instance.delivered or instance.waiting):
                    self._supervisor.abandon(instance)

    async def _made_elsewhere(self, asked: Record) -> Record | None:
        """The instance that another gateway makes, or made, for the same request; None when that was undone."""
        await self._supervisor.save_rest()  # what could not be written down is not to be waited for
        while True:
            id = await self._ledger.find_key(asked.owner, asked.key) if asked.key else asked.id
            record = await self._ledger.find(id) if id else None
            if record is None:
                if id and asked.key:  # the store has lost what it was for
                    await self._ledger.forget_key(asked.owner, asked.key)
                return None
            _check_same(asked, record)
            if record.begins_again:
                await self._ledger.forget(record)
                return None
            if record.status is EnvStatus.RUNNING:
                return record
            if record.status is EnvStatus.FAILED and not record.expires_at:
                raise StartFailed(record.reason or "it could not be started")
            if not record.is_live:
                raise _ended(record)
            await asyncio.sleep(_LOOK_AGAIN)  # the store tells nobody that a record has changed


def _ended(record: Record) -> Conflict:
    return Conflict(f"instance {record.id!r} has ended; create another one")


def _check_same(asked: Record, record: Record) -> None:
    if record.fingerprint != asked.fingerprint:
        # No details: whoever guessed an id, or repeats a key, learns nothing about the other request.
        known = "this Idempotency-Key was used before" if asked.key else f"instance {asked.id!r} exists already"
        raise Conflict(known)


def _check_tools(tools: Sequence[Any]) -> None:
    """ValueError unless every reply that shows the instance can carry them. They are an instance's own words."""
    if not all(isinstance(tool, dict) for tool in tools):
        raise ValueError("a tool is not an object")
    if len(mcp.dumps(tools)) > _MAX_TOOLS_BYTES:
        raise ValueError(f"its tools take more than {spell_bytes(_MAX_TOOLS_BYTES)}")


async def _outcome(work: Awaitable[T]) -> T | Exception:
    """What came of it, an error too, as a value that several tasks can share."""
    try:
        return await work
    except Exception as error:  # boundary: whoever waits for the outcome raises it
        return error


def _taken(id: str) -> Conflict:
    return Conflict(f"the instance id {id!r} is taken; choose another, or leave 'ids' out")


def _tell(instances: list[Supervised], step: doing.Step) -> None:
    for instance in instances:
        instance.doing = step
