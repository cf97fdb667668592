"""Owners: which process made something that has a name on the host, and whether it still runs.

By pid and start time: in containers every process that is started again has the same pid.
"""

from __future__ import annotations

import os
from functools import cache


def own() -> str:
    """This process, for a name: letters, digits and '-' alone."""
    return _named(os.getpid())


@cache  # each create asks; by pid, since a fork has another
def _named(pid: int) -> str:
    return f"{pid}-{_start_time(str(pid))}"


def runs(owner: str) -> bool:
    """Whether the process that `own` gave this name runs. An earlier version named the pid alone."""
    pid, _, since = owner.partition("-")
    found = _start_time(pid) if pid.isdecimal() else None
    return found is not None and since in ("", found)


def _start_time(pid: str) -> str | None:
    """Clock ticks from boot to its start; None when there is no such process."""
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:
            # After the name, which may hold anything.
            return file.read().rpartition(b")")[2].split()[19].decode()
    except OSError:
        return None
