"""What Linux knows about processes: who they are, who belongs to an instance, when they end.

A process is named by its pid and its start time, because pids are used again. Nothing here polls: the
end of a process, ours or not, is a pidfd that becomes readable.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
from collections.abc import Iterator
from typing import NamedTuple

from .descriptors import readable

_STAT_BYTES = 4096  # more than the fifty numbers and the name that it holds


class Process(NamedTuple):
    """One process, and no other that has the same number later."""

    pid: int
    start_time: int

    def runs(self) -> bool:
        return start_time(self.pid) == self.start_time

    @contextlib.contextmanager
    def opened(self) -> Iterator[int | None]:
        """A pidfd of it; None when it has ended."""
        try:
            descriptor = os.pidfd_open(self.pid)
        except ProcessLookupError:
            yield None
            return
        try:
            # Asked when it is open: the descriptor does not mean a process that gets the number later.
            yield descriptor if self.runs() else None
        finally:
            os.close(descriptor)


def start_time(pid: int) -> int | None:
    """Clock ticks from boot to the start of `pid`; None when it does not run."""
    stat = _stat(pid)
    return int(stat[19]) if stat else None


def variables(pid: int) -> dict[str, str]:
    """The variables that `pid` was started with. OSError when it has ended."""
    pairs = (os.fsdecode(line).partition("=") for line in _environ(pid) if line)
    return {name: value for name, _, value in pairs}


def members(session: int | None, mark: bytes | None) -> list[int]:
    """The processes of a session, and those whose variables hold `mark`, wherever they moved to.

    The mark finds what left the session: a daemon, or a command that was given a session of its own.
    """
    return [pid for pid in _pids() if _belongs(pid, session, mark)]


async def ended(pid: int) -> None:
    """Return when `pid` has ended, also when it is not a child of ours. A child stays to be waited for."""
    try:
        descriptor = os.pidfd_open(pid)
    except ProcessLookupError:
        return
    try:
        await readable(descriptor)
    finally:
        os.close(descriptor)


async def end(leader: int | None, mark: bytes | None, grace: float) -> None:
    """End the session of `leader`, and all that carries `mark`: by asking, and after `grace` seconds by force."""
    if leader is not None and grace:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(leader, signal.SIGTERM)
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(grace):
                await ended(leader)
    # In rounds: what is being killed may have just started something else.
    while rest := await asyncio.to_thread(members, leader, mark):
        for pid in rest:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        await asyncio.gather(*(ended(pid) for pid in rest))


def how_it_ended(child: int) -> str:
    """Why a child process has ended, in words. It stays to be waited for, and so keeps its pid reserved."""
    try:
        status = os.waitid(os.P_PID, child, os.WEXITED | os.WNOWAIT | os.WNOHANG)
    except ChildProcessError:
        return "its process ended"
    if status is None:
        return "its process still runs"
    if status.si_code == os.CLD_EXITED:
        return f"its process exited with code {status.si_status}"
    return f"its process was killed by signal {status.si_status}"


def children(parent: int) -> list[int]:
    """The processes that `parent` has started, and that run."""
    return [pid for pid in _pids() if (stat := _stat(pid)) and int(stat[1]) == parent]


def _pids() -> Iterator[int]:
    return (int(name) for name in os.listdir("/proc") if name.isdecimal())


def _belongs(pid: int, session: int | None, mark: bytes | None) -> bool:
    stat = _stat(pid)
    if not stat:
        return False
    if int(stat[3]) == session:
        return True
    if mark is None:
        return False
    try:
        return mark in _environ(pid)
    except OSError:  # it has ended, or belongs to another user
        return False


def _environ(pid: int) -> list[bytes]:
    with open(f"/proc/{pid}/environ", "rb", buffering=0) as file:
        return file.read().split(b"\0")


def _stat(pid: int) -> list[bytes] | None:
    """The fields of /proc/<pid>/stat from the state on; None when `pid` does not run (a zombie does not)."""
    try:
        file = os.open(f"/proc/{pid}/stat", os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return None
    try:
        text = os.read(file, _STAT_BYTES)
    except OSError:
        return None
    finally:
        os.close(file)
    fields = text.rpartition(b")")[2].split()  # the program's name comes before, and may hold anything, even ')'
    # A first thread that has ended makes the process look like a zombie while its others run on.
    return None if fields[0] in (b"Z", b"X") and int(fields[17]) <= 1 else fields
