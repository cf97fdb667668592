"""A creation makes one instance, and owns its tasks, its undo, and the answer to those who wait for it.

Not here: which requests begin a creation, and which repeat one (`creator.py`).
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

from ...base import logs, mcp
from ...base.config import Project
from ...base.errors import AEnvError, Conflict, InvalidRequest, StartFailed, Unavailable, Unsupported
from ...base.limits import shortage, spell_bytes
from ...base.models import CreateInstance
from ...base.wire import EnvStatus
from ...engines.base import Address, Engine, LeadsToGateway, SharedByGateways, SharesWorkspaces, StartsSoon
from ..serving import job_steps
from ..serving.accounts import LOCAL, Caller
from ..serving.metrics import Metrics
from ..serving.named_secrets import Secrets
from ..serving.queue import Queue
from ..stores.base import Stale
from . import admission, secret_variables
from .catalog import Catalog
from .installed_version import explained
from .kinship import composed, granted
from .ledger import Ledger, check_fits
from .reclaim import Reclaim
from .records import Record
from .secret_variables import masked_create
from .specs import CheckedRequest, Conditions, instance_spec
from .states import Stored
from .supervised import Supervised
from .supervisor import Supervisor
from .this_gateway import ThisGateway
from .transitions import Transitions

if TYPE_CHECKING:
    from .warm_pools import WarmPools

logger = logging.getLogger("aenv.control.instances.creation")

_MAX_TOOLS_BYTES = 4 << 20


@dataclass(frozen=True)
class CreationMeans:
    """What creations work with, the same for all of a gateway."""

    engine: Engine
    catalog: Catalog
    ledger: Ledger
    transitions: Transitions
    supervisor: Supervisor
    queue: Queue
    metrics: Metrics
    reclaim: Reclaim
    warm_pools: WarmPools
    secrets: Secrets
    here: ThisGateway

    @cached_property
    def soon(self) -> float:
        """Seconds in which an instance runs as a rule; 0.0 where the engine does not say."""
        return self.engine.soon if isinstance(self.engine, StartsSoon) else 0.0


class _Withdrawn(Exception):
    """Another instance of the same batch was deleted before they were admitted."""


class Admittance:
    """The admission of all instances of one request: the environment is found, and there is room for them."""

    def __init__(
        self, instances: Sequence[Supervised], request: CreateInstance, caller: Caller, means: CreationMeans
    ) -> None:
        self._instances = instances
        self._request = request
        self._caller = caller
        self._means = means
        # One alone needs no task that others could wait for.
        self._task = asyncio.get_running_loop().create_task(self._admit()) if len(instances) > 1 else None

    async def admitted(self) -> tuple[CheckedRequest, Conditions]:
        """Return when they may be started; raises why they may not. May be asked once for each instance."""
        if self._task is None:
            return await self._admit()
        await asyncio.wait({self._task})
        if self._task.cancelled():
            raise _Withdrawn
        return self._task.result()

    async def withdraw(self) -> None:
        """Return when nothing of it is under way any more; fine when it is over."""
        if self._task is None:
            return  # it ended with the only creation that asked
        self._task.cancel()
        await asyncio.gather(self._task, return_exceptions=True)

    async def _admit(self) -> tuple[CheckedRequest, Conditions]:
        """Find the environment and wait for room; then all of them are in the ledger.

        But for one that meets no limit: it can be started at once, and is recorded meanwhile.
        """
        request, caller, means = self._request, self._caller, self._means
        records = [one.record for one in self._instances]
        began = time.perf_counter()
        project = await means.catalog.find(admission.ref_of(request), caller)
        checked = admission.check(request, project, means.here.rules)
        given = await secret_variables.resolve(
            means.secrets, request.environment_variables, project, records[0].owner, caller.account
        )
        here, whose = means.here, records[0].owner or ""
        conditions = Conditions(
            here.start_timeout,
            here.keep_history,
            tenant=whose if caller.account else "",
            owner=whose,
            secrets=given,
            ttl=admission.ttl_of(request, project),
            works_in=records[0].works_in,
        )
        admitted = checked, conditions
        if (project.grants or project.uses) and not isinstance(means.engine, LeadsToGateway):
            field = "grants" if project.grants else "uses"
            raise Unsupported(f"instances of the {means.engine.name} engine cannot use environments ('{field}')")
        if any(part.shares_workspace for part in project.uses):
            _check_sharing(means.engine, project)
        for record in records:
            admission.complete(record, request, project, means.here.rules)
            owner = record.owner if caller.account else LOCAL.user
            record.grants, record.parts = granted(project, owner), composed(project, owner)
            if record.part:  # it ends with the whole, and not before
                record.idle_timeout = None
            record.secrets = list(given.names)
        means.metrics.took("find", time.perf_counter() - began)
        limits = means.ledger.limits(records[0], caller.max_instances)
        check_fits(records, limits)
        if not limits and len(records) == 1:
            return admitted
        began = time.perf_counter()
        await means.queue.admit(
            records[0].owner or "",
            limits,
            lambda: means.transitions.record(*self._instances, limits=limits),
            admission.wait_of(request),
        )
        means.metrics.took("admit", time.perf_counter() - began)
        return admitted


class Creation:
    """One instance while it is created. It begins at once; when it is over, its instance has no creation."""

    def __init__(
        self, instance: Supervised, request: CreateInstance, admittance: Admittance, means: CreationMeans
    ) -> None:
        self.job_step: job_steps.JobStep = ""
        """What it is at."""
        self._instance = instance
        self._request = request
        self._admittance = admittance
        self._means = means
        self._runs = False
        """Whether the engine has made it, and must destroy it again if it is undone."""
        self._over: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._making = means.supervisor.start(instance, self._make())

    def step(self) -> str:
        """What it is at, in words for those who wait for it."""
        return self.job_step if isinstance(self.job_step, str) else self.job_step()

    async def over(self) -> None:
        """Return when the instance runs; raises why it does not. Leaving early does not cancel the creation."""
        await asyncio.wait({self._over})
        self._over.result()

    def cancel(self) -> None:
        """Undo it, as if it had never been asked for; `ended` of its instance is set when that is done."""
        self._means.transitions.undo(self._instance, EnvStatus.TERMINATED, "it was deleted while it started")
        self._making.cancel()
        self._means.supervisor.start(self._instance, self._undo())

    def close(self, error: Exception | None = None) -> None:
        """It is over, with this error; those who wait for it are told."""
        self._instance.creation = None
        if self._over.done():
            return
        if error is None:
            self._over.set_result(None)
        else:
            self._over.set_exception(error)
            self._over.exception()  # it has been looked at, even if no request waits for it any more

    # Making

    async def _make(self) -> None:
        record = self._instance.record
        logs.instance_id.set(record.id)
        began = time.perf_counter()
        try:
            checked, conditions = await self._admittance.admitted()
            with self._means.transitions.under_way():
                await self._record_running(await self._start_and_record(checked, conditions))
        except asyncio.CancelledError:
            if self._instance.is_live:  # not through `cancel`: the engine has given it up
                self.cancel()
            raise
        except Exception as error:  # boundary: the engine, and what the environment's code does to it
            await self._fail(error)
            return
        took = time.perf_counter() - began
        self._means.metrics.created(record.name, took)
        self._means.supervisor.look_after(self._instance)
        self.close()
        logger.info("instance of %s ready in %.0f ms", record.environment, 1e3 * took)

    async def _start_and_record(self, checked: CheckedRequest, conditions: Conditions) -> Address:
        """Both at once, unless it is recorded. One that runs soon is written only once.

        Where several gateways share the engine, the one that has written the record makes the instance.
        """
        if isinstance(self._means.engine, SharedByGateways) and self._instance.stored is not Stored.YES:
            await self._record_first()
        starting = asyncio.get_running_loop().create_task(self._start(checked, conditions))
        try:
            # It has asked for what it needs when the store is written to.
            if soon := self._means.soon:
                # In a crowd it waits for the others, and is worth one write all the same.
                await asyncio.wait({starting}, timeout=soon + self._means.transitions.delay)
            else:
                await asyncio.sleep(0)
            is_ready = starting.done() and not starting.cancelled() and starting.exception() is None
            if not is_ready and self._instance.stored is not Stored.YES:
                await self._record_first()
            return await asyncio.shield(starting)
        except BaseException:
            starting.cancel()
            await asyncio.wait({starting})  # the engine may have finished it all the same
            raise

    async def _record_first(self) -> None:
        began = time.perf_counter()
        await self._means.transitions.record(self._instance, limits={})
        self._means.metrics.took("admit", time.perf_counter() - began)

    async def _start(self, checked: CheckedRequest, conditions: Conditions) -> Address:
        means, record, request = self._means, self._instance.record, self._request
        began = time.perf_counter()
        prepared = await means.catalog.prepare(checked.project)
        record.requirements = prepared.requirements.name if prepared.requirements else ""
        record.runtime = prepared.runtime
        spec = instance_spec(record.id, checked, prepared, conditions)
        means.metrics.took("prepare", time.perf_counter() - began)
        if not (request.resources or request.network or request.datasource):  # then no spare instance is like it
            means.warm_pools.created(spec, checked.project)
        await means.reclaim.relieve()
        began = time.perf_counter()
        address = await masked_create(means.engine, spec)
        self._runs = True
        means.metrics.took("engine", time.perf_counter() - began)
        return address

    async def _record_running(self, address: Address) -> None:
        """StartFailed when what the instance says of itself cannot be recorded, or be said in a reply."""
        means, instance = self._means, self._instance
        began, is_new = time.perf_counter(), instance.stored is not Stored.YES
        try:
            _check_tools(address.tools)
            await means.transitions.run(instance, address, means.engine.isolation)
        except (InvalidRequest, ValueError) as error:
            message = f"what {instance.record.environment!r} says of its tools cannot be recorded: {error}"
            raise StartFailed(message) from None
        if is_new:
            means.metrics.took("admit", time.perf_counter() - began)

    # Failing and undoing

    async def _fail(self, error: Exception) -> None:
        instance, transitions = self._instance, self._means.transitions
        self._means.metrics.did("create", instance.record.name, "failure")
        answer = explained(self._answer(error))
        # Refused before anything was made; or to be repeated, and then nothing of this attempt may be in the way.
        is_repeatable = isinstance(answer, Unavailable) or isinstance(error, _Withdrawn)
        leave = transitions.undo if is_repeatable or instance.stored is not Stored.YES else transitions.end
        leave(instance, EnvStatus.FAILED, str(getattr(answer, "message", "the engine failed")))
        if instance.stored is not Stored.NO:
            logger.info("instance of %s failed to start", instance.record.environment)
        try:
            await self._clear()
        finally:
            self._means.supervisor.gone(instance)
            self.close(answer)

    def _answer(self, error: Exception) -> Exception:
        """What those who wait for the instance are told."""
        instance, engine = self._instance, self._means.engine.name
        if isinstance(error, _Withdrawn) or (isinstance(error, Stale) and instance.stored is Stored.YES):
            return has_ended(instance.record)  # one of its batch was deleted, or itself through another gateway
        if isinstance(error, AEnvError | Stale):
            return error
        if isinstance(error, OSError) and (short := shortage(error.errno)):
            logger.error("the %s engine had no more %s: %s", engine, short, error)
            return Unavailable(f"the host has no more {short} for another instance", retry_after=5)
        logger.error("the %s engine failed", engine, exc_info=error)
        return StartFailed(f"the {engine} engine failed; the gateway's log says why")

    async def _undo(self) -> None:
        await asyncio.wait({self._making})
        await self._admittance.withdraw()
        await self._clear()
        self._means.supervisor.gone(self._instance)
        self.close(has_ended(self._instance.record))

    async def _clear(self) -> None:
        """Destroy what was made, and tell the store what has become of it."""
        await self._means.supervisor.end_children(self._instance)
        if self._runs:
            await self._means.supervisor.destroy_quietly(self._instance.record.id)
        await self._means.transitions.settle(self._instance)


def has_ended(record: Record) -> Conflict:
    """For a request that asks for it again."""
    return Conflict(f"instance {record.id!r} has ended; create another one")


def _check_sharing(engine: Engine, project: Project) -> None:
    """Unsupported where its instances cannot work in one workspace."""
    field, instead = f"field 'uses.workspace' of '{project.ref}'", "leave it out, and pass files on by tools"
    if not isinstance(engine, SharesWorkspaces):
        raise Unsupported(f"instances of the {engine.name} engine cannot share a workspace ({field}); {instead}")
    if why := engine.why_no_shared_workspaces():
        raise Unsupported(f"instances cannot share a workspace here ({field}): {why}; or {instead}")


def _check_tools(tools: Sequence[Any]) -> None:
    """ValueError unless every reply that shows the instance can carry them. They are an instance's own words."""
    if not all(isinstance(tool, dict) for tool in tools):
        raise ValueError("a tool is not an object")
    if len(mcp.dumps(tools)) > _MAX_TOOLS_BYTES:
        raise ValueError(f"its tools take more than {spell_bytes(_MAX_TOOLS_BYTES)}")
