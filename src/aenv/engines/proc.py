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
from pathlib import Path

_PROC = Path("/proc")


def start_time(pid: int) -> int | None:
    """Clock ticks from boot to the start of `pid`; None when it does not run."""
    stat = _stat(pid)
    return int(stat[19]) if stat else None


def members(session: int | None, mark: bytes) -> list[int]:
    """The processes of a session, and those whose variables hold `mark`, wherever they moved to.

    The mark finds what left the session: a daemon, or a command that was given a session of its own.
    """
    return [pid for pid in _pids() if _belongs(pid, session, mark)]


def send(pid: int, number: signal.Signals) -> None:
    """Signal one process; fine when it is gone."""
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, number)


async def ended(pid: int) -> None:
    """Return when `pid` has ended, also when it is no child of ours. A child stays to be waited for."""
    try:
        descriptor = os.pidfd_open(pid)
    except ProcessLookupError:
        return
    loop = asyncio.get_running_loop()
    over = loop.create_future()
    loop.add_reader(descriptor, _finish, over)
    try:
        await over
    finally:
        loop.remove_reader(descriptor)
        os.close(descriptor)


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


def _finish(over: asyncio.Future[None]) -> None:
    if not over.done():
        over.set_result(None)


def _pids() -> Iterator[int]:
    return (int(entry.name) for entry in os.scandir(_PROC) if entry.name.isdecimal())


def _belongs(pid: int, session: int | None, mark: bytes) -> bool:
    stat = _stat(pid)
    if not stat:
        return False
    if int(stat[3]) == session:
        return True
    try:
        return mark in (_PROC / str(pid) / "environ").read_bytes().split(b"\0")
    except OSError:  # it has ended, or belongs to another user
        return False


def _stat(pid: int) -> list[bytes] | None:
    """The fields of /proc/<pid>/stat from the state on; None when `pid` does not run (a zombie does not)."""
    try:
        text = (_PROC / str(pid) / "stat").read_bytes()
    except OSError:
        return None
    fields = text.rpartition(b")")[2].split()  # the program's name comes before, and may hold anything, even ')'
    return None if fields[0] in (b"Z", b"X") else fields
