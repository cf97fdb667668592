"""The store in one SQLite file: for one machine, with nothing else to install."""

from __future__ import annotations

import asyncio
import contextlib
import fcntl
import json
import os
import sqlite3
import time
from collections import OrderedDict
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any, Self, TypeVar

from ..errors import Unavailable
from .base import Delete, Document, LimitReached, Page, Put, Spent, Stale
from .checks import check_changes, check_texts, check_window, cursor, dump, limits_of, position, spent

T = TypeVar("T")
Migration = Callable[[sqlite3.Connection], None]

_MAX_BUCKETS = 10_000

# Triggers keep totals and the sizes of lists, so no statement can change a document and forget them.
_TABLES = (
    "CREATE TABLE documents (kind TEXT, key TEXT, revision INTEGER NOT NULL, value TEXT NOT NULL,"
    " PRIMARY KEY (kind, key))",
    "CREATE TABLE terms (kind TEXT, term TEXT, place TEXT, key TEXT, PRIMARY KEY (kind, term, place, key))"
    " WITHOUT ROWID",
    "CREATE INDEX terms_of ON terms (kind, key, term)",
    "CREATE TABLE sizes (kind TEXT, term TEXT, size INTEGER NOT NULL, PRIMARY KEY (kind, term)) WITHOUT ROWID",
    "CREATE TABLE counts (kind TEXT, key TEXT, name TEXT, amount INTEGER NOT NULL, PRIMARY KEY (kind, key, name))"
    " WITHOUT ROWID",
    "CREATE TABLE totals (name TEXT PRIMARY KEY, amount INTEGER NOT NULL) WITHOUT ROWID",
    "CREATE TABLE leases (name TEXT PRIMARY KEY, holder TEXT NOT NULL, expires REAL NOT NULL) WITHOUT ROWID",
    """CREATE TRIGGER listed AFTER INSERT ON terms BEGIN
        INSERT INTO sizes VALUES (new.kind, new.term, 1) ON CONFLICT DO UPDATE SET size = size + 1; END""",
    """CREATE TRIGGER unlisted AFTER DELETE ON terms BEGIN
        UPDATE sizes SET size = size - 1 WHERE kind = old.kind AND term = old.term;
        DELETE FROM sizes WHERE kind = old.kind AND term = old.term AND size = 0; END""",
    """CREATE TRIGGER counted AFTER INSERT ON counts BEGIN
        INSERT INTO totals VALUES (new.name, new.amount)
        ON CONFLICT DO UPDATE SET amount = amount + new.amount; END""",
    """CREATE TRIGGER uncounted AFTER DELETE ON counts BEGIN
        UPDATE totals SET amount = amount - old.amount WHERE name = old.name;
        DELETE FROM totals WHERE name = old.name AND amount = 0; END""",
)
_PUT = (
    "INSERT INTO documents VALUES (?, ?, 1, ?)"
    " ON CONFLICT DO UPDATE SET revision = revision + 1, value = excluded.value"
)
_LEASE = (
    "INSERT INTO leases VALUES (?, ?, ?)"
    " ON CONFLICT DO UPDATE SET expires = excluded.expires WHERE holder = excluded.holder"
)


def _make_tables(db: sqlite3.Connection) -> None:
    for statement in _TABLES:
        db.execute(statement)


MIGRATIONS: tuple[Migration, ...] = (_make_tables,)
"""The steps that bring a file to what this code expects; its `user_version` says how many it has seen."""


