"""Services: who may make, see, change and end them, and where their requests go.

Not here: keeping the replicas of one (`replicas.py`).
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from ...base import quantities, refs
from ...base.addresses import Origin
from ...base.config import Project
from ...base.errors import AEnvError, Conflict, NotFound, TooManyRequests, Unavailable, Unsupported, of_field
from ...base.http1 import Pool
from ...base.models import CreateInstance, CreateService, UpdateService
from ...base.supervision import Tasks
from ...base.wire import ServiceStatus
from ...engines.base import (
    STORAGE_PLACE,
    Address,
    Engine,
    InstanceSpec,
    KeepsServices,
    Logs,
    Measures,
    ResourceLimits,
    ResourceUsage,
)
from ..instances import admission, resources, secret_variables
from ..instances.catalog import Catalog
from ..instances.ledger import NO_QUOTAS, Quotas
from ..instances.specs import Conditions, instance_spec
from ..serving.accounts import Caller, Role
from ..serving.metrics import Metrics
from ..serving.named_secrets import Secrets, owner_key
from ..stores.base import LimitReached, Stale, Store
from . import requests, storage
from .engine_replicas import EngineReplicas
from .replica import Means, Pace
from .replicas import Replicas
from .service_records import ServiceRecord, ServiceRecords, Setup, storage_user

logger = logging.getLogger("aenv.control.services")

_PATIENCE = 60.0  # seconds that a delete is waited for; it goes on without a waiting request


@dataclass(frozen=True)
class _KeptService:
    replicas: Replicas
    task: asyncio.Task[None]


class ServiceSupervisor:
    """The services of all gateways on one store; this one looks after those that it made or adopted.

    Leaving the `async with` ends the replicas. The services stay: the next gateway starts them again.
    """

    def __init__(
        self,
        engine: Engine,
        catalog: Catalog,
        store: Store,
        metrics: Metrics,
        secrets: Secrets,
        *,
        node: str,
        home: Path,
        start_timeout: float,
        quotas: Quotas = NO_QUOTAS,
        pace: Pace | None = None,
        rules: admission.Rules = admission.DEFAULT_RULES,
    ) -> None:
        self._catalog = catalog
        self._records = ServiceRecords(store)
        self._metrics = metrics
        self._secrets = secrets
        self._node = node
        self._quotas = quotas
        self._home = home.expanduser().absolute()
        self._start_timeout = start_timeout
        self._rules = rules
        self._pool = Pool()
        self._means = Means(engine, self._pool, self._home, start_timeout, pace or Pace())
        self._kept: dict[str, _KeptService] = {}
        self._tasks = Tasks()
        self._following: asyncio.Task[None] | None = None
        self.refusal: str | None = "the gateway is starting; it has not taken over its services yet"
        """Why no service can be made now, and none be called that is not known here."""

    @property
    def any(self) -> bool:
        """Whether this gateway looks after a service."""
        return bool(self._kept)

    async def __aenter__(self) -> ServiceSupervisor:
        await self._tasks.__aenter__()
        if isinstance(self._means.engine, KeepsServices):
            self._following = self._tasks.keep("services of other gateways", self._follow)
        return self

    async def __aexit__(self, *exc: object) -> None:
        await self.close(keep=False)
        await self._tasks.__aexit__(None, None, None)
        await self._pool.close()

    async def close(self, *, keep: bool) -> None:
        """Look after no service any more; with `keep`, leave the replicas that run to the next gateway."""
        if self._following:
            self._following.cancel()
        self.refusal = "the gateway is stopping"
        kept, self._kept = self._kept, {}
        for one in kept.values():
            one.task.cancel()
        if kept:
            await asyncio.wait([one.task for one in kept.values()])
        if not keep:
            await asyncio.gather(*(one.replicas.close() for one in kept.values()))

    async def adopt(self, running: Mapping[str, Address]) -> set[str]:
        """Go on with the services of this node, of which these instances run. The ids of all their replicas.

        For a gateway that is alone on its node: two would look after the same replicas. May be repeated.
        """
        ids: set[str] = set()
        for record in await self._records.list(f"node={self._node}"):
            ids |= record.instances.keys()
            if record.id not in self._kept:
                self._keep(record, running)
        return ids

    async def _follow(self) -> None:
        """Where the engine looks after replicas, every gateway sends requests to those of all."""
        while True:
            await asyncio.sleep(self._means.pace.check_every)  # the store does not announce its changes
            if not self.refusal:
                with contextlib.suppress(AEnvError):  # the store does not answer now
                    await self.adopt({})

    # What routes ask

    async def create(self, request: CreateService, caller: Caller) -> ServiceRecord:
        """Return once it is recorded; its replicas start by themselves."""
        if self.refusal:
            raise Unavailable(self.refusal)
        variables = request.environment_variables or {}
        asked = CreateInstance(env_name=request.env_name, environment_variables=variables, owner=request.owner)
        amounts = requests.amounts_of(request)
        project, limits = await self._project(asked, amounts, caller)
        owner = admission.owner_of(asked, caller)
        secrets = await secret_variables.resolve(self._secrets, variables, project, owner, caller.account)
        kept = resources.allowed(
            amounts, project
        )  # for the others it follows its environment, also that of an update
        record = ServiceRecord(
            id=requests.id_of(request, project),
            owner=owner,
            account=caller.account,
            node=self._node,
            replicas=request.replicas or 1,
            setups={1: Setup(environment=str(project.ref), variables=variables, amounts=kept)},
            storage=requests.storage_of(request, project),
            mount_path=storage.check_place(request.mount_path) if request.mount_path else None,
            port=requests.check_port(request.port) if request.port else None,
            secrets=secrets.names,
            not_enforced=requests.unused_amounts(request, limits),
            **_amounts(limits),
        )
        requests.check(record)
        if isinstance(self._means.engine, KeepsServices):
            folder = storage.folder(self._home, owner, record.storage) if record.storage else None
            self._means.engine.check_service(record.id, folder)
        if record.storage and request.storage_size:
            record = await self._sized(record, quantities.size_bytes(request.storage_size))
        if record.storage and record.mount_path and not self._means.engine.isolation:
            why = "this engine shows instances the host's files; AENV_STORAGE says where the storage is"
            record = record.having(not_enforced=(*record.not_enforced, f"mount_path: {why}"))
        with self._counted("create", record.name), _as_refusals(record, await self._user_of(record)):
            # Not the client's to cancel half-way: what is recorded must also be looked after.
            adding = self._tasks.create_task(self._add(record, self._limits(record, caller)))
            if refusal := await asyncio.shield(adding):
                raise refusal
        return record

    async def get(self, id: str, caller: Caller) -> ServiceRecord:
        """NotFound also for a service of another owner."""
        record = await self._records.find(id)
        if record is None or record.is_deleted or not caller.owns(record.owner):
            raise NotFound(f"service {id!r} not found (404)")  # the published command line looks for both words
        return self._shown(record)

    async def list(self, which: str, caller: Caller) -> list[ServiceRecord]:
        """The caller's services, of all environments (`*`), of one name, or of one name@version; oldest first."""
        with of_field("envName"):
            ref = None if which == "*" else refs.parse(which)
        records = await self._records.list("all" if caller.is_admin else f"owner={caller.user}")
        return [
            self._shown(record)
            for record in records
            if not record.is_deleted and caller.owns(record.owner) and (ref is None or _is_of(record, ref))
        ]

    async def update(self, id: str, request: UpdateService, caller: Caller) -> ServiceRecord:
        """Return once the change is recorded; it is brought about without a pause."""
        before = await self.get(id, caller)
        version = requests.version_of(request, before.name)
        variables = request.environment_variables or {}
        environment = before.setup.environment
        amounts: dict[str, int] = {}
        secrets: tuple[str, ...] = before.secrets
        if version or variables:
            wanted = f"{before.name}@{version}" if version else environment
            asked = CreateInstance(env_name=wanted, environment_variables=variables)
            with of_field("version" if request.version else "image"):
                refs.parse(wanted)
            project, limits = await self._project(asked, before.setup.amounts, caller)
            amounts = _amounts(limits)
            environment = str(project.ref)
            merged = {**before.setup.variables, **variables}
            given = await secret_variables.resolve(self._secrets, merged, project, before.owner, before.account)
            secrets = (*secrets, *given.names)  # replicas of the setup before may have others

        def change(record: ServiceRecord) -> ServiceRecord:
            if record.is_deleted:
                raise NotFound(f"service {id!r} not found (404)")
            after = record if request.replicas is None else record.having(replicas=request.replicas)
            merged = {**record.setup.variables, **variables}
            # Also for the version that it has: a caller who names it wants it as it is now.
            if version or merged != record.setup.variables:
                after = after.renewed(environment if version else record.setup.environment, merged)
                after = after.having(**amounts, secrets=tuple(sorted({*record.secrets, *secrets})))
            requests.check(after)
            return record if after == record else after.having(status=ServiceStatus.UPDATING)

        with self._counted("update", before.name), _as_refusals(before):
            grows = (request.replicas is not None and request.replicas > before.replicas) or bool(amounts)
            record = await self._records.change(id, change, self._limits(before, caller) if grows else {})
        if kept := self._kept.get(id):
            kept.replicas.wake()
        return self._shown(record)

    async def delete(self, id: str, caller: Caller, *, delete_storage: bool) -> None:
        """Return once it is gone, if it is this gateway's; else once its gateway has been told."""
        before = await self.get(id, caller)

        def mark(record: ServiceRecord) -> ServiceRecord:
            return record.having(is_deleted=True, delete_storage=record.delete_storage or delete_storage)

        with self._counted("delete", before.name):
            await self._records.change(id, mark)
        if kept := self._kept.get(id):
            kept.replicas.wake()
            await asyncio.wait({kept.task}, timeout=_PATIENCE)

    async def logs(self, id: str, replica: str | None, caller: Caller, *, follow: bool) -> AsyncIterator[bytes]:
        """What a replica has printed, the first unless told; with `follow` also what comes, until it ends."""
        record, engine = await self.get(id, caller), self._means.engine
        known = list(record.instances)
        if not isinstance(engine, Logs):
            raise Unsupported(f"the {engine.name} engine cannot show logs")
        if not known or (replica and replica not in known):
            what = f"replica {replica!r}" if replica else "replica"
            raise NotFound(f"service {id!r} has no {what} now")
        if record.node != self._node:
            raise Unsupported(f"service {id!r} runs on another node; ask the gateway there")
        printed = engine.logs(replica or known[0], follow=follow)
        if not record.secrets:
            return printed
        return (await self._secrets.masks(owner_key(record.owner, record.account), record.secrets)).stream(printed)

    async def replicas(
        self, which: str, caller: Caller
    ) -> tuple[Sequence[tuple[ServiceRecord, str]], Mapping[str, ResourceUsage]]:
        """Services as `list` finds them, once for each replica with its id; and what those use that run here."""
        records = await self.list(which, caller)
        found = [(record, id) for record in records for id in record.instances]
        engine = self._means.engine
        here = [id for record, id in found if record.node == self._node]
        used = await engine.used(here) if isinstance(engine, Measures) else {}
        return found, used

    async def replica_ids(self) -> set[str]:
        """The ids of all replicas of this node, whichever gateway looks after them."""
        return {id for record in await self._records.list(f"node={self._node}") for id in record.instances}

    # What the data path asks

    def owner(self, id: str) -> str | None:
        return self._replicas(id).owner

    def origin(self, id: str) -> Origin:
        """Where a request for the service may go now."""
        with self.use(id) as origin:
            return origin

    @contextlib.contextmanager
    def use(self, id: str, session: str | None = None) -> Iterator[Origin]:
        """A request is under way inside, to a healthy replica; those of a session all to the same one.

        NotFound, or Unavailable while no replica is healthy.
        """
        with self._replicas(id).choose(session).used() as origin:
            yield origin

    def failed(self, id: str, origin: Origin) -> None:
        """Nothing could be sent to `origin`: it gets no requests until it has been checked."""
        if kept := self._kept.get(id):
            kept.replicas.suspect(origin)

    def _replicas(self, id: str) -> Replicas:
        if kept := self._kept.get(id):
            return kept.replicas
        raise Unavailable(self.refusal) if self.refusal else NotFound(f"service {id!r} not found (404)")

    # Looking after them

    async def _add(self, record: ServiceRecord, limits: Mapping[str, int]) -> Exception | None:
        try:
            await self._records.add(record, limits)
        except (Stale, LimitReached, AEnvError) as error:
            return error
        if not self.refusal:
            self._keep(record, {})
        return None

    def _keep(self, record: ServiceRecord, running: Mapping[str, Address]) -> None:
        engine = self._means.engine
        replicas = (
            EngineReplicas(record, self._means, self._records, self._spec, engine)
            if isinstance(engine, KeepsServices)
            else Replicas(record, running, self._means, self._records, self._spec)
        )
        self._kept[record.id] = _KeptService(replicas, self._tasks.create_task(self._run(replicas)))

    async def _run(self, replicas: Replicas) -> None:
        await replicas.run()
        kept = self._kept.get(replicas.id)
        if kept and kept.replicas is replicas:  # its name may have a new service already
            del self._kept[replicas.id]
        logger.info("service %s is gone", replicas.id)

    async def _spec(self, record: ServiceRecord, setup: Setup, id: str) -> InstanceSpec:
        # Whether its owner may run this was asked when they wanted it; a restart must not depend on it.
        project = await self._catalog.find(refs.parse(setup.environment), Caller(record.owner or "", Role.ADMIN))
        request = CreateInstance(
            env_name=setup.environment,
            environment_variables=setup.variables,
            resources=resources.allowed(setup.amounts, project),
        )
        given = await secret_variables.resolve(
            self._secrets, setup.variables, project, record.owner, record.account
        )
        checked = admission.check_request(request, project, self._rules)
        folder = storage.folder(self._home, record.owner, record.storage) if record.storage else None
        if folder and not isinstance(self._means.engine, KeepsServices):
            folder = await storage.place(self._means.engine, folder, record.storage_bytes)
        conditions = Conditions(
            self._start_timeout,
            # A service has many callers, and its routes are open to all of them: none may read another's calls.
            keep_history=False,
            tenant=record.owner or "",
            owner=record.owner or "",
            secrets=given,
            service=record.id,
            storage=folder,
            storage_place=record.mount_path or STORAGE_PLACE,
        )
        return instance_spec(id, checked, await self._catalog.prepare(project), conditions)

    async def _sized(self, record: ServiceRecord, size_bytes: int) -> ServiceRecord:
        """With the size of its storage, and why that does not hold where it does not."""
        folder = storage.folder(self._home, record.owner, record.storage or "")
        if isinstance(self._means.engine, KeepsServices):
            return record.model_copy(update={"storage_bytes": size_bytes})
        why = await asyncio.to_thread(storage.unlimited, self._means.engine, folder)
        not_enforced = (*record.not_enforced, *((f"storage_size: {why}",) if why else ()))
        return record.model_copy(update={"storage_bytes": size_bytes, "not_enforced": not_enforced})

    async def _project(
        self, asked: CreateInstance, amounts: Mapping[str, str], caller: Caller
    ) -> tuple[Project, ResourceLimits]:
        """The environment, and what a replica of it may use where these amounts are asked for."""
        admission.check_strings(asked)
        project = await self._catalog.find(admission.ref_of(asked), caller)
        if project.uses:
            raise Unsupported(
                f"'{project.ref}' is composed of other environments ('uses'), and a service cannot be"
            )
        asked = asked.model_copy(update={"resources": resources.allowed(amounts, project)})
        return project, admission.check(asked, project, self._rules).limits

    async def _user_of(self, record: ServiceRecord) -> str:
        """The service that has the storage which `record` wants, in words for its owner."""
        if not record.storage:
            return ""
        for other in await self._records.list(f"owner={record.owner or ''}"):
            if other.storage == record.storage and other.id != record.id:
                return f"service {other.id!r}"
        return "another service"

    def _limits(self, record: ServiceRecord, caller: Caller) -> dict[str, int]:
        """The totals that the service must leave intact; its replicas count as instances do."""
        limits = {storage_user(record): 1} if record.storage else {}
        totals = (
            ("instances", self._quotas.instances),
            ("cpu", self._quotas.cpu_milli if record.cpu_milli else None),
            ("memory", self._quotas.memory_bytes if record.memory_bytes else None),
        )
        limits |= {name: most for name, most in totals if most is not None}
        if caller.max_instances is not None and record.account and record.account == caller.account:
            limits[f"account={record.account}"] = caller.max_instances
        return limits

    def _shown(self, record: ServiceRecord) -> ServiceRecord:
        kept = self._kept.get(record.id)
        return kept.replicas.shown(record) if kept else record

    @contextlib.contextmanager
    def _counted(self, operation: str, name: str) -> Iterator[None]:
        try:
            yield
        except BaseException:
            self._metrics.did_to_service(operation, name, "failure")
            raise
        self._metrics.did_to_service(operation, name)


def _amounts(limits: ResourceLimits) -> dict[str, int]:
    """What a replica counts for."""
    return {"cpu_milli": round(1000 * (limits.cpus or 0)), "memory_bytes": limits.memory_bytes or 0}


def _is_of(record: ServiceRecord, ref: refs.Ref) -> bool:
    name, _, version = record.setup.environment.partition("@")
    return name == ref.name and ref.pick([version]) is not None


@contextlib.contextmanager
def _as_refusals(record: ServiceRecord, user: str = "another service") -> Iterator[None]:
    try:
        yield
    except Stale:
        raise Conflict(f"service {record.id!r} exists already; choose another name") from None
    except LimitReached as limit:
        if record.storage and limit.name == storage_user(record):
            raise Conflict(f"storage {record.storage!r} is in use by {user}") from None
        raise TooManyRequests(f"no room for the replicas of service {record.id!r}: {limit}") from None
