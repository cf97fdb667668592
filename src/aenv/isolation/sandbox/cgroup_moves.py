"""Moving processes between cgroups faster, for the whole host: `favordynmods`.

Without it a move waits until every CPU has passed through the scheduler: some milliseconds, at times many. With it
moves are fast, and each fork and exit on the host is a little slower: so an administrator decides, not we. From
Linux 6.18 on it stays until the next boot once it was on; before, while a hierarchy that asks for it is mounted.
"""

from __future__ import annotations

from pathlib import Path

from ..cgroups.mounted import read_mounts

OPTION = "favordynmods"
NAME = "none,name=aenv"


def is_favoured(*, proc: Path = Path("/proc/self")) -> bool:
    """Whether a mounted hierarchy asks for it."""
    return any(OPTION in mount.options for mount in read_mounts(proc))


def command(*, proc: Path = Path("/proc/self")) -> str:
    """What an administrator would run to the same end."""
    if alone := version_2_alone(proc):
        return f"mount -o remount,{OPTION} {alone}"
    folder = "/run/aenv/favordynmods"
    return f"mkdir -p {folder} && mount -t cgroup -o {NAME},{OPTION} aenv {folder}"


def version_2_alone(proc: Path) -> str | None:
    """Where version 2 is mounted, on a host that has no other."""
    mounts = read_mounts(proc)
    return mounts[0].point if mounts and all(mount.version == 2 for mount in mounts) else None
