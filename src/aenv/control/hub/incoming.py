"""Uploads on their way: files that grow, may break off, and go on from where they stopped."""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import os
import threading
import time
from collections import OrderedDict
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from ...base.errors import Conflict, Unavailable
from .blobs import CHUNK, or_unavailable

if TYPE_CHECKING:
    from hashlib import _Hash

_MAX_REMEMBERED = 4096


@dataclass
class _Progress:
    """What this process knows of a file, so that it need not be read again for every part."""

    size: int = 0
    digest: _Hash = field(default_factory=hashlib.sha256)
    writer: object = None
    """Whose bytes count. A client that tries again has left its old connection, though we may not know yet."""
    lock: threading.Lock = field(default_factory=threading.Lock)
    """Held by threads: a request that is cancelled leaves its last one behind, which must finish in peace."""


class Incoming:
    """Unfinished files in one folder, by name."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._known: OrderedDict[str, _Progress] = OrderedDict()

    def path(self, name: str) -> Path:
        return self._folder / name

    def offset(self, name: str) -> int:
        """How many bytes have come."""
        try:
            return self.path(name).stat().st_size
        except FileNotFoundError:
            return 0

    async def append(self, name: str, offset: int, chunks: AsyncIterator[bytes]) -> tuple[int, str]:
        """Add a part; the size and sha256 of all that has come. Conflict unless the part begins at `offset`.

        What came before a connection broke is kept. When the disk is full, nothing is: others need the space.
        """
        progress = self._known.setdefault(name, _Progress())
        self._known.move_to_end(name)
        if len(self._known) > _MAX_REMEMBERED:
            self._known.popitem(last=False)
        me = object()
        try:
            with or_unavailable("the upload"):
                await asyncio.to_thread(self._take_over, name, progress, me)
                if progress.size != offset:
                    raise Conflict(f"the upload is at offset {progress.size}, not {offset}; go on from there")
                async for part in _in_large_parts(chunks):
                    await asyncio.to_thread(self._write, name, progress, me, part)
        except Unavailable:
            self.drop(name)
            raise
        return progress.size, progress.digest.hexdigest()

    def drop(self, name: str) -> None:
        """Forget a file; fine when there is none."""
        self._known.pop(name, None)
        self.path(name).unlink(missing_ok=True)

    def drop_older_than(self, seconds: float) -> None:
        """Forget what has not grown for so long."""
        for path in self._folder.glob("*"):
            with contextlib.suppress(FileNotFoundError):
                if path.stat().st_mtime < time.time() - seconds:
                    self.drop(path.name)

    def _take_over(self, name: str, progress: _Progress, writer: object) -> None:
        with progress.lock:
            progress.writer = writer
            self._folder.mkdir(parents=True, exist_ok=True, mode=0o700)
            descriptor = os.open(self.path(name), os.O_CREAT | os.O_RDONLY, 0o600)
            with open(descriptor, "rb") as file:
                if progress.size == self.offset(name):
                    return
                # It was written before this process began, or before it forgot.
                progress.size, progress.digest = 0, hashlib.sha256()
                while chunk := file.read(CHUNK):
                    progress.digest.update(chunk)
                    progress.size += len(chunk)

    def _write(self, name: str, progress: _Progress, writer: object, part: bytes) -> None:
        with progress.lock:
            if progress.writer is not writer:
                raise Conflict("another request goes on with this upload")
            with self.path(name).open("ab", buffering=0) as file:
                left = memoryview(part)
                while left:
                    written = file.write(left)
                    progress.digest.update(left[:written])
                    progress.size += written
                    left = left[written:]


async def _in_large_parts(chunks: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
    """The same bytes, in fewer parts: each costs a visit to another thread."""
    parts: list[bytes] = []
    size = 0
    async for chunk in chunks:
        parts.append(chunk)
        size += len(chunk)
        if size >= CHUNK:
            yield b"".join(parts)
            parts, size = [], 0
    if size:
        yield b"".join(parts)
