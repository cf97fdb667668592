"""Checkouts: bundles unpacked once on this machine, for all the instances that run their code."""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import secrets
import shutil
import time
from collections.abc import Collection
from pathlib import Path
from weakref import WeakValueDictionary

from ...artifacts import bundles
from ...base.errors import Conflict, Unavailable
from .blobs import Blobs, or_unavailable


class Checkouts:
    """Folders `<home>/environments/<digest>`, beside each a mark of when it was last asked for."""

    def __init__(self, home: Path, blobs: Blobs) -> None:
        self._root = home / "environments"
        self._blobs = blobs
        self._locks: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()

    async def folder(self, digest: str) -> Path:
        """The code of a bundle. Unpacked when it is first asked for, and whole: never seen half done."""
        place = self._root / digest
        with or_unavailable(f"environment {digest}"):
            self._root.mkdir(parents=True, exist_ok=True, mode=0o700)
            self._mark(digest).touch()  # before the look, so that it is not collected in between
            lock = self._locks.setdefault(digest, asyncio.Lock())
            async with lock:
                if not place.is_dir():
                    await self._make(digest, place)
        return place

    async def collect(self, unused_for: float, keep: Collection[str] = ()) -> None:
        """Remove what was not asked for in so many seconds, except what is still in use."""
        await asyncio.to_thread(self._collect, time.time() - unused_for, keep)

    async def _make(self, digest: str, place: Path) -> None:
        archive = self._root / f".{secrets.token_hex(8)}.tar.gz"
        sha = hashlib.sha256()
        try:
            async for chunk in self._blobs.read(digest):
                sha.update(chunk)
                await asyncio.to_thread(_append, archive, chunk)
            if sha.hexdigest() != digest:
                raise Unavailable(f"bundle {digest} is damaged where it is kept: it has sha256 {sha.hexdigest()}")
            with contextlib.suppress(Conflict):  # another process was faster
                await asyncio.to_thread(bundles.unpack, archive, place)
        finally:
            archive.unlink(missing_ok=True)

    def _mark(self, digest: str) -> Path:
        return self._root / f"{digest}.used"

    @staticmethod
    def unused(home: Path, before: float, keep: Collection[str]) -> list[tuple[Path, float]]:
        """The folders of a home that were not asked for since `before`, and when they were last."""
        marks = sorted((home / "environments").glob("*.used"))
        found = [(mark.with_suffix(""), mark.stat().st_mtime) for mark in marks if mark.stem not in keep]
        return [(folder, used) for folder, used in found if used < before]

    def _collect(self, before: float, keep: Collection[str]) -> None:
        for folder, _ in self.unused(self._root.parent, before, keep):
            # Renamed first: a request meanwhile gets a new one, and not one that is being removed.
            gone = self._root / f".{secrets.token_hex(8)}.gone"
            with contextlib.suppress(FileNotFoundError):
                folder.rename(gone)
            self._mark(folder.name).unlink(missing_ok=True)
        for left in self._root.glob(".*"):  # also by processes that did not live to clean up
            if left.name.endswith(".gone") or left.lstat().st_mtime < before:
                shutil.rmtree(left) if left.is_dir() else left.unlink(missing_ok=True)


def _append(file: Path, chunk: bytes) -> None:
    with file.open("ab") as growing:
        growing.write(chunk)
