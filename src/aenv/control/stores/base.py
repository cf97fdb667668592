"""What a store is: documents that are written all or none, found by their terms, and counted as they are written.

Hub, gateway and accounts say what they keep in these words alone, so SQLite and Redis differ in nothing that
they could notice. `conformance/store.py` holds every store to it.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol

_WALKED = 200  # documents of a page


@dataclass(frozen=True)
class Document:
    """A JSON object under a key, and how often it has been written."""

    key: str
    value: dict[str, Any]
    revision: int


@dataclass(frozen=True)
class Put:
    """Write a document, whole. Its terms and counts replace those it had."""

    kind: str
    key: str
    value: Mapping[str, Any]
    revision: int | None = None
    """The revision that it must have now: 0 means that it must not exist, None does not care."""
    terms: Mapping[str, str] = field(default_factory=dict)
    """Lists of this kind that it shall stand in, each with its place there: a text that lists are sorted by."""
    counts: Mapping[str, int] = field(default_factory=dict)
    """What it adds to named totals for as long as it stands like this."""
    limits: Mapping[str, int] = field(default_factory=dict)
    """Totals that must not be above these once it is written."""


@dataclass(frozen=True)
class Delete:
    """Remove a document with its terms and counts; fine when it is gone, unless a revision is demanded."""

    kind: str
    key: str
    revision: int | None = None


@dataclass(frozen=True)
class Page:
    documents: list[Document]
    total: int
    """How many documents the whole list has."""
    next: str | None
    """`after` of the page that follows; None when this was the last one."""


class Stale(Exception):
    """A document did not have the revision that a write demanded; nothing was written."""

    def __init__(self, kind: str, key: str) -> None:
        super().__init__(f"{kind} {key!r} was changed by another writer")
        self.kind = kind
        self.key = key


class LimitReached(Exception):
    """A write would have brought a total above its limit; nothing was written."""

    def __init__(self, name: str, total: int, limit: int) -> None:
        super().__init__(f"{name} is at {total} of {limit}")
        self.name = name
        self.total = total
        """Without what the refused write would have added."""
        self.limit = limit


class Store(Protocol):
    """Documents. Every method raises `errors.Unavailable` while the store cannot be reached."""

    async def get(self, kind: str, *keys: str) -> list[Document | None]:
        """The documents of these keys, in their order."""
        ...

    async def write(self, *changes: Put | Delete, durable: bool = True, gather: bool = False) -> None:
        """Make all changes or none: Stale and LimitReached say why none.

        On return they survive the end of this process; `durable` ones also the end of the machine. With `gather`
        a write that is not durable may wait some milliseconds for others where that makes all of them cheaper.
        """
        ...

    async def page(
        self, kind: str, *terms: str, limit: int, offset: int = 0, after: str | None = None, reverse: bool = False
    ) -> Page:
        """A part of the documents that stand in any of the lists `terms`, each once, sorted by place, then key.

        Of a document in several of the lists the place in the first of them counts. `after` is a page's `next`.
        """
        ...

    async def totals(self, *names: str) -> list[int]:
        """What all documents together add to each of these names."""
        ...


async def walk(store: Store, kind: str, *terms: str, reverse: bool = False) -> AsyncIterator[Document]:
    """All documents that stand in any of the lists, a page at a time."""
    after = None
    while True:
        page = await store.page(kind, *terms, limit=_WALKED, after=after, reverse=reverse)
        for document in page.documents:
            yield document
        if (after := page.next) is None:
            return


@dataclass(frozen=True)
class PermitsLeft:
    remaining: int
    wait: float
    """Seconds until the permit that was asked for would be there; 0.0 when it was taken."""


class Coordination(Protocol):
    """What several gateways on one store agree on from moment to moment."""

    async def lease(self, name: str, holder: str, seconds: float) -> bool:
        """Take or keep the lease `name` for so long from now; False while another holder has it. 0 gives it up."""
        ...

    async def spend(self, bucket: str, *, rate: float, burst: int) -> PermitsLeft:
        """Take a permit from a bucket that holds `burst` of them and gains `rate` of them a second."""
        ...


class SharedStore(Store, Coordination, Protocol):
    """All that a store offers."""
