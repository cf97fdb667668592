"""Bundles in a folder: `<root>/ab/<digest>`, readable by their owner alone."""

from __future__ import annotations

import asyncio
import errno
import os
import shutil
from collections.abc import AsyncIterator
from pathlib import Path

from ...base.errors import NotFound
from .blobs import CHUNK, or_unavailable


class DirectoryBlobs:
    """Blobs on this machine, or on a folder that several share."""

    def __init__(self, root: Path) -> None:
        self._root = root

    async def put(self, digest: str, file: Path) -> None:
        with or_unavailable(f"bundle {digest}"):
            await asyncio.to_thread(self._put, digest, file)

    async def size(self, digest: str) -> int | None:
        try:
            return self._place(digest).stat().st_size
        except FileNotFoundError:
            return None

    async def read(self, digest: str, start: int = 0, end: int | None = None) -> AsyncIterator[bytes]:
        while end is None or start < end:
            with or_unavailable(f"bundle {digest}"):
                chunk = await asyncio.to_thread(self._read, digest, start)
            if not chunk:
                return
            yield chunk if end is None else chunk[: end - start]
            start += len(chunk)

    async def delete(self, digest: str) -> None:
        self._place(digest).unlink(missing_ok=True)

    async def url(self, digest: str, seconds: float) -> str | None:
        return None

    def _place(self, digest: str) -> Path:
        return self._root / digest[:2] / digest

    def _read(self, digest: str, start: int) -> bytes:
        # Opened for each part: a request that is cancelled leaves its thread behind, and closes nothing under it.
        try:
            with self._place(digest).open("rb", buffering=0) as file:
                file.seek(start)
                return file.read(CHUNK)
        except FileNotFoundError:
            raise NotFound(f"bundle {digest!r} not found") from None

    def _put(self, digest: str, file: Path) -> None:
        place = self._place(digest)
        place.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        try:
            self._move(file, place)
        except OSError as error:
            # Another mount: even of the same device, nothing is renamed between two mounts.
            if error.errno != errno.EXDEV:
                raise
            self._move(self._bring(file, place), place)
        # The name must survive a crash, too, before the client is told that the bundle is here.
        for folder in (place.parent, self._root):
            _sync(folder)

    def _move(self, file: Path, place: Path) -> None:
        with file.open("rb") as content:
            os.fchmod(content.fileno(), 0o600)
            os.fsync(content.fileno())
        file.rename(place)

    def _bring(self, file: Path, place: Path) -> Path:
        """A copy on the mount of `place`, since a file can be renamed on its own only."""
        copy = place.with_name(f"{file.name}.new")
        try:
            shutil.copyfile(file, copy)
        except BaseException:
            copy.unlink(missing_ok=True)
            raise
        file.unlink()
        return copy


def _sync(folder: Path) -> None:
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    except OSError as error:
        if error.errno != errno.EINVAL:  # a file system that has nothing to write for a folder
            raise
    finally:
        os.close(descriptor)
