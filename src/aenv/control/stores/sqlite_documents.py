"""The tables of documents in a SQLite file, inside a transaction: what a write changes in them.

Not here: the connection, its transactions and its thread (`sqlite.py`).
"""

from __future__ import annotations

import sqlite3
from collections.abc import Mapping, Sequence
from typing import Any

from .base import Delete, LimitReached, Put, Stale
from .checks import limits_of
from .gathered_writes import GatheredWrite

_PUT = (
    "INSERT INTO documents VALUES (?, ?, 1, ?)"
    " ON CONFLICT DO UPDATE SET revision = revision + 1, value = excluded.value"
)


class DocumentTables:
    """Documents with their terms and counts. Every method is to be called inside a transaction."""

    def __init__(self, db: sqlite3.Connection) -> None:
        self._db = db

    def try_to_write(self, write: GatheredWrite) -> Exception | None:
        """Make all of its changes or none; why none, for it alone: others share the transaction."""
        if not any(isinstance(change, Put) and change.limits for change in write.changes):
            try:
                self.write(write.changes, write.values)
            except Stale as error:  # which is known before anything is changed
                return error
            return None
        self._db.execute("SAVEPOINT one")
        try:
            self.write(write.changes, write.values)
        except (Stale, LimitReached) as error:
            self._db.execute("ROLLBACK TO one")
            return error
        finally:
            self._db.execute("RELEASE one")
        return None

    def write(self, changes: Sequence[Put | Delete], values: Sequence[str]) -> None:
        """Make the changes; `values` are those of the documents, as JSON. Stale and LimitReached say why not."""
        limits = limits_of(*changes)
        revisions = [self._revision(change) for change in changes]
        for change, revision in zip(changes, revisions, strict=True):
            if change.revision not in (None, revision):
                raise Stale(change.kind, change.key)
        before = {name: self.total(name) for name, _ in limits}
        for change, value, revision in zip(changes, values, revisions, strict=True):
            self._apply(change, value, is_new=not revision)
        for name, limit in limits:
            if self.total(name) > limit:
                raise LimitReached(name, before[name], limit)

    def _revision(self, change: Put | Delete) -> int:
        query = "SELECT revision FROM documents WHERE kind = ? AND key = ?"
        row = self._db.execute(query, (change.kind, change.key)).fetchone()
        return int(row[0]) if row else 0

    def total(self, name: str) -> int:
        """What all documents together add to this name."""
        row = self._db.execute("SELECT amount FROM totals WHERE name = ?", (name,)).fetchone()
        return int(row[0]) if row else 0

    def _apply(self, change: Put | Delete, value: str, *, is_new: bool) -> None:
        of = (change.kind, change.key)
        terms, counts = (change.terms, change.counts) if isinstance(change, Put) else ({}, {})
        self._replace("terms", "term, place", of, {} if is_new else self._known("term, place", "terms", of), terms)
        known = {} if is_new else self._known("name, amount", "counts", of)
        self._replace("counts", "name, amount", of, known, counts)
        if isinstance(change, Put):
            self._db.execute(_PUT, (*of, value))
        else:
            self._db.execute("DELETE FROM documents WHERE kind = ? AND key = ?", of)

    def _known(self, columns: str, table: str, of: tuple[str, str]) -> dict[str, Any]:
        return dict(self._db.execute(f"SELECT {columns} FROM {table} WHERE kind = ? AND key = ?", of).fetchall())

    def _replace(
        self, table: str, columns: str, of: tuple[str, str], known: Mapping[str, Any], wanted: Mapping[str, Any]
    ) -> None:
        """Change the entries of a document that are to change: as a rule most of them stay."""
        name, _, value = columns.partition(", ")
        gone = [(*of, *entry) for entry in known.items() if wanted.get(entry[0]) != entry[1]]
        come = [(*of, *entry) for entry in wanted.items() if known.get(entry[0]) != entry[1]]
        if gone:
            where = f"kind = ? AND key = ? AND {name} = ? AND {value} = ?"
            self._db.executemany(f"DELETE FROM {table} WHERE {where}", gone)
        if come:
            self._db.executemany(f"INSERT INTO {table} (kind, key, {columns}) VALUES (?, ?, ?, ?)", come)