class SqliteStore:
    """Documents in one file, which several processes of a machine may open. Use it as an `async with`.

    Permits (`spend`) are counted in this process alone: a machine has one gateway as a rule.
    """

    def __init__(self, path: Path, *, timeout: float = 5.0, migrations: Sequence[Migration] = MIGRATIONS) -> None:
        self._path = path
        self._timeout = timeout
        self._migrations = migrations
        self._synchronous = ""
        self._buckets: OrderedDict[str, tuple[float, float]] = OrderedDict()
        # The connection lives on this one thread, and a job there is never cut short: a caller who is cancelled
        # leaves no transaction open.
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="aenv-sqlite")
        self._db: sqlite3.Connection

    async def __aenter__(self) -> Self:
        try:
            await self._run(self._open)
        except BaseException:
            self._end()
            raise
        return self

    async def __aexit__(self, *exc: object) -> None:
        await asyncio.shield(asyncio.wrap_future(self._end()))

    async def get(self, kind: str, *keys: str) -> list[Document | None]:
        check_texts(kind, *keys)
        return await self._run(self._get, kind, keys)

    async def write(self, *changes: Put | Delete, durable: bool = True) -> None:
        check_changes(*changes)
        values = [dump(change.key, change.value) if isinstance(change, Put) else "" for change in changes]
        await self._run(self._write, changes, values, durable)

    async def page(
        self, kind: str, *terms: str, limit: int, offset: int = 0, after: str | None = None, reverse: bool = False
    ) -> Page:
        check_texts(kind, *terms)
        check_window(limit, offset)
        start = None if after is None else position(after)
        names = tuple(dict.fromkeys(terms))
        return await self._run(self._page, kind, names, limit, offset, start, reverse)

    async def totals(self, *names: str) -> list[int]:
        check_texts(*names)
        return await self._run(lambda: [self._total(name) for name in names])

    async def lease(self, name: str, holder: str, seconds: float) -> bool:
        """See `Coordination`. Measured by the machine's clock, which all processes on the file share."""
        check_texts(name, holder)
        return await self._run(self._lease, name, holder, seconds)

    async def spend(self, bucket: str, *, rate: float, burst: int) -> Spent:
        check_texts(bucket)
        now = time.monotonic()
        tokens, since = self._buckets.pop(bucket, (float(burst), now))
        tokens = min(float(burst), tokens + (now - since) * rate)
        self._buckets[bucket] = (tokens - 1 if tokens >= 1 else tokens, now)
        if len(self._buckets) > _MAX_BUCKETS:
            self._buckets.popitem(last=False)  # unused for longest, so the likeliest to be full again
        return spent(tokens, rate, burst)

    async def _run(self, job: Callable[..., T], *arguments: Any) -> T:
        try:
            return await asyncio.get_running_loop().run_in_executor(self._thread, job, *arguments)
        except (sqlite3.DatabaseError, OSError) as error:
            raise Unavailable(f"the store {str(self._path)!r} {self._reason(error)}") from error

    def _reason(self, error: Exception) -> str:
        match getattr(error, "sqlite_errorcode", 0) & 0xFF:  # above it the details of the same error
            case sqlite3.SQLITE_FULL:
                return "has no space left; make room on its disk"
            case sqlite3.SQLITE_READONLY:
                return "cannot be written; check the permissions of the file and its folder"
            case sqlite3.SQLITE_BUSY:
                return f"was locked by another process for {self._timeout:g} s"
            case sqlite3.SQLITE_CORRUPT | sqlite3.SQLITE_NOTADB:
                return f"is damaged or no SQLite file ({error}); restore it from a backup"
        return f"failed: {error}"

    # From here on everything runs on the store's own thread.

    def _open(self) -> None:
        folder = self._path.parent
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        # One process at a time: of two that switch a new file to WAL, SQLite refuses one without waiting.
        with _locked(folder):
            # Not when it exists: closing it would drop the locks that SQLite has on it in this process.
            with contextlib.suppress(FileExistsError):
                os.close(os.open(self._path, os.O_CREAT | os.O_EXCL, mode=0o600))
            self._db = sqlite3.connect(self._path, timeout=self._timeout, isolation_level=None)
            self._db.execute("PRAGMA journal_mode = WAL")
            for version in range(self._version(), len(self._migrations)):
                with self._transaction():
                    self._migrations[version](self._db)
                    self._db.execute(f"PRAGMA user_version = {version + 1}")
        self._check_version()

    def _end(self) -> Future[None]:
        """Close behind all that still runs; nothing can be asked from now on."""
        done = self._thread.submit(self._close)
        self._thread.shutdown(wait=False)
        return done

    def _close(self) -> None:
        if hasattr(self, "_db"):
            self._db.close()

    def _version(self) -> int:
        return int(self._db.execute("PRAGMA user_version").fetchone()[0])

    def _check_version(self) -> None:
        version, known = self._version(), len(self._migrations)
        if version != known:
            raise Unavailable(
                f"the store {str(self._path)!r} has version {version} and this aenv knows {known}; upgrade aenv",
                retry_after=60,
            )

    @contextlib.contextmanager
    def _transaction(self, mode: str = "IMMEDIATE") -> Iterator[None]:
        self._db.execute(f"BEGIN {mode}")
        try:
            yield
            self._db.execute("COMMIT")
        except BaseException:
            # A full disk may have ended the transaction already.
            if self._db.in_transaction:
                self._db.execute("ROLLBACK")
            raise

    def _sync(self, mode: str) -> None:
        """FULL waits for the disk at each commit. With NORMAL the last ones may be lost with the machine."""
        if mode != self._synchronous:
            self._db.execute(f"PRAGMA synchronous = {mode}")
            self._synchronous = mode

    def _get(self, kind: str, keys: Sequence[str]) -> list[Document | None]:
        asked = "SELECT value FROM json_each(?)"
        query = f"SELECT key, revision, value FROM documents WHERE kind = ? AND key IN ({asked})"
        rows = self._db.execute(query, (kind, json.dumps(keys)))
        found = {key: (revision, value) for key, revision, value in rows}
        return [Document(key, json.loads(found[key][1]), found[key][0]) if key in found else None for key in keys]

    def _write(self, changes: Sequence[Put | Delete], values: Sequence[str], durable: bool) -> None:
        limits = limits_of(*changes)
        self._sync("FULL" if durable else "NORMAL")
        with self._transaction():
            self._check_version()
            for change in changes:
                if change.revision is not None and change.revision != self._revision(change):
                    raise Stale(change.kind, change.key)
            before = {name: self._total(name) for name, _ in limits}
            for change, value in zip(changes, values, strict=True):
                self._apply(change, value)
            for name, limit in limits:
                if self._total(name) > limit:
                    raise LimitReached(name, before[name], limit)

    def _revision(self, change: Put | Delete) -> int:
        query = "SELECT revision FROM documents WHERE kind = ? AND key = ?"
        row = self._db.execute(query, (change.kind, change.key)).fetchone()
        return int(row[0]) if row else 0

    def _total(self, name: str) -> int:
        row = self._db.execute("SELECT amount FROM totals WHERE name = ?", (name,)).fetchone()
        return int(row[0]) if row else 0

    def _apply(self, change: Put | Delete, value: str) -> None:
        kind, key = change.kind, change.key
        self._db.execute("DELETE FROM terms WHERE kind = ? AND key = ?", (kind, key))
        self._db.execute("DELETE FROM counts WHERE kind = ? AND key = ?", (kind, key))
        if isinstance(change, Delete):
            self._db.execute("DELETE FROM documents WHERE kind = ? AND key = ?", (kind, key))
            return
        self._db.execute(_PUT, (kind, key, value))
        places = [(kind, term, place, key) for term, place in change.terms.items()]
        self._db.executemany("INSERT INTO terms VALUES (?, ?, ?, ?)", places)
        amounts = [(kind, key, name, amount) for name, amount in change.counts.items()]
        self._db.executemany("INSERT INTO counts VALUES (?, ?, ?, ?)", amounts)

    def _page(
        self,
        kind: str,
        terms: Sequence[str],
        limit: int,
        offset: int,
        start: tuple[str, str] | None,
        reverse: bool,
    ) -> Page:
        if not terms:
            return Page([], 0, None)
        window = (kind, *(start or ("", "")), limit + 1, offset)
        with self._transaction("DEFERRED"):
            rows = self._db.execute(
                _page_query(len(terms), start is not None, reverse), (*window, *terms)
            ).fetchall()
            # All but the longest list are counted by looking at their entries.
            longest_first = sorted(terms, key=lambda term: self._size(kind, term), reverse=True)
            total = self._db.execute(_total_query(len(terms)), (*window, *longest_first)).fetchone()[0]
        documents = [Document(key, json.loads(value), revision) for _, key, revision, value in rows[:limit]]
        more = len(rows) > limit > 0
        return Page(documents, total, cursor(*rows[limit - 1][:2]) if more else None)

    def _size(self, kind: str, term: str) -> int:
        row = self._db.execute("SELECT size FROM sizes WHERE kind = ? AND term = ?", (kind, term)).fetchone()
        return int(row[0]) if row else 0

    def _lease(self, name: str, holder: str, seconds: float) -> bool:
        now = time.time()
        self._sync("NORMAL")
        with self._transaction():
            self._db.execute("DELETE FROM leases WHERE expires <= ?", (now,))
            return self._db.execute(_LEASE, (name, holder, now + seconds)).rowcount == 1


