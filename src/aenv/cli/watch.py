"""Tells when the source of an environment changes: inotify on Linux, a look once a second elsewhere.

Watches every `.py` file and `config.json` below a folder; for a single file, its folder alone. Hidden folders
and installed packages are left out.
"""

from __future__ import annotations

import asyncio
import contextlib
import ctypes
import os
import struct
import sys
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Protocol

_CLOSE_WRITE, _MOVED_FROM, _MOVED_TO, _CREATE, _DELETE = 0x8, 0x40, 0x80, 0x100, 0x200
_IS_FOLDER = 0x4000_0000
_EVENT = struct.Struct("iIII")

_SETTLE = 0.05  # seconds without a further change: an editor's save is several of them
_LEFT_OUT = {"__pycache__", "node_modules", "venv", "site-packages"}


class Watcher(Protocol):
    async def changed(self) -> None:
        """Return after the next change, once it has settled."""
        ...


@contextlib.asynccontextmanager
async def watching(path: Path) -> AsyncIterator[Watcher]:
    """A watcher for the time of the block."""
    if sys.platform != "linux":
        yield _Looking(path)
        return
    with _Inotify(path) as watcher:
        yield watcher


def _is_source(name: str) -> bool:
    return (name.endswith(".py") and not name.startswith(".")) or name == "config.json"


def _folders(path: Path) -> Iterator[Path]:
    if path.is_file():
        yield path.parent
        return
    for folder, below, _ in os.walk(path):
        below[:] = filter(_is_wanted, below)
        yield Path(folder)


class _Inotify:
    """Sleeps in the kernel until a watched folder changes."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._libc = ctypes.CDLL(None, use_errno=True)
        self._watched: dict[int, Path] = {}
        self._change = asyncio.Event()

    def __enter__(self) -> _Inotify:
        self._fd = self._checked(self._libc.inotify_init1(os.O_NONBLOCK | os.O_CLOEXEC))
        for folder in _folders(self._path):
            self._watch(folder)
        asyncio.get_running_loop().add_reader(self._fd, self._read)
        return self

    def __exit__(self, *exc: object) -> None:
        asyncio.get_running_loop().remove_reader(self._fd)
        os.close(self._fd)

    async def changed(self) -> None:
        await self._change.wait()
        try:
            while True:
                self._change.clear()
                async with asyncio.timeout(_SETTLE):
                    await self._change.wait()
        except TimeoutError:
            return
        except BaseException:
            self._change.set()  # the caller was not told of it
            raise

    def _watch(self, folder: Path) -> None:
        mask = _CLOSE_WRITE | _MOVED_FROM | _MOVED_TO | _CREATE | _DELETE
        with contextlib.suppress(FileNotFoundError, NotADirectoryError):  # gone again: nothing to watch
            watch = self._checked(self._libc.inotify_add_watch(self._fd, os.fsencode(folder), mask))
            self._watched[watch] = folder

    def _read(self) -> None:
        events = os.read(self._fd, 1 << 16)
        while events:
            watch, mask, _, length = _EVENT.unpack_from(events)
            name = os.fsdecode(events[_EVENT.size : _EVENT.size + length].rstrip(b"\0"))
            events = events[_EVENT.size + length :]
            if watch in self._watched:
                self._note(self._watched[watch] / name, mask)

    def _note(self, path: Path, mask: int) -> None:
        if not mask & _IS_FOLDER:
            # A file that was only just created is empty still; its closing tells.
            if _is_source(path.name) and mask & ~_CREATE:
                self._change.set()
        elif mask & (_CREATE | _MOVED_TO) and self._path.is_dir() and _is_wanted(path.name):
            for folder in _folders(path):
                self._watch(folder)
                # Files may have come before the watch did.
                if any(_is_source(name) for name in _names(folder)):
                    self._change.set()
        elif mask & (_DELETE | _MOVED_FROM):
            self._change.set()

    @staticmethod
    def _checked(result: int) -> int:
        if result < 0:
            number = ctypes.get_errno()
            raise OSError(number, os.strerror(number))
        return result


class _Looking:
    """Compares the times of the files once a second, where the system has no inotify."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._seen = self._look()

    async def changed(self) -> None:
        while (now := self._look()) == self._seen:  # noqa: ASYNC110 - there is nothing to wait for
            await asyncio.sleep(1)
        self._seen = now

    def _look(self) -> dict[Path, int]:
        files = (folder / name for folder in _folders(self._path) for name in _names(folder))
        return {file: file.stat().st_mtime_ns for file in files if _is_source(file.name) and file.exists()}


def _is_wanted(name: str) -> bool:
    return not name.startswith(".") and name not in _LEFT_OUT


def _names(folder: Path) -> list[str]:
    try:
        return os.listdir(folder)
    except (FileNotFoundError, NotADirectoryError):
        return []
