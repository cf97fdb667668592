"""An event loop that runs before the fork: making one is a fifth of what an instance does until it serves.

The process that forks runs a loop, in a coroutine that never waits for it. A fork goes on in that coroutine. What
the loop holds of the kernel is shared then, and is replaced by what is the fork's own under the same numbers; the
loop has asked for no event yet, so nothing else of it is in the kernel.
"""

from __future__ import annotations

import asyncio
import fcntl
import os
import select
import signal
import socket
from collections.abc import Coroutine, Iterable
from dataclasses import dataclass
from typing import Any

from ..runtime import program


@dataclass(frozen=True)
class ForkedLoop:
    """The descriptors of a loop that has just begun to run."""

    loop: asyncio.AbstractEventLoop
    events: int
    """Its epoll."""
    wakers: tuple[int, ...]
    """The eventfds by which other threads wake it."""
    pipe: tuple[int, int]
    """By which libuv tells itself of signals: where it reads, and where it writes."""
    signals: tuple[int, int]
    """A pair of sockets: where it reads which signals came, and where Python writes that."""

    @property
    def descriptors(self) -> tuple[int, ...]:
        return self.events, *self.wakers, *self.pipe, *self.signals

    def renew(self) -> None:
        """Let it be this process's own. To be called in a fork, before anything is asked of the loop."""
        with select.epoll() as events:
            os.dup2(events.fileno(), self.events, inheritable=False)
        for waker in self.wakers:
            _put(os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC), waker)
        for place, end in zip(self.pipe, os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC), strict=True):
            _put(end, place)
        for place, pair in zip(self.signals, socket.socketpair(), strict=True):
            pair.setblocking(False)
            _put(pair.detach(), place)
        signal.set_wakeup_fd(self.signals[1], warn_on_full_buffer=False)
        asyncio._set_running_loop(self.loop)  # which asyncio forgets in another process


def lock_among(descriptors: Iterable[int]) -> tuple[int, int] | None:
    """The pipe by which libuv lets one thread at a time change signal handlers: where it is read, and written."""
    pipes = [one for one in descriptors if os.readlink(f"/proc/self/fd/{one}").startswith("pipe:")]
    pipes.sort(key=_access)
    return (pipes[0], pipes[1]) if len(pipes) == 2 else None


def renew_lock(lock: tuple[int, int]) -> None:
    """Let it be this process's own: who reads its only byte keeps all others that share it waiting."""
    read, written = os.pipe2(os.O_CLOEXEC)
    os.write(written, b"*")
    _put(read, lock[0])
    _put(written, lock[1])


def run(work: Coroutine[Any, Any, None]) -> None:
    """Run this on a new loop, which is the thread's own from now on."""
    loop = program.new_loop()
    asyncio.set_event_loop(loop)  # for code that still asks for it outside of a coroutine
    loop.run_until_complete(work)


def opened_since(before: Iterable[int], now: Iterable[int]) -> ForkedLoop | None:
    """The loop that runs now; None where it holds anything that a fork could not replace.

    `before` are the descriptors that were open before it was made.
    """
    kinds = {descriptor: os.readlink(f"/proc/self/fd/{descriptor}") for descriptor in {*now} - {*before}}
    events = [descriptor for descriptor, kind in kinds.items() if kind == "anon_inode:[eventpoll]"]
    wakers = tuple(descriptor for descriptor, kind in kinds.items() if kind == "anon_inode:[eventfd]")
    sockets = [descriptor for descriptor, kind in kinds.items() if kind.startswith("socket:")]
    pipes = [descriptor for descriptor, kind in kinds.items() if kind.startswith("pipe:")]
    pipes.sort(key=_access)
    written = signal.set_wakeup_fd(-1)
    signal.set_wakeup_fd(written, warn_on_full_buffer=False)
    has_all = (len(events), len(sockets), len(pipes)) == (1, 2, 2) and written in sockets
    if not has_all or len(kinds) != 5 + len(wakers) or _asks_for_events(events[0]):
        return None
    [read] = {*sockets} - {written}
    loop = asyncio.get_running_loop()
    return ForkedLoop(loop, events[0], wakers, (pipes[0], pipes[1]), (read, written))


def _access(descriptor: int) -> int:
    """Sorts what is read before what is written."""
    return fcntl.fcntl(descriptor, fcntl.F_GETFL) & os.O_ACCMODE


def _put(new: int, place: int) -> None:
    os.dup2(new, place, inheritable=False)
    os.close(new)


def _asks_for_events(epoll: int) -> bool:
    with open(f"/proc/self/fdinfo/{epoll}") as lines:
        return any(line.startswith("tfd:") for line in lines)
