"""The ledger: the records of instances in the store, with the lists they stand in and what they count for."""

from __future__ import annotations

import contextlib
import hashlib
import logging
import time
from collections import Counter
from collections.abc import AsyncIterator, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

from ...base.errors import NotFound, TooManyRequests
from ...base.models import CreateInstance
from ...base.wire import EnvStatus
from ..stores.base import Delete, Document, Put, SharedStore, Stale
from ..stores.checks import cursor
from .records import Record
from .selection import Selection

logger = logging.getLogger("aenv.control.instances.ledger")

_KIND = "instances"
_KEYS = "idempotency-keys"
_NODES = "nodes"
_BATCH = 200
REMEMBERED = 3600.0  # seconds for which an instance that has ended can still be asked about


@dataclass(frozen=True)
class Quotas:
    """How many instances there may be, and how much they may ask for together; None sets no limit."""

    instances: int | None = None
    cpu_milli: int | None = None
    memory_bytes: int | None = None
    by_label: Mapping[str, int] = field(default_factory=dict)
    """For each value of a label, as in {"experiment": 100}."""

    def limits(self, record: Record, account_limit: int | None) -> dict[str, int]:
        """The totals that a new instance must leave intact."""
        limits = {
            "instances": self.instances,
            "cpu": self.cpu_milli if record.cpu_milli else None,
            "memory": self.memory_bytes if record.memory_bytes else None,
            f"account={record.account}": account_limit,
        }
        for label, most in self.by_label.items():
            if label in record.labels:
                limits[f"label={label}={record.labels[label]}"] = most
        return {name: limit for name, limit in limits.items() if limit is not None}


NO_QUOTAS = Quotas()


class Ledger:
    """The records of all gateways on one store."""

    def __init__(self, store: SharedStore, quotas: Quotas) -> None:
        self._store = store
        self._quotas = quotas

    def limits(self, record: Record, account_limit: int | None) -> dict[str, int]:
        """The totals that `record`, once begun, must not exceed."""
        if record.self_check == "own":  # what waits for it may be what fills the quota
            return {}
        return self._quotas.limits(record, account_limit)

    async def begin(self, *records: Record, limits: Mapping[str, int], gather: bool = False) -> None:
        """Write new records, all or none. LimitReached when there is no room for them, Stale when one exists.

        With `gather`, here and elsewhere, together with others that are written within milliseconds.
        """
        changes: list[Put | Delete] = []
        for record in records:
            record.revision = 0
            changes.append(self._put(record, limits))
            if record.key:
                value = {"id": record.id, "fingerprint": record.fingerprint}
                changes.append(Put(_KEYS, _key(record.owner, record.key), value, revision=0))
        await self._store.write(*changes, durable=False, gather=gather)
        for record in records:
            record.revision = 1

    async def save(self, record: Record, *, gather: bool = False) -> None:
        """Write a record that has changed. Stale when another writer has changed it meanwhile."""
        await self._store.write(self._put(record, {}), durable=False, gather=gather)
        record.revision += 1

    async def restore(self, record: Record) -> None:
        """Write a record anew that the store has lost. Stale when the store has one after all."""
        changes = [replace(self._put(record, {}), revision=0)]
        if record.key:
            value = {"id": record.id, "fingerprint": record.fingerprint}
            changes.append(Put(_KEYS, _key(record.owner, record.key), value))
        await self._store.write(*changes, durable=False)
        record.revision = 1

    async def forget_key(self, owner: str | None, key: str) -> None:
        """Let an Idempotency-Key be used again."""
        await self._store.write(Delete(_KEYS, _key(owner, key)), durable=False)

    async def forget(self, record: Record) -> None:
        """Remove a record, as if it had never been; fine when it is gone, or another request's of the same id."""
        keys = [Delete(_KEYS, _key(record.owner, record.key))] if record.key else []
        while (stored := await self.find(record.id)) and stored.requested_at == record.requested_at:
            with contextlib.suppress(Stale):
                await self._store.write(Delete(_KIND, record.id, stored.revision), *keys, durable=False)
                return

    async def forget_all(self, records: Sequence[Record]) -> None:
        """Remove records that have ended, in one write. Stale, with nothing removed, when one has changed."""
        changes = [Delete(_KIND, record.id, record.revision) for record in records]
        keys = {_key(record.owner, record.key) for record in records if record.key}
        await self._store.write(*changes, *(Delete(_KEYS, key) for key in keys), durable=False)

    async def find(self, id: str) -> Record | None:
        [document] = await self._store.get(_KIND, id)
        return _record(document) if document else None

    async def get(self, id: str) -> Record:
        record = await self.find(id)
        if record is None:
            raise NotFound(f"instance {id!r} not found")
        return record

    async def note_use(self, id: str, seconds: float) -> None:
        """For the gateway that looks after it: it is in use through another one, for so long from now."""
        await self._store.lease(f"use {id}", "elsewhere", seconds)

    async def is_used_elsewhere(self, id: str) -> bool:
        return not await self._store.lease(f"use {id}", "here", 0)

    async def keep_awake(self, id: str, seconds: float) -> None:
        """For the gateway that looks after it: do not freeze it, for so long from now."""
        await self._store.lease(f"awake {id}", "elsewhere", seconds)

    async def is_kept_awake(self, id: str) -> bool:
        return not await self._store.lease(f"awake {id}", "here", 0)

    async def find_key(self, owner: str | None, key: str) -> str | None:
        """The id of the instance that a request with this Idempotency-Key made."""
        [document] = await self._store.get(_KEYS, _key(owner, key))
        return str(document.value["id"]) if document else None

    async def select(self, selection: Selection) -> list[Record]:
        """The page that `selection` asks for, oldest first."""
        if selection.cursor:
            last = await self.find(selection.cursor)
            if last is None:
                return []
            start = cursor(_place(last.requested_at), last.id)
        else:
            start = None
        found: list[Record] = []
        async for record in self._walk(selection.term, start):
            if selection.matches(record):
                found.append(record)
                if selection.limit and len(found) == selection.limit:
                    break
        return found

    async def living_on(self, node: str) -> list[Record]:
        """Every instance of a node that has not ended."""
        return [record async for record in self._walk(f"node={node} live", None)]

    async def all_of(self, ids: Sequence[str]) -> dict[str, Record | None]:
        """The records of these ids; None for those that the store does not have."""
        found: dict[str, Record | None] = dict.fromkeys(ids)
        for first in range(0, len(ids), _BATCH):
            documents = await self._store.get(_KIND, *ids[first : first + _BATCH])
            found |= {record.id: record for record in _readable(filter(None, documents))}
        return found

    async def join(self, node: str) -> None:
        """Make a node known to all gateways on the store."""
        if (await self._store.get(_NODES, node)) == [None]:
            await self._store.write(Put(_NODES, node, {}, terms={"all": node}), durable=False)

    async def nodes(self) -> list[str]:
        """Every node that has joined, and has not been removed."""
        found: list[str] = []
        start: str | None = None
        while True:
            page = await self._store.page(_NODES, "all", limit=_BATCH, after=start)
            found += [document.key for document in page.documents]
            if (start := page.next) is None:
                return found

    async def remove_node(self, node: str) -> None:
        await self._store.write(Delete(_NODES, node), durable=False)

    async def living(self) -> list[Record]:
        """Every instance that has not ended, on any node."""
        return [record async for record in self._walk("live", None)]

    async def due(self, node: str) -> AsyncIterator[list[Record]]:
        """What should have been ended or forgotten by now, in batches, the oldest first."""
        start: str | None = None
        while True:
            page = await self._store.page(_KIND, f"node={node} due", limit=_BATCH, after=start)
            over = [record for record in _readable(page.documents) if _due(record) <= time.time()]
            yield over
            if (start := page.next) is None or not over:
                return

    async def _walk(self, term: str, start: str | None) -> AsyncIterator[Record]:
        while True:
            page = await self._store.page(_KIND, term, limit=_BATCH, after=start)
            for record in _readable(page.documents):
                yield record
            if (start := page.next) is None:
                return

    def _put(self, record: Record, limits: Mapping[str, int]) -> Put:
        return Put(
            _KIND,
            record.id,
            record.dump(),
            revision=record.revision,
            terms=_terms(record),
            counts=_counts(record) if record.is_live else {},
            limits=limits,
        )


