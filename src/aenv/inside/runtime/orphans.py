"""Orphans: what a program that the environment has started leaves behind when it ends.

The first process of a pid namespace becomes their parent, and must collect them, or each stays as a zombie that
counts for the limit of processes. What the environment has started itself is left to it: it may still ask how
that ended.
"""

from __future__ import annotations

import _posixsubprocess
import asyncio
import contextlib
import os
import signal
import subprocess
from collections.abc import Callable
from typing import Any

_PAUSE = 1.0  # seconds between a death and its collection: C code that starts programs waits for them sooner
_MANY = 1000
# Every way of Python's to start a process. The kernel does not tell who was born as whose child.
_STARTS = (
    *((os, name) for name in ("fork", "forkpty", "posix_spawn", "posix_spawnp")),
    (subprocess, "_fork_exec"),
    (_posixsubprocess, "fork_exec"),
)


def begin(orphans: Orphans | None = None) -> Callable[[], None]:
    """Collect orphans from now on, on the running loop, where this is the first process of a pid namespace.

    What is returned is to be called now and then: once uvloop has started a process, the signal is its own.
    """
    if os.getpid() != 1:
        return lambda: None
    orphans = orphans or Orphans()
    orphans.begin(asyncio.get_running_loop())
    return orphans.check


class Orphans:
    """Notes what Python starts, from now on; forks of this process go on with it."""

    def __init__(self) -> None:
        self._loop: asyncio.AbstractEventLoop | None = None
        self._hears = False
        self._own: set[int] = set()
        """What the environment has started itself."""
        self._seen: set[int] = set()
        """Those of the last look, which are collected when they are still there at the next one."""
        self._timer: asyncio.TimerHandle | None = None
        for module, name in _STARTS:
            setattr(module, name, self._noting(getattr(module, name)))

    def hear(self) -> None:
        """Take the signal that tells of ends. Before a fork it costs the forks nothing, and does nothing yet."""
        self._hears = True
        signal.signal(signal.SIGCHLD, lambda *_: self.look_soon())

    def begin(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._own.clear()  # what the process before the fork has started has its number in another namespace
        if not self._hears:
            self.hear()

    def _noting(self, start: Callable[..., Any]) -> Callable[..., Any]:
        """The same function; what it starts is known here."""

        def started(*arguments: Any, **named: Any) -> Any:
            made = start(*arguments, **named)
            if pid := made[0] if isinstance(made, tuple) else made:  # 0 in the child itself
                self._own.add(pid)
            return made

        return started

    def check(self) -> None:
        """Look soon, if anything has ended."""
        if not self._own:  # nothing was started by Python, so the signal is still ours
            return
        with contextlib.suppress(ChildProcessError):  # there are none at all, as a rule
            if os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT):
                self.look_soon()

    def look_soon(self) -> None:
        if self._loop and self._timer is None:
            self._timer = self._loop.call_later(_PAUSE, self._look)

    def _look(self) -> None:
        self._timer = None
        dead = _zombies() - self._own
        for pid in dead & self._seen:
            with contextlib.suppress(ChildProcessError):
                os.waitpid(pid, os.WNOHANG)
        self._seen = dead - self._seen
        if len(self._own) > _MANY:
            self._own = {pid for pid in self._own if os.path.exists(f"/proc/{pid}")}
        if self._seen:
            self.look_soon()


def _zombies() -> set[int]:
    """The children of the first process that have ended, and that nothing has collected."""
    found = set()
    for name in filter(str.isdecimal, os.listdir("/proc")):
        with contextlib.suppress(OSError), open(f"/proc/{name}/stat", "rb") as file:
            state, parent = file.read().rpartition(b")")[2].split()[:2]
            if state == b"Z" and parent == b"1":
                found.add(int(name))
    return found
