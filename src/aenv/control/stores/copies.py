"""Copies of a store in SQLite: made while others write to it, and looked at before they are trusted."""

from __future__ import annotations

import contextlib
import os
import sqlite3
from collections.abc import Iterator
from pathlib import Path

from ...base.errors import InvalidRequest, Unavailable
from .sqlite import MIGRATIONS


def copy(source: Path, target: Path) -> None:
    """Write what `source` holds now to the new file `target`, for its owner alone. Holds up no writer."""
    os.close(os.open(target, os.O_CREAT | os.O_EXCL, mode=0o600))
    with _errors(source), _opened(source) as db, contextlib.closing(sqlite3.connect(target)) as copied:
        db.backup(copied)
        copied.execute("PRAGMA journal_mode = DELETE")  # one file: nothing of it is left in a log


def check(path: Path) -> None:
    """InvalidRequest when `path` is damaged, or of a newer version than this code knows."""
    try:
        with _opened(path) as db:
            [(found,)] = db.execute("PRAGMA integrity_check(1)").fetchall()
            [(version,)] = db.execute("PRAGMA user_version").fetchall()
    except sqlite3.DatabaseError as error:
        raise InvalidRequest(f"the store in the backup is damaged: {error}") from None
    if found != "ok":
        raise InvalidRequest(f"the store in the backup is damaged: {found}")
    if not 0 < version <= len(MIGRATIONS):
        raise InvalidRequest(
            f"the store has version {version} and this aenv knows {len(MIGRATIONS)}; upgrade aenv"
        )


def keys(path: Path, kind: str) -> list[str]:
    with _errors(path), _opened(path) as db:
        return [key for (key,) in db.execute("SELECT key FROM documents WHERE kind = ? ORDER BY key", (kind,))]


@contextlib.contextmanager
def _opened(path: Path) -> Iterator[sqlite3.Connection]:
    with contextlib.closing(sqlite3.connect(f"file:{path.absolute()}?mode=rw", uri=True)) as db:
        yield db


@contextlib.contextmanager
def _errors(path: Path) -> Iterator[None]:
    try:
        yield
    except sqlite3.Error as error:
        raise Unavailable(f"the store {str(path)!r} cannot be read: {error}") from error
