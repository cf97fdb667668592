"""Locks between processes: refused, or waited for without blocking the event loop."""

from __future__ import annotations

import asyncio
import contextlib
import fcntl
import os
import threading
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

from .errors import Conflict


@contextlib.contextmanager
def alone(path: Path, refusal: str) -> Iterator[None]:
    """Inside, no other process has the lock of this file; Conflict with these words when one has it."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("a") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise Conflict(refusal) from None
        yield


@contextlib.asynccontextmanager
async def locked(path: Path) -> AsyncIterator[None]:
    """Inside, no other process and no other task has the lock of this file."""
    with path.open("a") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            await _wait(os.dup(file.fileno()))
        yield


async def _wait(descriptor: int) -> None:
    """Take the lock, and close `descriptor`: the lock stays with the caller's own, or is free when they left."""
    loop = asyncio.get_running_loop()
    taken = asyncio.Event()

    def wait() -> None:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        os.close(descriptor)
        with contextlib.suppress(RuntimeError):  # the loop has ended
            loop.call_soon_threadsafe(taken.set)

    # A thread of its own: this may take minutes, and the shared ones are few.
    threading.Thread(target=wait, name="aenv-lock", daemon=True).start()
    await taken.wait()
