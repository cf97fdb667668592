"""Which instances a list, or a delete of many, is about: the filters of the query."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from ...base import refs
from ...base.errors import InvalidRequest, of_field
from ...base.wire import EnvStatus
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
    """The id that the page before ended with."""

    @property
    def term(self) -> str:
        """The narrowest list of the ledger that has all of them."""
        phase = self.status.value if self.status in (EnvStatus.FAILED, EnvStatus.TERMINATED) else "live"
        if self.label:
            return f"label={self.label[0]}={self.label[1]} {phase}"
        if self.owner is not None:
            return f"owner={self.owner} {phase}"
        return f"env={self.ref.name} {phase}" if self.ref else phase

    def matches(self, record: Record) -> bool:
        return (
            (record.is_live if self.status is None else record.status is self.status)
            and (self.ref is None or str(self.ref) in (record.name, record.environment))
            and (self.owner is None or record.owner == self.owner)
            and (self.label is None or record.labels.get(self.label[0]) == self.label[1])
        )


def read(which: str, query: Mapping[str, str]) -> Selection:
    """From `*`, a name or `name@version`, and the query. InvalidRequest names the field that is wrong."""
    name = query.get("envName", "") if which == "*" else which
    with of_field("envName"):
        ref = refs.parse(name) if name else None
    return Selection(
        ref=ref,
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
        raise InvalidRequest(f"field 'limit': must be a number from 1 to {MAX_LIMIT}, got {text!r}")
    return int(text)