def check_fits(records: Iterable[Record], limits: Mapping[str, int]) -> None:
    """Refuse what could never be begun: it would wait for nothing, and hold up all requests behind it."""
    asked = Counter[str]()
    for record in records:
        asked.update(_counts(record))
    for name, limit in limits.items():
        if asked[name] > limit:
            raise TooManyRequests(
                f"there can never be room for this: it asks for {asked[name]} of {name}, limited to {limit}"
            )


def fingerprint(request: CreateInstance, owner: str | None, parent: str = "") -> str:
    """Tells whether two requests ask for the same, without keeping what they say."""
    text = f"{owner or ''}\0{request.model_dump_json(exclude={'wait'})}{parent and chr(0) + parent}"
    return hashlib.sha256(text.encode()).hexdigest()


def _terms(record: Record) -> dict[str, str]:
    place = _place(record.requested_at)
    phase = "live" if record.is_live else record.status.value
    terms = {phase: place, f"env={record.name} {phase}": place}
    terms[f"owner={record.owner or ''} {phase}"] = place
    for label, value in record.labels.items():
        terms[f"label={label}={value} {phase}"] = place
    if record.is_live:
        terms[f"node={record.node} live"] = place
    terms[f"node={record.node} due"] = _place(_due(record))
    return terms


def _counts(record: Record) -> dict[str, int]:
    if record.self_check == "own":
        return {}
    counts = {"instances": 1}
    # Nothing is not counted: the store takes as long for a zero.
    if record.cpu_milli:
        counts["cpu"] = record.cpu_milli
    if record.memory_bytes:
        counts["memory"] = record.memory_bytes
    if record.account:
        counts[f"account={record.account}"] = 1
    for label, value in record.labels.items():
        counts[f"label={label}={value}"] = 1
    return counts


def _due(record: Record) -> float:
    if record.status is EnvStatus.CREATING:
        return record.requested_at + REMEMBERED
    return record.expires_at if record.is_live else record.updated_at + REMEMBERED


def _place(at: float) -> str:
    return f"{at:017.6f}"


def _key(owner: str | None, key: str) -> str:
    return hashlib.sha256(f"{owner or ''}\0{key}".encode()).hexdigest()


def _readable(documents: Iterable[Document]) -> Iterator[Record]:
    """Without those that cannot be read: one must not hide the others, nor keep a gateway from starting."""
    for document in documents:
        try:
            yield _record(document)
        except (KeyError, TypeError, ValueError) as error:
            logger.error("the record of instance %r cannot be read: %r", document.key, error)


def _record(document: Document) -> Record:
    return Record.load(document.value, document.revision)
