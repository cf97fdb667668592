"""Pruning a home folder: what no instance uses, no version refers to, and nothing has asked for in a while.

Records, fetched data, and the storage of services are never pruned: nothing could bring them back.
Not here: the kinds of what can go (`prunable.py`).
"""

from __future__ import annotations

import asyncio
import contextlib
import fcntl
import os
import time
from collections.abc import AsyncIterator, Collection, Iterator
from pathlib import Path

from ...artifacts import requirements
from ...isolation.rootfs import folder_cache as roots_store
from ...isolation.rootfs.images import Images
from ..hub.blobs import open_blobs
from ..hub.checkouts import Checkouts
from ..hub.uploads import Uploads
from ..stores.opening import open_store
from .disk_usage import size_of
from .prunable import Prunable, PruneScope


async def unused(place: PruneScope, kinds: Collection[str], older_than: float) -> list[Prunable]:
    """What can go, of these kinds, that was not used in so many seconds; the largest first."""
    found = await asyncio.to_thread(lambda: list(_on_disk(place.home, kinds, older_than)))
    if "bundles" in kinds and place.has_records:
        async with _uploads(place) as uploads:
            found += [Prunable("bundles", *facts, None) async for facts in uploads.unreferenced(older_than)]
    return sorted(found, key=lambda one: -one.size_bytes)


async def prune(place: PruneScope, kinds: Collection[str], older_than: float) -> list[Prunable]:
    """Remove it; what is gone. What was used at the last moment stays."""
    found = await unused(place, kinds, older_than)
    in_use = await asyncio.to_thread(used_by_processes)
    if "rootfs" in kinds:
        await _prune_rootfs(place.home, in_use, older_than)
    if "requirements" in kinds:
        await asyncio.to_thread(requirements.collect, place.home, in_use, older_than)
    if "code" in kinds:
        async with open_blobs(place.blobs, place.home) as blobs:
            await Checkouts(place.home, blobs).collect(older_than, in_use)
    if "bundles" in kinds and place.has_records:
        async with _uploads(place) as uploads:
            await uploads.collect(older_than)
            left = {facts[0] async for facts in uploads.unreferenced(older_than)}
            found = [one for one in found if one.kind != "bundles" or one.name not in left]
    return await asyncio.to_thread(_gone, found)


def _gone(found: list[Prunable]) -> list[Prunable]:
    """Remove the files among it; what is not there any more."""
    for one in found:
        if one.kind in ("evals", "logs") and one.path:
            one.path.unlink(missing_ok=True)
    return [one for one in found if one.path is None or not os.path.lexists(one.path)]


def used_by_processes() -> set[str]:
    """The names of all folders that a process has mounted or was started with: instances run there."""
    names = roots_store.mounted()
    for process in os.listdir("/proc"):
        with contextlib.suppress(OSError):  # it has ended, or belongs to another user
            if process.isdecimal():
                line = Path(f"/proc/{process}/cmdline").read_bytes().decode(errors="surrogateescape")
                names.update(line.replace("\0", "/").split("/"))
    return names


def _on_disk(home: Path, kinds: Collection[str], older_than: float) -> Iterator[Prunable]:
    in_use = used_by_processes()
    if "rootfs" in kinds:
        for place in _root_places(home):
            for folder in roots_store.unused(place, in_use | {"images", "steps"}, older_than):
                yield _sized("rootfs", folder, roots_store.last_use(folder))
    if "requirements" in kinds:
        for folder in requirements.unused(home, in_use, older_than):
            yield _sized("requirements", folder, requirements.last_use(folder))
    if "code" in kinds:
        for folder, used in Checkouts.unused(home, time.time() - older_than, in_use):
            yield _sized("code", folder, used)
    for kind, files in (("evals", sorted((home / "evals").glob("*.jsonl"))), ("logs", _logs(home))):
        for file in files if kind in kinds else ():
            with contextlib.suppress(FileNotFoundError):
                if (used := file.stat().st_mtime) < time.time() - older_than:
                    yield _sized(kind, file, used)


def _sized(kind: str, path: Path, used: float) -> Prunable:
    return Prunable(kind, path.name, size_of(path), used, path)


def _root_places(home: Path) -> list[Path]:
    top = home.expanduser().absolute() / "roots"
    return [place for place in (top, top / "images", top / "steps") if place.is_dir()]


def _logs(home: Path) -> list[Path]:
    """Those that have rotated; and the others, while no gateway has them open."""
    rotated = set((home / "run").glob("*.log.*"))
    return sorted(rotated | (set() if is_served(home) else set((home / "run").glob("*.log"))))


def is_served(home: Path) -> bool:
    """Whether a gateway has the home folder open."""
    try:
        with (home / "run" / "gateway.lock").open() as lock:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except FileNotFoundError:
        return False
    except BlockingIOError:
        return True
    return False


async def _prune_rootfs(home: Path, in_use: set[str], older_than: float) -> None:
    for place in _root_places(home):
        if place.name != "images":
            await asyncio.to_thread(roots_store.collect, place, in_use | {"images", "steps"}, older_than)
        else:
            await Images(home, pull="").collect(in_use, older_than)


@contextlib.asynccontextmanager
async def _uploads(place: PruneScope) -> AsyncIterator[Uploads]:
    async with open_store(place.store, place.home) as records, open_blobs(place.blobs, place.home) as blobs:
        yield Uploads(records, blobs, place.home / "blobs" / "incoming")
