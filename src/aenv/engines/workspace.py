"""The files of an instance's workspace, for engines that can reach it as a folder of the host."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import heapq
import os
import secrets
import stat
from abc import ABC, abstractmethod
from collections.abc import AsyncIterable, AsyncIterator, Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO, Literal

from ..base.errors import InvalidRequest, NotFound, Unavailable
from ..isolation.sandbox import system
from . import files_below
from .base import MAX_ENTRIES, FileEntry
from .folder import InstanceFolder
from .proc import Process

_PIECE_BYTES = 256 << 10
_FULL = (errno.ENOSPC, errno.EDQUOT)

Entries = list[FileEntry]  # a class below has a method `list`
Acting = Callable[[], contextlib.AbstractContextManager[None]]


@dataclass(frozen=True)
class Workspace:
    """The files of a folder below `root`. Code in the instance changes them at any time, also while we do.

    What is being written is kept in the folder `aside`. Whenever files are named, it is done inside `acting()`.
    """

    root: Path | str
    id: str
    folder: tuple[str, ...]
    aside: tuple[str, ...]
    acting: Acting = contextlib.nullcontext

    async def put(self, path: str, content: AsyncIterable[bytes]) -> int:
        """Write a file, whole or not at all, and make the folders above it; returns its size."""
        *above, name = _split(path)
        size = 0
        # Written beside the workspace: half a file is never seen there, and destroying the instance removes it.
        temporary = f"put-{secrets.token_hex(8)}"
        with self._told(path):
            file = self._create(temporary)
        try:
            async for piece in content:
                with self._told(path):
                    await asyncio.to_thread(file.write, piece)
                size += len(piece)
            with self._told(path):
                await asyncio.to_thread(file.close)
                self._move(temporary, above, name)
        finally:
            with contextlib.suppress(OSError):
                file.close()
            with contextlib.suppress(OSError), self.acting(), files_below.folder(self.root, self.aside) as own:
                os.unlink(temporary, dir_fd=own)
        return size

    async def read(self, path: str) -> AsyncIterator[bytes]:
        """The content of a file, as long as it was when it was opened."""
        *above, name = _split(path)
        with self._told(path), self.acting(), files_below.folder(self.root, [*self.folder, *above]) as parent:
            file = files_below.open_file(parent, name)
        with file:
            left = os.fstat(file.fileno()).st_size
            while piece := await asyncio.to_thread(file.read, min(left, _PIECE_BYTES)):
                left -= len(piece)
                yield piece

    async def entries(self, path: str, *, after: str = "", limit: int = MAX_ENTRIES) -> list[FileEntry]:
        """What is in a folder, by name: the first `limit` of those whose name comes after `after`."""
        return await asyncio.to_thread(self._entries, path, after, limit)

    async def remove(self, path: str) -> None:
        """Remove a file, or a folder with all that is in it."""
        await asyncio.to_thread(self._remove, path)

    def _create(self, name: str) -> BinaryIO:
        with self.acting(), files_below.folder(self.root, self.aside) as own:
            return os.fdopen(files_below.step(own, name, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o666), "wb")

    def _move(self, temporary: str, above: list[str], name: str) -> None:
        with (
            self.acting(),
            files_below.folder(self.root, self.aside) as own,
            files_below.folder(self.root, [*self.folder, *above], make=True) as parent,
        ):
            os.rename(temporary, name, src_dir_fd=own, dst_dir_fd=parent)

    def _entries(self, path: str, after: str, limit: int) -> list[FileEntry]:
        parts = _split(path) if path else []
        with self._told(path), self.acting(), files_below.folder(self.root, [*self.folder, *parts]) as parent:
            opened = os.open(".", os.O_RDONLY, dir_fd=parent)
            try:
                return list(_entries(opened, parts, after, limit))
            finally:
                os.close(opened)

    def _remove(self, path: str) -> None:
        *above, name = _split(path)
        with self._told(path), self.acting(), files_below.folder(self.root, [*self.folder, *above]) as parent:
            files_below.remove(parent, name)

    @contextlib.contextmanager
    def _told(self, path: str) -> Iterator[None]:
        """What the system says about `path`, as an error of ours."""
        try:
            yield
        except FileNotFoundError:
            raise NotFound(f"{path!r} not found in the workspace of instance {self.id!r}") from None
        except OSError as error:
            reason = (error.strerror or str(error)).lower()
            if error.errno in _FULL:
                raise Unavailable(f"cannot write {path!r}: {reason}", retry_after=60) from error
            if isinstance(error, NotADirectoryError):
                reason = "it leads through a link, a mount, or something else that is not a folder"
            raise InvalidRequest(f"cannot use {path!r}: {reason}") from error


class WorkspaceFiles(ABC):
    """The part of an engine that is `Files`, of instances whose folders are below `root`."""

    def __init__(self, root: Path) -> None:
        self._root = root

    async def put(self, id: str, path: str, content: AsyncIterable[bytes]) -> int:
        return await self._workspace(id).put(path, content)

    def read(self, id: str, path: str) -> AsyncIterator[bytes]:
        return self._workspace(id).read(path)

    async def list(self, id: str, path: str = "", *, after: str = "", limit: int = MAX_ENTRIES) -> Entries:
        return await self._workspace(id).entries(path, after=after, limit=limit)

    async def remove(self, id: str, path: str) -> None:
        await self._workspace(id).remove(path)

    @abstractmethod
    def _workspace(self, id: str) -> Workspace:
        """Of an instance that lives; NotFound when it does not."""

    def _living(self, id: str) -> tuple[InstanceFolder, Process]:
        """The folder of an instance, and the process that leads it."""
        with contextlib.suppress(InvalidRequest):
            folder = InstanceFolder(self._root, id)
            if leader := folder.leader():
                return folder, leader
        raise NotFound(f"instance {id!r} not found")


@contextlib.contextmanager
def acting_as(owner: int) -> Iterator[None]:
    """Inside, this thread has the instance's rights over files, and what it makes is the instance's."""
    if owner == os.geteuid():  # an ordinary user is the same inside and outside
        yield
        return
    system.act_as(owner)
    try:
        yield
    finally:
        system.act_as(0)


def _split(path: str) -> list[str]:
    parts = path.split("/")
    if "\0" in path or not {"", ".", ".."}.isdisjoint(parts):
        raise InvalidRequest(f"bad path {path!r}; write it relative to the workspace, as in 'folder/file.txt'")
    try:
        os.fsencode(path)
    except UnicodeEncodeError:
        raise InvalidRequest(f"bad path {path!r}; it has no UTF-8 form") from None
    return parts


def _entries(folder: int, above: list[str], after: str, limit: int) -> Iterator[FileEntry]:
    """Those that are asked for are looked at, and of the others only the names are read.

    Not `sorted`: of very many names that would keep every other thread waiting, as one call that holds the lock.
    """
    with os.scandir(folder) as entries:
        named = ((_shown(entry.name), entry.name) for entry in entries)
        chosen = heapq.nsmallest(limit, (names for names in named if names[0] > after))
    for shown, name in chosen:
        try:
            status = os.stat(name, dir_fd=folder, follow_symlinks=False)
        except FileNotFoundError:  # gone since it was listed
            continue
        yield FileEntry("/".join([*above, shown]), _kind(status.st_mode), status.st_size, status.st_mtime)


def _shown(name: str) -> str:
    """A name that is no UTF-8 has no JSON form either."""
    return name if name.isascii() else os.fsencode(name).decode(errors="backslashreplace")


def _kind(mode: int) -> Literal["file", "folder", "link", "other"]:
    if stat.S_ISREG(mode):
        return "file"
    if stat.S_ISDIR(mode):
        return "folder"
    return "link" if stat.S_ISLNK(mode) else "other"
