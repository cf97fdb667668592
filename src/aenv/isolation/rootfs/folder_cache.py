"""The store: folders that are made once, complete or not there, and never changed afterwards.

Each is `<home>/roots/<kind>/<key>`; the key says what it was made from. Not here: what is in them.
"""

from __future__ import annotations

import contextlib
import hashlib
import math
import os
import secrets
import time
from collections.abc import AsyncIterator, Iterable, Iterator
from pathlib import Path

from ...base import locks as locking
from ..sandbox.removal import remove

_ABANDONED = 86400.0  # seconds: nothing takes a day to make
_LOCKS = ".locks"


def place(home: Path, kind: str = "") -> Path:
    """The folder of this kind. Only its owner looks into it: images bring files of every owner and mode."""
    root = home.expanduser().absolute() / "roots"
    root.mkdir(parents=True, exist_ok=True)
    root.chmod(0o700)
    (root / kind).mkdir(exist_ok=True, mode=0o700)
    return root / kind


@contextlib.contextmanager
def new(folder: Path) -> Iterator[Path]:
    """An empty folder to fill, which becomes `folder`, in use, at the end; after an error nothing is left."""
    with scratch(folder.parent) as work:
        work.chmod(0o755)
        yield work
        try:
            work.rename(folder)
        except OSError:
            if not folder.is_dir():  # or another process has made the same meanwhile
                raise
        use(folder)


@contextlib.contextmanager
def scratch(place: Path) -> Iterator[Path]:
    """An empty folder of the store, for work; it is gone afterwards."""
    work = place / f".new-{secrets.token_hex(8)}"
    work.mkdir(mode=0o700)
    try:
        yield work
    finally:
        remove(str(work))


def use(folder: Path) -> bool:
    """Whether it is there; if so, it counts as used now."""
    with contextlib.suppress(FileNotFoundError):
        os.utime(_used(folder))
        return folder.is_dir()
    if folder.is_dir():
        _used(folder).touch(mode=0o600)
        return True
    return False


def collect(place: Path, keep: set[str], older_than: float) -> list[str]:
    """Remove what is `unused`; the keys of what is gone."""
    removed: list[str] = []
    for folder in unused(place, keep, older_than):
        is_work = _is_work(folder)
        limit = time.time() - (max(older_than, _ABANDONED) if is_work else older_than)
        if discard(folder, limit):
            removed += [] if is_work else [folder.name]
    return removed


def unused(place: Path, keep: set[str], older_than: float) -> list[Path]:
    """What is not mounted, nor was used in the last `older_than` seconds, except `keep`."""
    found: list[Path] = []
    mounts = mounted()
    for folder in sorted(path for path in place.iterdir() if path.is_dir() and not path.is_symlink()):
        limit = time.time() - (max(older_than, _ABANDONED) if _is_work(folder) else older_than)
        is_kept = folder.name in (*keep, _LOCKS) or folder.name in mounts
        if not is_kept and last_use(folder) <= limit:
            found.append(folder)
    return found


def _is_work(folder: Path) -> bool:
    """Whether it belongs to a process that makes or removes a folder, or was killed meanwhile."""
    return folder.name.startswith(".")


def mounted() -> set[str]:
    """The names of all folders that some process has mounted, with the names above them: instances live there.

    The stage of an instance has them for as long as it lives, whichever process has made it.
    """
    seen: set[str] = set()
    names: set[str] = set()
    for process in os.listdir("/proc"):
        with contextlib.suppress(OSError):  # it has ended, or is none of ours
            if process.isdecimal() and (space := os.readlink(f"/proc/{process}/ns/mnt")) not in seen:
                with open(f"/proc/{process}/mountinfo", errors="surrogateescape") as lines:
                    names.update(part for line in lines for part in line.split(" ", 4)[3].split("/"))
                seen.add(space)
    return names


def discard(folder: Path, limit: float = math.inf) -> bool:
    """Remove a folder of the store, unless it was used after `limit`. No process sees half of it."""
    away = folder.parent / f".old-{secrets.token_hex(8)}"
    try:
        folder.rename(away)
    except FileNotFoundError:
        return False
    if _used(folder).exists() and last_use(folder) > limit:  # it was taken into use at the last moment
        away.rename(folder)
        return False
    for besides in (_used(folder), folder.parent / _LOCKS / folder.name):
        besides.unlink(missing_ok=True)
    remove(str(away))
    return True


def digest(parts: Iterable[str | bytes]) -> str:
    """One key of several values; none of them can pass for two."""
    total = hashlib.sha256()
    for part in parts:
        data = os.fsencode(part) if isinstance(part, str) else part
        total.update(b"%d:" % len(data) + data)
    return total.hexdigest()


@contextlib.asynccontextmanager
async def locked(folder: Path) -> AsyncIterator[None]:
    """Inside, no other process and no other task makes `folder`."""
    locks = folder.parent / _LOCKS
    locks.mkdir(exist_ok=True, mode=0o700)
    async with locking.locked(locks / folder.name):
        yield


def _used(folder: Path) -> Path:
    # Beside it, not in it: the folder is an instance's `/`.
    return folder.parent / f".{folder.name}.used"


def last_use(folder: Path) -> float:
    """When it was last asked for, in seconds since the epoch."""
    with contextlib.suppress(FileNotFoundError):
        return _used(folder).stat().st_mtime
    return folder.stat().st_mtime
