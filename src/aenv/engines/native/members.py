"""The processes of an instance where no control group knows them: those of its pid namespace."""

from __future__ import annotations

import contextlib
import os
import signal

from ..proc import Process


def members(leader: Process) -> list[int]:
    """The processes in the pid namespace that `leader` is the first of; those that we may look at."""
    own = _namespace(leader.pid)
    if own is None or not leader.runs():
        return []
    return [pid for pid in map(int, filter(str.isdecimal, os.listdir("/proc"))) if _namespace(pid) == own]


def stop(leader: Process) -> None:
    """Stop them all. What is being stopped may have just started something else, so it takes rounds."""
    stopped: set[int] = set()
    while new := set(members(leader)) - stopped:
        _send(new, signal.SIGSTOP)
        stopped |= new


def go_on(leader: Process) -> None:
    """Let them go on; fine when they were not stopped."""
    _send(set(members(leader)), signal.SIGCONT)


def _send(pids: set[int], number: signal.Signals) -> None:
    for pid in pids:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.kill(pid, number)


def _namespace(pid: int) -> str | None:
    try:
        return os.readlink(f"/proc/{pid}/ns/pid")
    except OSError:  # it has ended, or is not ours to look at
        return None
