"""Databases that are tables of JSON records, over pristine data that all worlds of a process share.

A record that a world changes is copied first; the pristine data never changes. Not here: what the records are.
"""

from __future__ import annotations

import json
from bisect import bisect_left, insort
from collections.abc import Callable, Iterator
from functools import cached_property
from pathlib import Path
from typing import Any

from tau2_toolkit import canonical_text

Json = dict[str, Any]


class Record(dict[str, Any]):
    """A record in a tool's answer: its numbers stay numbers (`text_of`)."""

    def dump(self) -> Json:
        return self


class Pristine:
    """The tables of one file, and the text of their records in the form that is hashed."""

    def __init__(self, tables: dict[str, dict[str, Json]]) -> None:
        self.tables = tables

    @cached_property
    def texts(self) -> dict[str, dict[str, bytes]]:
        """Of each table, its records as members of a JSON object, in the order of their keys."""
        return {name: {key: _member(key, rows[key]) for key in sorted(rows)} for name, rows in self.tables.items()}


class Table:
    """One table of one world, in the order of the file; added records come last."""

    def __init__(self, rows: dict[str, Json]) -> None:
        self._rows = rows
        self._own: dict[str, Json] = {}

    def __contains__(self, key: Any) -> bool:
        return key in self._own or key in self._rows

    def __getitem__(self, key: str) -> Json:
        """A record to look at; `edit` gives one to change."""
        return self._own[key] if key in self._own else self._rows[key]

    def __len__(self) -> int:
        return len(self._rows) + sum(key not in self._rows for key in self._own)

    def __iter__(self) -> Iterator[str]:
        yield from self._rows
        yield from (key for key in self._own if key not in self._rows)

    def values(self) -> Iterator[Json]:
        return (self[key] for key in self)

    def edit(self, key: str) -> Json:
        """This world's own copy of a record."""
        if key not in self._own:
            self._own[key] = copied(self._rows[key])
        return self._own[key]

    def put(self, key: str, record: Json) -> None:
        self._own[key] = record

    def members(self, texts: dict[str, bytes]) -> list[bytes]:
        """All records as members of a JSON object with sorted keys, given those of the pristine table."""
        if not self._own:
            return list(texts.values())
        keys, members = list(texts), list(texts.values())
        for key, record in self._own.items():
            place = bisect_left(keys, key)
            if key in texts:
                members[place] = _member(key, record)
            else:
                insort(keys, key)
                members.insert(place, _member(key, record))
        return members


class Tables:
    """A database: `db.users` is its table of that name. `validated` makes a whole dump into valid records."""

    def __init__(self, title: str, pristine: Pristine, validated: Callable[[Json], Json]) -> None:
        self._title = title
        self._pristine = pristine
        self._validated = validated
        self._tables = {name: Table(rows) for name, rows in pristine.tables.items()}

    def __getattr__(self, name: str) -> Table:
        try:
            return self.__dict__["_tables"][name]  # type: ignore[no-any-return]
        except KeyError:
            # Tasks can give a world the other side's database; tools then fail with this text.
            raise AttributeError(f"'{self.__dict__.get('_title')}' object has no attribute '{name}'") from None

    def dump(self) -> Json:
        """To look at only: it shares records with the database."""
        return {name: {key: table[key] for key in table} for name, table in self._tables.items()}

    def canonical(self) -> Iterator[bytes]:
        """The dump as JSON with sorted keys, in pieces."""
        for index, name in enumerate(sorted(self._tables)):
            yield f"{', ' if index else '{'}{json.dumps(name)}: {{".encode()
            yield b", ".join(self._tables[name].members(self._pristine.texts[name]))
            yield b"}"
        yield b"}"

    def merged(self, data: Json) -> Tables:
        """A database with `data` merged into the dump of this one: objects key by key, all else replaced."""
        return Tables(self._title, Pristine(self._validated(_merge(self.dump(), data))), self._validated)


def read_json(path: Path) -> Any:
    return json.loads(path.read_bytes())


def copied(value: Any) -> Any:
    """A deep copy of what came from JSON."""
    if isinstance(value, dict):
        return {key: copied(item) for key, item in value.items()}
    if isinstance(value, list):
        return [copied(item) for item in value]
    return value


def _merge(old: Json, new: Json) -> Json:
    merged = dict(old)
    for key, value in new.items():
        both = isinstance(value, dict) and isinstance(old.get(key), dict)
        merged[key] = _merge(old[key], value) if both else value
    return merged


def _member(key: str, record: Json) -> bytes:
    return f"{json.dumps(key)}: {canonical_text(record)}".encode()
