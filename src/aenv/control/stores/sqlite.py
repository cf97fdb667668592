"""The store in one SQLite file: for one machine, with nothing else to install."""

from __future__ import annotations

import asyncio
import contextlib
import fcntl
import json
import logging
import math
import os
import sqlite3
import time
from collections import OrderedDict
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any, Self, TypeVar

from ...base.errors import Unavailable
from . import store_timeouts
from .base import Delete, Document, Page, PermitsLeft, Put
from .checks import check_changes, check_texts, check_window, cursor, dump, position, spent
from .gathered_writes import GatheredWrite, GatheredWrites
from .sqlite_documents import DocumentTables

logger = logging.getLogger("aenv.control.stores.sqlite")

T = TypeVar("T")
Migration = Callable[[sqlite3.Connection], None]

_MAX_BUCKETS = 10_000
_FEW = 16  # documents that can be looked up at once
_WRITES = 1_000  # between two checkpoints
_FREE_PAGES = 1_000  # of 4 KiB, kept in the file for the next records
_PAGES_AT_ONCE = 5_000
_INCREMENTAL = 2
_BOOT = "\0boot"

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

    What takes a fraction of a millisecond is done at once: a thread would take longer to wake up. All that may
    wait for the disk, or for another process, is done on a thread of its own.
    Permits (`spend`) are counted in this process alone: a machine has one gateway as a rule.
    """

    def __init__(self, path: Path, *, timeout: float = 5.0, migrations: Sequence[Migration] = MIGRATIONS) -> None:
        self._path = path
        self._timeout = timeout
        self._migrations = migrations
        self._set: dict[str, str] = {}
        """The settings of the connection, as far as we have changed them."""
        self._buckets: OrderedDict[str, tuple[float, float]] = OrderedDict()
        # A job on this one thread is never cut short: a caller who is cancelled leaves no transaction open.
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="aenv-sqlite")
        self._jobs: set[Future[Any]] = set()
        """What the thread has to do; without any, it leaves the connection alone."""
        self._writes = 0
        self._knows_boot = False
        self._gathering = GatheredWrites(lambda writes: self._run_at_once(self._write_all, writes))
        self._db: sqlite3.Connection
        self._tables: DocumentTables

    async def __aenter__(self) -> Self:
        try:
            await self._on_thread(self._open)
        except BaseException:
            self._end()
            raise
        return self

    async def __aexit__(self, *exc: object) -> None:
        await self._gathering.close()
        await asyncio.shield(asyncio.wrap_future(self._end()))

    async def get(self, kind: str, *keys: str) -> list[Document | None]:
        check_texts(kind, *keys)
        run = self._run_at_once if len(keys) <= _FEW else self._run
        return await run(self._get, kind, keys)

    async def write(self, *changes: Put | Delete, durable: bool = True, gather: bool = False) -> None:
        check_changes(*changes)
        values = [dump(change.key, change.value) if isinstance(change, Put) else "" for change in changes]
        if durable:
            await self._run(self._write, changes, values, "FULL")
        elif gather:
            await self._gathering.add(changes, values)
        else:
            await self._run_at_once(self._write, changes, values, "NORMAL")
        self._writes += 1 + sum(isinstance(change, Delete) for change in changes)
        if self._writes >= _WRITES:
            self._writes = 0
            self._submit(self._shorten)

    async def page(
        self, kind: str, *terms: str, limit: int, offset: int = 0, after: str | None = None, reverse: bool = False
    ) -> Page:
        check_texts(kind, *terms)
        check_window(limit, offset)
        start = None if after is None else position(after)
        names = tuple(dict.fromkeys(terms))
        run = self._run_at_once if limit <= _FEW and not offset else self._run
        return await run(self._page, kind, names, limit, offset, start, reverse)

    async def totals(self, *names: str) -> list[int]:
        check_texts(*names)
        return await self._run_at_once(lambda: [self._tables.total(name) for name in names])

    async def lease(self, name: str, holder: str, seconds: float) -> bool:
        """See `Coordination`. Measured by the machine's uptime, which all processes share and cannot set."""
        check_texts(name, holder)
        return await self._run_at_once(self._lease, name, holder, seconds)

    async def spend(self, bucket: str, *, rate: float, burst: int) -> PermitsLeft:
        check_texts(bucket)
        now = time.monotonic()
        tokens, since = self._buckets.pop(bucket, (float(burst), now))
        tokens = min(float(burst), tokens + (now - since) * rate)
        self._buckets[bucket] = (tokens - 1 if tokens >= 1 else tokens, now)
        if len(self._buckets) > _MAX_BUCKETS:
            self._buckets.popitem(last=False)  # unused for longest, so the likeliest to be full again
        return spent(tokens, rate, burst)

    async def _run_at_once(self, job: Callable[..., T], *arguments: Any) -> T:
        """Without waiting, where no other process uses the file; otherwise on the thread."""
        if not self._jobs:
            try:
                with self._errors():
                    self._use("busy_timeout", "0")
                    return job(*arguments)
            except _Busy:
                pass
        return await self._run(job, *arguments)

    async def _run(self, job: Callable[..., T], *arguments: Any) -> T:
        with store_timeouts.waiting(self._timeout) as seconds:
            began = time.monotonic()

            def patiently() -> T:
                # Others may have waited for the same lock on this thread before.
                waited = time.monotonic() - began
                if waited > seconds > 0:
                    raise _Busy(f"the store {str(self._path)!r} was locked by another process for {seconds:g} s")
                tenths = math.ceil(max(0.0, seconds - waited) * 10)  # so that it is seldom another
                self._use("busy_timeout", f"{min(tenths * 100, round(self._timeout * 1e3))}")
                return job(*arguments)

            return await self._on_thread(patiently)

    async def _on_thread(self, job: Callable[[], T]) -> T:
        with self._errors():
            return await asyncio.wrap_future(self._submit(job))

    def _submit(self, job: Callable[[], T]) -> Future[T]:
        future = self._thread.submit(job)
        self._jobs.add(future)
        future.add_done_callback(self._jobs.discard)
        return future

    @contextlib.contextmanager
    def _errors(self) -> Iterator[None]:
        """What SQLite raises becomes Unavailable, with what can be done about it."""
        try:
            yield
        except (sqlite3.DatabaseError, OSError) as error:
            text = f"the store {str(self._path)!r} {self._reason(error)}"
            raise (_Busy if _code(error) == sqlite3.SQLITE_BUSY else Unavailable)(text) from error

    def _reason(self, error: Exception) -> str:
        match _code(error):
            case sqlite3.SQLITE_FULL:
                return "has no space left; make room on its disk"
            case sqlite3.SQLITE_READONLY:
                return "cannot be written; check the permissions of the file and its folder"
            case sqlite3.SQLITE_BUSY:
                return f"was locked by another process for {self._timeout:g} s"
            case sqlite3.SQLITE_CORRUPT | sqlite3.SQLITE_NOTADB:
                return f"is damaged or no SQLite file ({error}); restore it from a backup"
        return f"failed: {error}"

    # From here on everything is synchronous, and one at a time.

    def _open(self) -> None:
        folder = self._path.parent
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        # One process at a time: of two that switch a new file to WAL, SQLite refuses one without waiting.
        with _locked(folder):
            self._refuse_what_was_lost()
            if not self._path.exists():
                _make(self._path.resolve())
            self._db = sqlite3.connect(self._path, isolation_level=None, check_same_thread=False)
            self._tables = DocumentTables(self._db)
            self._use("busy_timeout", f"{self._timeout * 1e3:.0f}")
            self._db.execute("PRAGMA journal_mode = WAL")
            self._use("wal_autocheckpoint", "0")  # it waits for the disk; see `_shorten`
            self._make_shrinkable()
            for version in range(self._pragma("user_version"), len(self._migrations)):
                with self._transaction():
                    self._migrations[version](self._db)
                    self._db.execute(f"PRAGMA user_version = {version + 1}")
        self._check_version()

    def _refuse_what_was_lost(self) -> None:
        """Acknowledged records must not seem never to have been. Ours is never empty: see `_make`."""
        log = Path(f"{self._path}-wal")
        if self._path.exists():
            if not self._path.stat().st_size:
                how = "restore it from a backup, or remove it to begin anew"
                raise self._lasting(f"is empty, so its records are lost; {how}")
        elif log.exists():
            how = "restore both from a backup, or remove the log to begin anew"
            raise self._lasting(f"is missing, and its log {str(log)!r} is there; {how}")

    def _lasting(self, reason: str) -> Unavailable:
        """The error for what does not pass by itself."""
        return Unavailable(f"the store {str(self._path)!r} {reason}", retry_after=60)

    def _end(self) -> Future[None]:
        """Close behind all that still runs; nothing can be asked from now on."""
        done = self._thread.submit(self._close)
        self._thread.shutdown(wait=False)
        return done

    def _close(self) -> None:
        if hasattr(self, "_db"):
            self._db.close()

    def _check_version(self) -> None:
        version, known = self._pragma("user_version"), len(self._migrations)
        if version != known:
            raise self._lasting(f"has version {version} and this aenv knows {known}; upgrade aenv")

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

    def _use(self, setting: str, value: str) -> None:
        if self._set.get(setting) != value:
            self._db.execute(f"PRAGMA {setting} = {value}")
            self._set[setting] = value

    def _shorten(self) -> None:
        """Give space of removed records back, and write what is in the log into the file.

        Left to SQLite, a commit would write out the log, and wait for the disk.
        """
        try:
            surplus = self._pragma("freelist_count") - _FREE_PAGES
            if surplus > 0:
                # As a script: it frees a page a step, and `execute` takes one step of what gives no rows.
                self._db.executescript(f"PRAGMA incremental_vacuum({min(surplus, _PAGES_AT_ONCE)})")
            self._db.execute("PRAGMA wal_checkpoint(PASSIVE)")
        except sqlite3.Error as error:
            logger.warning("the store %s and its log grow: %s", self._path, error)

    def _make_shrinkable(self) -> None:
        """For a file of an earlier version: from now on, it can give space back."""
        if self._pragma("auto_vacuum") == _INCREMENTAL:
            return
        try:
            self._db.execute("PRAGMA auto_vacuum = INCREMENTAL")
            self._db.execute("VACUUM")
        except (
            sqlite3.OperationalError
        ) as error:  # in use, or no space for a copy of it: the next start tries again
            logger.warning("the store %s cannot be made to shrink now: %s", self._path, error)

    def _pragma(self, name: str) -> int:
        return int(self._db.execute(f"PRAGMA {name}").fetchone()[0])

    def _get(self, kind: str, keys: Sequence[str]) -> list[Document | None]:
        asked = "SELECT value FROM json_each(?)"
        query = f"SELECT key, revision, value FROM documents WHERE kind = ? AND key IN ({asked})"
        rows = self._db.execute(query, (kind, json.dumps(keys)))
        found = {key: (revision, value) for key, revision, value in rows}
        return [Document(key, json.loads(found[key][1]), found[key][0]) if key in found else None for key in keys]

    def _write(self, changes: Sequence[Put | Delete], values: Sequence[str], synchronous: str) -> None:
        """FULL waits for the disk at each commit. With NORMAL the last ones may be lost with the machine."""
        self._use("synchronous", synchronous)
        with self._transaction():
            self._check_version()
            self._tables.write(changes, values)

    def _write_all(self, writes: Sequence[GatheredWrite]) -> list[Exception | None]:
        """Each of them or why not, in one transaction."""
        self._use("synchronous", "NORMAL")
        with self._transaction():
            self._check_version()
            return [self._tables.try_to_write(one) for one in writes]

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
        now = _uptime()
        self._use("synchronous", "NORMAL")
        with self._transaction():
            if not self._knows_boot:
                self._drop_leases_of_other_boots()
                self._knows_boot = True
            self._db.execute("DELETE FROM leases WHERE expires <= ?", (now,))
            return self._db.execute(_LEASE, (name, holder, now + seconds)).rowcount == 1

    def _drop_leases_of_other_boots(self) -> None:
        """Their time is not ours. The row that says which boot it was has a name that no lease can have."""
        boot = (_BOOT, _boot_id())
        if self._db.execute("SELECT 1 FROM leases WHERE (name, holder) = (?, ?)", boot).fetchone() is None:
            self._db.execute("DELETE FROM leases")
            self._db.execute("INSERT INTO leases VALUES (?, ?, 9e99)", boot)


class _Busy(Unavailable):
    """Another process holds the lock."""


def _code(error: Exception) -> int:
    return getattr(error, "sqlite_errorcode", 0) & 0xFF  # above it the details of the same error


def _uptime() -> float:
    """Seconds since the machine was started, while it slept too; steps of its clock do not change it."""
    clock = getattr(time, "CLOCK_BOOTTIME", None)
    return time.monotonic() if clock is None else time.clock_gettime(clock)


def _boot_id() -> str:
    with contextlib.suppress(OSError):
        return Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    return f"{time.time() - _uptime():.0f}"


def _make(path: Path) -> None:
    """A new file, which has its first page from the moment that it is there under its name."""
    new = path.with_name(f"{path.name}.new")
    for left in (new, Path(f"{new}-wal"), Path(f"{new}-shm"), Path(f"{new}-journal")):
        left.unlink(missing_ok=True)  # of a process that was killed here
    os.close(os.open(new, os.O_CREAT | os.O_EXCL, mode=0o600))
    with contextlib.closing(sqlite3.connect(new, isolation_level=None)) as db:
        db.execute("PRAGMA auto_vacuum = INCREMENTAL")
        db.execute("PRAGMA journal_mode = WAL")
    new.rename(path)


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
