"""Which instances a list, or a delete of many, is about: the filters of the query."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from .. import refs
from ..errors import InvalidRequest
from ..wire import EnvStatus
from .records import Record

MAX_LIMIT = 1000


@dataclass(frozen=True)
class Selection:
    """What a record must be like; None does not care. Without a status, only what lives counts."""

    ref: refs.Ref | None = None
    owner: str | None = None
    label: tuple[str, str] | None = None
    status: EnvStatus | None = None
    limit: int | None = None
    cursor: str | None = None

    def of(self, records: Iterable[Record]) -> list[Record]:
        """The page of matching records, oldest first; the cursor is the id that the page before ended with."""
        found = sorted(filter(self.matches, records), key=lambda record: (record.requested_at, record.id))
        if self.cursor:
            ids = [record.id for record in found]
            found = found[ids.index(self.cursor) + 1 :] if self.cursor in ids else []
        return found[: self.limit]

    def matches(self, record: Record) -> bool:
        project, request = record.project, record.request
        return (
            (record.is_live if self.status is None else record.status is self.status)
            and (self.ref is None or (self.ref.name, self.ref.version or project.version) == _ref(record))
            and (self.owner is None or request.owner == self.owner)
            and (self.label is None or request.labels.get(self.label[0]) == self.label[1])
        )


def read(which: str, query: Mapping[str, str]) -> Selection:
    """From `*`, a name or `name@version`, and the query. InvalidRequest names the field that is wrong."""
    name = query.get("envName", "") if which == "*" else which
    return Selection(
        ref=refs.parse(name) if name else None,
        owner=query.get("owner"),
        label=read_label(query["label"]) if "label" in query else None,
        status=_read_status(query["status"]) if "status" in query else None,
        limit=_read_limit(query["limit"]) if "limit" in query else None,
        cursor=query.get("cursor"),
    )


def read_label(text: str) -> tuple[str, str]:
    name, equals, value = text.partition("=")
    if not name or not equals:
        raise InvalidRequest(f"field 'label': write {text!r} as 'name=value'")
    return name, value


def _read_status(text: str) -> EnvStatus:
    try:
        return EnvStatus(text.capitalize())
    except ValueError:
        known = ", ".join(EnvStatus)
        raise InvalidRequest(f"field 'status': {text!r} is none of {known}") from None


def _read_limit(text: str) -> int:
    if not text.isdecimal() or not 0 < int(text[:9]) <= MAX_LIMIT:
        raise InvalidRequest(f"field 'limit': {text!r} is no number from 1 to {MAX_LIMIT}")
    return int(text)


def _ref(record: Record) -> tuple[str, str]:
    return record.project.name, record.project.version
