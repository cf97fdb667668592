"""Processes that commands have left behind: found, ended, and collected."""

from __future__ import annotations

import contextlib
import os
import select
import signal
from collections.abc import Iterator
from pathlib import Path

_ROUNDS = 100  # what starts processes as fast as they are killed stays
_DIES_MS = 100  # how long a process that was killed is waited for


def end_all_of(shell: int) -> None:
    """Kill a shell and all that it has started, in rounds: what is being killed may start something else."""
    wanted = {shell}
    for _ in range(_ROUNDS):
        members = _members(wanted)
        if not members:
            return
        wanted |= members  # what they have started keeps their number as its parent only until they are gone
        _kill(members)


def collect_orphans(keep: int) -> None:
    """Collect what has ended, and whose parent is this process now, but for `keep`, which has its own way.

    Only the first process of an instance is given the orphans of others; elsewhere there is nothing to do.
    """
    if os.getpid() != 1:
        return
    with contextlib.suppress(ChildProcessError):
        while True:
            ended = os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)
            if ended is None or ended.si_pid == keep:
                return
            os.waitpid(ended.si_pid, 0)


def _members(wanted: set[int]) -> set[int]:
    """These, the rest of their sessions, their descendants, and, in an instance, those without another parent."""
    parents, sessions = {}, {}
    for pid, parent, session in _processes():
        parents[pid], sessions[pid] = parent, session
    me = os.getpid()

    def belongs(pid: int) -> bool:
        while pid in parents and pid != me:
            if pid in wanted or sessions[pid] in wanted:
                return True
            pid = parents[pid]
        return pid == me == 1

    return {pid for pid in parents if pid != me and belongs(pid)}


def _processes() -> Iterator[tuple[int, int, int]]:
    """Number, parent and session of every process that has not ended."""
    for name in os.listdir("/proc"):
        if name.isdecimal():
            with contextlib.suppress(OSError):
                fields = Path(f"/proc/{name}/stat").read_bytes().rpartition(b")")[2].split()
                if fields[0] not in (b"Z", b"X"):
                    yield int(name), int(fields[1]), int(fields[3])


def _kill(pids: set[int]) -> None:
    poll, handles = select.poll(), []
    for pid in pids:
        with contextlib.suppress(ProcessLookupError):
            handles.append(os.pidfd_open(pid))
            poll.register(handles[-1], select.POLLIN)
            os.kill(pid, signal.SIGKILL)
    for handle in handles:
        poll.poll(_DIES_MS)
        poll.unregister(handle)
        os.close(handle)
