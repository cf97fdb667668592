"""The process that plays a run, by a name that means no other, so that others can tell whether it is gone."""

from __future__ import annotations

import os
from pathlib import Path


def own() -> str:
    """This process: the boot of its machine, its pid namespace, its pid, and when it began."""
    return f"{_world()}/{os.getpid()}/{_start_time(os.getpid())}"


def is_gone(owner: str) -> bool:
    """Whether that process has ended. False where it cannot be known, as on another machine."""
    world, _, process = owner.partition("/")
    pid, _, since = process.partition("/")
    return world == _world() and pid.isdecimal() and _start_time(int(pid)) != since


def _world() -> str:
    boot = Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()
    return f"{boot}-{os.stat('/proc/self/ns/pid').st_ino}"


def _start_time(pid: int) -> str | None:
    """Clock ticks from boot to its start; None where there is no such process."""
    try:
        # After the name, which may hold anything.
        words = Path(f"/proc/{pid}/stat").read_bytes().rpartition(b")")[2].split()
    except OSError:
        return None
    return None if words[0] in (b"Z", b"X") else words[19].decode()
