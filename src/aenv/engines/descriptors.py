"""Waiting for file descriptors: without threads, and without looking again and again."""

from __future__ import annotations

import asyncio
import ctypes
import os

_IN_MODIFY = 2
_libc = ctypes.CDLL(None, use_errno=True)


async def readable(*descriptors: int) -> set[int]:
    """Return when one of them has something to read, or has come to its end: those for which this is so."""
    loop = asyncio.get_running_loop()
    found: set[int] = set()
    first = loop.create_future()

    def note(descriptor: int) -> None:
        found.add(descriptor)
        if not first.done():
            first.set_result(None)

    for descriptor in descriptors:
        loop.add_reader(descriptor, note, descriptor)
    try:
        await first
    finally:
        for descriptor in descriptors:
            loop.remove_reader(descriptor)
    return found


async def writable(descriptor: int) -> None:
    """Return when it takes bytes, or has come to its end."""
    loop, ready = asyncio.get_running_loop(), asyncio.Event()
    loop.add_writer(descriptor, ready.set)
    try:
        await ready.wait()
    finally:
        loop.remove_writer(descriptor)


def watch(file: int) -> int:
    """A descriptor that becomes readable whenever a process writes to `file`. OSError when there are too many."""
    descriptor: int = _libc.inotify_init1(os.O_NONBLOCK | os.O_CLOEXEC)
    if descriptor < 0:
        raise OSError(ctypes.get_errno(), "no file can be watched")
    if _libc.inotify_add_watch(descriptor, b"/proc/self/fd/%d" % file, _IN_MODIFY) < 0:
        error = ctypes.get_errno()
        os.close(descriptor)
        raise OSError(error, "the file cannot be watched")
    return descriptor
