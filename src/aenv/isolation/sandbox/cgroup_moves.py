"""Moving processes between cgroups faster, for the whole host: `favordynmods`.

Without it a move waits until every CPU has passed through the scheduler: some milliseconds, at times many. With it
moves are fast, and each fork and exit on the host is a little slower: so an administrator decides, not we. From
Linux 6.18 on it stays until the next boot once it was on; before, until `unfavour`.
"""

from __future__ import annotations

import os
from pathlib import Path

from ..cgroups.mounted import read_mounts
from . import system

OPTION = "favordynmods"
_NAME = "none,name=aenv"


def favour_moves(folder: Path, *, proc: Path = Path("/proc/self")) -> None:
    """Mount a hierarchy of our own on a new folder inside `folder`, or on hosts with version 2 alone ask that one.

    Nothing happens where it is on already. Needs root, and Linux 6.0; raises OSError.
    """
    if is_favoured(proc=proc):
        return
    if alone := _version_2_alone(proc):
        _remount(alone, proc, wanted=True)
        return
    target = folder / "favordynmods"
    target.mkdir(parents=True, exist_ok=True)
    try:
        system.mount("aenv", str(target), "cgroup", 0, f"{_NAME},{OPTION}")
    except BaseException:
        target.rmdir()
        raise


def unfavour(folder: Path, *, proc: Path = Path("/proc/self")) -> None:
    """Undo `favour_moves`; nothing happens when it was not done."""
    target = folder / "favordynmods"
    if any(mount.point == os.path.realpath(target) for mount in read_mounts(proc)):
        system.umount(str(target), 0)
    if target.is_dir():
        target.rmdir()
    elif (alone := _version_2_alone(proc)) and is_favoured(proc=proc):
        _remount(alone, proc, wanted=False)


def is_favoured(*, proc: Path = Path("/proc/self")) -> bool:
    """Whether a mounted hierarchy asks for it."""
    return any(OPTION in mount.options for mount in read_mounts(proc))


def command(*, proc: Path = Path("/proc/self")) -> str:
    """What an administrator would run to the same end."""
    if alone := _version_2_alone(proc):
        return f"mount -o remount,{OPTION} {alone}"
    folder = "/run/aenv/favordynmods"
    return f"mkdir -p {folder} && mount -t cgroup -o {_NAME},{OPTION} aenv {folder}"


def _version_2_alone(proc: Path) -> str | None:
    mounts = read_mounts(proc)
    return mounts[0].point if mounts and all(mount.version == 2 for mount in mounts) else None


def _remount(point: str, proc: Path, *, wanted: bool) -> None:
    """A remount sets every option anew, so the present ones go with it."""
    mount = next(mount for mount in read_mounts(proc) if mount.point == point)
    options = [option for option in mount.options if option not in ("rw", "ro", OPTION)]
    flags = system.MS_REMOUNT | sum(_FLAGS.get(word, 0) for word in mount.flags)
    system.mount(None, point, None, flags, ",".join([*options, *([OPTION] if wanted else [])]))


_FLAGS = {"nosuid": system.MS_NOSUID, "nodev": system.MS_NODEV, "noexec": system.MS_NOEXEC, "relatime": 1 << 21}