@contextlib.contextmanager
def _locked(folder: Path) -> Iterator[None]:
    """Wait for all who hold this lock on `folder`, and hold it; it ends with the process, too."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)


# Both queries take the same parameters: kind, the place and key of the cursor, limit, offset, then the terms.


def _member(number: int, place: str = "") -> str:
    """The condition for an entry of the term `number` that none of the terms before it lists, too."""
    condition = f"kind = ?1 AND term = ?{6 + number}"
    if number:
        earlier = ", ".join(f"?{6 + other}" for other in range(number))
        condition += (
            f" AND NOT EXISTS (SELECT 1 FROM terms WHERE kind = ?1 AND key = t.key AND term IN ({earlier}))"
        )
    return condition + place


def _page_query(terms: int, from_cursor: bool, reverse: bool) -> str:
    # Each part comes sorted from the primary key, so that SQLite merges them and reads no more than the page.
    comparison, direction = ("<", "DESC") if reverse else (">", "ASC")
    place = f" AND (place, key) {comparison} (?2, ?3)" if from_cursor else ""
    order = f"ORDER BY place {direction}, key {direction}"
    parts = " UNION ALL ".join(f"SELECT place, key FROM terms t WHERE {_member(n, place)}" for n in range(terms))
    listed = f"SELECT place, key FROM ({parts}) {order} LIMIT ?4 OFFSET ?5"
    return f"SELECT place, key, revision, value FROM ({listed}) JOIN documents USING (key) WHERE kind = ?1 {order}"


def _total_query(terms: int) -> str:
    first = "coalesce((SELECT size FROM sizes WHERE kind = ?1 AND term = ?6), 0)"
    others = [f"(SELECT count(*) FROM terms t WHERE {_member(number)})" for number in range(1, terms)]
    return f"SELECT {' + '.join([first, *others])}"
