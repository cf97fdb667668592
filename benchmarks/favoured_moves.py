"""Favouring moves between cgroups for as long as a measurement takes (`isolation/sandbox/cgroup_moves.py`)."""

from __future__ import annotations

import os
from pathlib import Path

from aenv.isolation.cgroups.mounted import read_mounts
from aenv.isolation.sandbox import system
from aenv.isolation.sandbox.cgroup_moves import NAME, OPTION, is_favoured, version_2_alone


def favour_moves(folder: Path, *, proc: Path = Path("/proc/self")) -> None:
    """Mount a hierarchy of our own on a new folder inside `folder`, or on hosts with version 2 alone ask that one.

    Nothing happens where it is on already. Needs root, and Linux 6.0; raises OSError.
    """
    if is_favoured(proc=proc):
        return
    if alone := version_2_alone(proc):
        _remount(alone, proc, wanted=True)
        return
    target = folder / "favordynmods"
    target.mkdir(parents=True, exist_ok=True)
    try:
        system.mount("aenv", str(target), "cgroup", 0, f"{NAME},{OPTION}")
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
    elif (alone := version_2_alone(proc)) and is_favoured(proc=proc):
        _remount(alone, proc, wanted=False)


def _remount(point: str, proc: Path, *, wanted: bool) -> None:
    """A remount sets every option anew, so the present ones go with it."""
    mount = next(mount for mount in read_mounts(proc) if mount.point == point)
    options = [option for option in mount.options if option not in ("rw", "ro", OPTION)]
    flags = system.MS_REMOUNT | sum(_FLAGS.get(word, 0) for word in mount.flags)
    system.mount(None, point, None, flags, ",".join([*options, *([OPTION] if wanted else [])]))


_FLAGS = {"nosuid": system.MS_NOSUID, "nodev": system.MS_NODEV, "noexec": system.MS_NOEXEC, "relatime": 1 << 21}
