"""What is kept about a service: what was asked for, which instances are its replicas, and how it goes.

The record is all that a gateway needs to go on where another was killed. Not here: acting on it (`replicas.py`).
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from datetime import UTC, datetime
from types import MappingProxyType
from typing import Any

from pydantic import BaseModel, ConfigDict, Field

from ...base import refs
from ...base.errors import NotFound
from ...base.masks import MASK
from ...base.models import Env, EnvService, SecretReference
from ...base.wire import ServiceStatus, timestamp
from ..stores.base import Delete, Document, Put, Stale, Store, walk

_KIND = "services"


class Setup(BaseModel):
    """What a replica runs."""

    model_config = ConfigDict(frozen=True)

    environment: str
    """name@version, exactly."""
    variables: dict[str, str | SecretReference] = Field(default_factory=dict)
    amounts: dict[str, str] = Field(default_factory=dict)
    """What a replica may use, by the names of a create; for what is not here, as much as its environment says."""


class ServiceRecord(BaseModel):
    """One service, from its creation until nothing of it is left."""

    model_config = ConfigDict(frozen=True)

    id: str
    owner: str | None
    account: str | None
    node: str
    """Whose engine runs its replicas."""
    replicas: int
    generation: int = 1
    """Which of the setups is wanted; a change of version or variables is a new one."""
    setups: dict[int, Setup]
    good: int | None = None
    """The last generation of which a replica was healthy."""
    instances: dict[str, int] = Field(default_factory=dict)
    """The replicas and the generation of each: written before one is started, and until it is gone."""
    storage: str | None = None
    """The name of its storage folder."""
    storage_bytes: int | None = None
    """What it may hold, when it is made for this service."""
    mount_path: str | None = None
    """Where its replicas see the storage; None leaves that to the engine."""
    port: int | None = None
    """Where its replicas are called, if their environment serves there; None is their runtime."""
    cpu_milli: int = 0
    memory_bytes: int = 0
    """What a replica of its setup asks for, which counts for the capacity."""
    not_enforced: tuple[str, ...] = ()
    """Which of the amounts that were asked for do not hold here, each with the reason."""
    secrets: tuple[str, ...] = ()
    """The names of the secrets that its replicas get."""
    status: ServiceStatus = ServiceStatus.CREATING
    available: int = 0
    reason: str | None = None
    is_deleted: bool = False
    """Whether it only waits for its replicas to be gone."""
    delete_storage: bool = False
    created_at: float = Field(default_factory=time.time)
    updated_at: float = Field(default_factory=time.time)

    @property
    def setup(self) -> Setup:
        return self.setups[self.generation]

    @property
    def name(self) -> str:
        """The environment's."""
        return self.setup.environment.partition("@")[0]

    def having(self, **changes: Any) -> ServiceRecord:
        return self.model_copy(update=changes)

    def renewed(self, environment: str, variables: dict[str, str | SecretReference]) -> ServiceRecord:
        """A copy that wants another setup."""
        generation = self.generation + 1
        setup = self.setup.model_copy(update={"environment": environment, "variables": variables})
        return self.having(generation=generation, setups={**self.setups, generation: setup})

    def without_old_setups(self) -> ServiceRecord:
        """A copy that remembers no setup that nothing runs and nothing would go back to."""
        needed = {self.generation, self.good, *self.instances.values()}
        return self.having(setups={number: setup for number, setup in self.setups.items() if number in needed})


Change = Callable[[ServiceRecord], ServiceRecord]


class ServiceRecords:
    """The records of all gateways on one store."""

    def __init__(self, store: Store) -> None:
        self._store = store

    async def add(self, record: ServiceRecord, limits: Mapping[str, int]) -> None:
        """Stale when the id is taken, LimitReached when there is no room for it."""
        await self._store.write(_put(record, 0, limits))

    async def find(self, id: str) -> ServiceRecord | None:
        [document] = await self._store.get(_KIND, id)
        return _record(document) if document else None

    async def list(self, term: str) -> list[ServiceRecord]:
        """The services of `all`, `owner=…` or `node=…`, oldest first."""
        return [_record(document) async for document in walk(self._store, _KIND, term)]

    async def change(
        self, id: str, change: Change, limits: Mapping[str, int] = MappingProxyType({}), *, durable: bool = True
    ) -> ServiceRecord:
        """Apply `change` to what the record is now, and so never to half of a concurrent change."""
        while True:
            [document] = await self._store.get(_KIND, id)
            if document is None:
                raise NotFound(f"service {id!r} not found (404)")
            before = _record(document)
            after = change(before)
            if after == before:
                return before
            after = after.having(updated_at=time.time())
            with suppress(Stale):
                await self._store.write(_put(after, document.revision, limits), durable=durable)
                return after

    async def remove(self, record: ServiceRecord) -> None:
        """Remove it, and no newer one that has its name."""
        while True:
            [document] = await self._store.get(_KIND, record.id)
            if document is None or _record(document).created_at != record.created_at:
                return
            with suppress(Stale):
                await self._store.write(Delete(_KIND, record.id, document.revision))
                return


def describe(record: ServiceRecord, *, url: str) -> EnvService:
    ref = refs.parse(record.setup.environment)
    created = datetime.fromtimestamp(record.created_at, UTC)
    return EnvService(
        id=record.id,
        env=Env(
            id=f"{ref.name}-{ref.version}",
            name=ref.name,
            version=ref.version or "",
            created_at=created,
            updated_at=created,
        ),
        status=record.status,
        created_at=timestamp(record.created_at),
        updated_at=timestamp(record.updated_at),
        replicas=record.replicas,
        available_replicas=record.available,
        service_url=url,
        owner=record.owner,
        environment_variables=dict.fromkeys(record.setup.variables, MASK),
        pvc_name=record.storage,
        mount_path=record.mount_path if record.storage else None,
        port=record.port,
        instances=list(record.instances),
        not_enforced=record.not_enforced,
        reason=record.reason,
    )


def storage_user(record: ServiceRecord) -> str:
    """The total that says whether a storage folder is in use: one service at a time writes to it."""
    return f"storage={record.owner or ''}/{record.storage}"


def _put(record: ServiceRecord, revision: int, limits: Mapping[str, int]) -> Put:
    place = f"{record.created_at:017.6f}"
    terms = ("all", f"owner={record.owner or ''}", f"node={record.node}")
    counts = {"instances": record.replicas}
    counts |= {"cpu": record.replicas * record.cpu_milli, "memory": record.replicas * record.memory_bytes}
    if record.account:
        counts[f"account={record.account}"] = record.replicas
    if record.storage:
        counts[storage_user(record)] = 1
    return Put(
        _KIND,
        record.id,
        record.model_dump(mode="json"),
        revision=revision,
        terms=dict.fromkeys(terms, place),
        counts=counts,
        limits=limits,
    )


def _record(document: Document) -> ServiceRecord:
    return ServiceRecord.model_validate(document.value)
