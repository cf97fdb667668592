"""Creating instances: once however often they are asked for, and all of a batch or none."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Awaitable, Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar

from ...base import logs, mcp, wire
from ...base.errors import AEnvError, Conflict, InvalidRequest, StartFailed, Unavailable
from ...base.limits import shortage, spell_bytes
from ...base.models import CreateInstance
from ...base.wire import EnvStatus
from ...engines.base import Address, Engine
from ..serving import doing
from ..serving.accounts import Caller
from ..serving.metrics import Metrics
from ..serving.named_secrets import Secrets
from ..serving.queue import Queue
from ..stores.base import Stale
from . import admission, secret_variables
from .catalog import Catalog
from .ledger import Ledger, check_fits, fingerprint
from .life import Life
from .lives import Lives
from .reclaim import Reclaim
from .records import Record
from .secret_variables import masked_create
from .specs import CheckedRequest, Conditions, instance_spec

if TYPE_CHECKING:
    from .warmth import Warmth

logger = logging.getLogger("aenv.control.instances.creations")

T = TypeVar("T")
_Admitted = asyncio.Task[tuple[CheckedRequest, Conditions] | Exception]

_MAX_TOOLS_BYTES = 4 << 20
_ATTEMPTS = 20  # to create what others create and undo at the same time
_LOOK_AGAIN = 0.1  # seconds between looks at an instance that another gateway is creating


@dataclass(frozen=True)
class Place:
    """Where this gateway stands among others, and how it starts instances."""

    node: str
    """Whose engine it has: gateways of one node can end each other's instances."""
    gateway: str
    start_timeout: float = 60.0
    keep_history: bool = True
    rules: admission.Rules = admission.DEFAULT_RULES


