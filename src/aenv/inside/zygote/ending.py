"""Ends what the author's code has started beside its instances: for the stager, when it is needed no more.

Who may go on is decided by parents, which no process chooses. What an instance starts has its first process above
it, and ends with it; what the gateway runs in an instance has a parent that has no number here. All else is the
author's: also in a pid namespace of its own, or in that of an instance, whose end it could hold up by not
collecting what it has started there.

A process that forks and ends, again and again, is gone before it is found; but each time it leaves a zombie to the
first process of the pid namespace, which this is. What has not ended after some rounds is stopped first, with all.
"""

from __future__ import annotations

import contextlib
import os
import signal
from collections.abc import Container, Mapping

_ROUNDS = 1000
_PLAIN_ROUNDS = 20


def end_others(leaders: Container[int]) -> None:
    """End what is in this pid namespace, but for this process, the first ones of instances, and what is theirs."""
    for _ in range(_PLAIN_ROUNDS):
        if not _one_round(leaders):
            return
    stopped_before = {pid for pid, (state, _) in _processes().items() if state == b"T"}
    _kill(-1, signal.SIGSTOP)  # in one moment, as the kernel does it: no fork gets away
    try:
        for _ in range(_ROUNDS):
            if not _one_round(leaders):
                return
    finally:
        for pid in _processes().keys() - stopped_before - {1}:
            _kill(pid, signal.SIGCONT)


def _one_round(leaders: Container[int]) -> bool:
    """Kill what is found; whether there was anything, or has been."""
    parents = {pid: parent for pid, (_, parent) in _processes().items()}
    found = [pid for pid in parents if pid != 1 and not _may_go_on(pid, parents, leaders)]
    for pid in found:
        _kill(pid, signal.SIGKILL)
    return _collect(leaders) or bool(found)


def _may_go_on(pid: int, parents: Mapping[int, int], leaders: Container[int]) -> bool:
    seen = set()  # the numbers were not read in one moment
    while pid not in leaders:
        seen.add(pid)
        pid = parents.get(pid, 1)
        if pid in seen or pid == 1:
            return False
        if pid == 0:
            return True
    return True


def _collect(leaders: Container[int]) -> bool:
    """Collect what has ended; whether any of it was not an instance."""
    others = False
    with contextlib.suppress(ChildProcessError):
        while pid := os.waitpid(-1, os.WNOHANG)[0]:
            others = others or pid not in leaders
    return others


def _kill(pid: int, number: signal.Signals) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, number)


def _processes() -> dict[int, tuple[bytes, int]]:
    """State and parent of all that run; a zombie does not."""
    found = {}
    for pid in map(int, filter(str.isdecimal, os.listdir("/proc"))):
        with contextlib.suppress(OSError), open(f"/proc/{pid}/stat", "rb") as file:
            state, parent = file.read().rpartition(b")")[2].split()[:2]
            if state not in (b"Z", b"X"):
                found[pid] = state, int(parent)
    return found