class Creations:
    """Makes lives of requests."""

    def __init__(
        self,
        engine: Engine,
        catalog: Catalog,
        ledger: Ledger,
        lives: Lives,
        queue: Queue,
        metrics: Metrics,
        place: Place,
        reclaim: Reclaim,
        warmth: Warmth,
        secrets: Secrets,
    ) -> None:
        self._engine = engine
        self._catalog = catalog
        self._ledger = ledger
        self._lives = lives
        self._queue = queue
        self._metrics = metrics
        self._place = place
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
            life = await self._known(asked) or self._begin([asked], request, caller)[0]
            try:
                return await self._delivered(life)
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
        lives = self._begin(records, request, caller)
        try:
            outcomes = await asyncio.gather(*(_outcome(self._delivered(life)) for life in lives))
        except asyncio.CancelledError:
            for life in lives:  # those that are ready, too: nobody was told of any
                self._lives.start(life, self._lives.end(life, "nobody waited for it"))
            raise
        failed = [outcome for outcome in outcomes if isinstance(outcome, Exception)]
        if failed:
            if isinstance(failed[0], Unavailable):  # its client repeats it, with the same ids
                for life in lives:
                    self._lives.abandon(life)
            await asyncio.gather(*(self._lives.end(life, "another one of its batch failed") for life in lives))
            if isinstance(failed[0], Stale):  # of an instance that another gateway has, or that has ended
                raise _taken(failed[0].key)
            raise failed[0]
        return [life.record for life in lives]

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
            node=self._place.node,
            gateway=self._place.gateway,
            fingerprint=fingerprint(request, owner),
            owner=owner,
            account=caller.account,
            demands_token=demands_token and caller.account is not None,
            labels=request.labels,
            key=key,
        )

    async def _known(self, asked: Record) -> Life | None:
        """The life that the same request has begun here."""
        while life := self._begun(asked):
            _check_same(asked, life.record)
            if not life.abandoned:
                return life
            # A client whose connection broke asks again while its first attempt is being undone.
            await life.ended.wait()
        return None

    def _begun(self, asked: Record) -> Life | None:
        if asked.key:
            return self._lives.by_key.get((asked.owner, asked.key))
        return self._lives.by_id.get(asked.id)

    def _begin(self, records: Sequence[Record], request: CreateInstance, caller: Caller) -> list[Life]:
        if self._lives.refusal:
            raise Unavailable(self._lives.refusal)
        lives = [Life(record, asked=(request, caller)) for record in records]
        doing.listen(partial(_tell, lives))
        tasks = self._lives.tasks
        admitted = tasks.create_task(_outcome(self._admit([life.record for life in lives], request, caller)))
        for life in lives:
            self._lives.add(life)
            life.creation = self._lives.start(life, self._create(life, request, admitted))
            life.creation.add_done_callback(partial(self._undo_if_cancelled, life, admitted))
        return lives

    async def _admit(
        self, records: list[Record], request: CreateInstance, caller: Caller
    ) -> tuple[CheckedRequest, Conditions]:
        """Find the environment and wait for room; then all of them are in the ledger.

        But for one that meets no limit: it can be started at once, and is recorded meanwhile.
        """
        began = time.perf_counter()
        project = await self._catalog.find(admission.ref_of(request), caller)
        checked = admission.check(request, project, self._place.rules)
        given = await secret_variables.resolve(
            self._secrets, request.environment_variables, project, records[0].owner, caller.account
        )
        place, tenant = self._place, (records[0].owner or "") if caller.account else ""
        admitted = checked, Conditions(place.start_timeout, place.keep_history, tenant, given)
        for record in records:
            admission.complete(record, request, project, self._place.rules)
            record.secrets = list(given.names)
        self._metrics.took("find", time.perf_counter() - began)
        limits = self._ledger.limits(records[0], caller.max_instances)
        check_fits(records, limits)
        if not limits and len(records) == 1:
            return admitted
        began = time.perf_counter()
        await self._queue.admit(
            records[0].owner or "",
            limits,
            lambda: self._ledger.begin(*records, limits=limits),
            admission.wait_of(request),
        )
        self._metrics.took("admit", time.perf_counter() - began)
        return admitted

    async def _create(self, life: Life, request: CreateInstance, admitted: _Admitted) -> None:
        record = life.record
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
            await self._fail(life, error)
        else:
            self._metrics.did("create", record.name)
            self._lives.look_after(life)
            logger.info("instance of %s ready in %.0f ms", record.environment, 1e3 * (time.perf_counter() - began))

    async def _start_and_record(
        self, record: Record, request: CreateInstance, checked: CheckedRequest, conditions: Conditions
    ) -> None:
        """Both at once; one that was made ahead runs before it is recorded. What cannot be recorded is ended."""
        starting = self._lives.tasks.create_task(_outcome(self._start(record, request, checked, conditions)))
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
                await self._lives.destroy_quietly(record.id)
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
        self, record: Record, request: CreateInstance, checked: CheckedRequest, conditions: Conditions
    ) -> Address:
        began = time.perf_counter()
        prepared = await self._catalog.prepare(checked.project)
        record.layer = prepared.requirements.name if prepared.requirements else ""
        record.runtime = prepared.runtime
        spec = instance_spec(record.id, checked, prepared, conditions)
        self._metrics.took("prepare", time.perf_counter() - began)
        if not (request.resources or request.network or request.datasource):  # then it is like no spare one
            self._warmth.created(spec, checked.project)
        await self._reclaim.relieve()
        began = time.perf_counter()
        address = await masked_create(self._engine, spec)
        self._metrics.took("engine", time.perf_counter() - began)
        return address

    async def _fail(self, life: Life, error: Exception) -> None:
        record = life.record
        self._metrics.did("create", record.name, "failure")
        if record.status is EnvStatus.RUNNING:  # it could not be recorded, so it must not be
            await self._lives.destroy_quietly(record.id)
        record.address = None  # what the instance said of itself may be why
        if isinstance(error, Stale) and record.revision:  # deleted through another gateway
            life.error = _ended(record)
        elif isinstance(error, AEnvError | Stale):
            life.error = error
        elif isinstance(error, OSError) and (short := shortage(error.errno)):
            logger.error("the %s engine had no more %s: %s", self._engine.name, short, error)
            error = life.error = Unavailable(f"the host has no more {short} for another instance", retry_after=5)
        else:
            logger.error("the %s engine failed", self._engine.name, exc_info=error)
            life.error = StartFailed(f"the {self._engine.name} engine failed; the gateway's log says why")
        # Refused before anything was made; or to be repeated, and then nothing of this attempt may be in the way.
        life.abandoned = record.revision == 0 or isinstance(error, Unavailable)
        record.become(EnvStatus.FAILED, str(getattr(error, "message", "the engine failed")))
        if record.revision or isinstance(error, Unavailable):  # which may have been written all the same
            logger.info("instance of %s failed to start", record.environment)
            await self._lives.settle(life)
        self._lives.gone(life)

    def _undo_if_cancelled(self, life: Life, admitted: _Admitted, creation: asyncio.Task[None]) -> None:
        if creation.cancelled():
            self._lives.start(life, self._undo(life, admitted))

    async def _undo(self, life: Life, admitted: _Admitted) -> None:
        """A creation was cancelled: as if it had never been asked for."""
        admitted.cancel()
        await asyncio.wait({admitted})
        record = life.record
        if record.status is EnvStatus.RUNNING:
            await self._lives.destroy_quietly(record.id)
        life.abandoned = True
        record.become(EnvStatus.TERMINATED, "it was deleted while it started")
        await self._lives.settle(life)
        self._lives.gone(life)

    async def _delivered(self, life: Life) -> Record:
        """Wait for a creation. The last who stops waiting takes it along, if nobody has been told of it."""
        life.waiting += 1
        try:
            if life.creation:  # there is none where it was taken over
                await asyncio.wait({life.creation})
        except asyncio.CancelledError:
            if life.waiting == 1 and not life.delivered:
                self._lives.abandon(life)
            raise
        finally:
            life.waiting -= 1
        if life.error:
            raise life.error
        if life.abandoned or not life.is_live:
            raise _ended(life.record)
        life.told += 1
        return life.record

    def not_delivered(self, records: Iterable[Record]) -> None:
        """The client that asked for them has gone without the answer: what no other client knows of is ended."""
        for record in records:
            life = self._lives.by_id.get(record.id)
            if life and life.record.requested_at == record.requested_at:
                life.lost += 1
                if not (life.delivered or life.waiting):
                    self._lives.abandon(life)

    async def _made_elsewhere(self, asked: Record) -> Record | None:
        """The instance that another gateway makes, or made, for the same request; None when that was undone."""
        await self._lives.save_rest()  # what could not be written down is not to be waited for
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


def _tell(lives: list[Life], step: doing.Step) -> None:
    for life in lives:
        life.doing = step
