"""What takes the space of a home folder, part by part."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from pathlib import Path

PARTS = {
    "rootfs": ("roots",),
    "requirements": ("requirements",),
    "bundles": ("blobs",),
    "code": ("environments",),
    "evals": ("evals",),
    "data": ("data",),
    "storage": ("storage",),
    "store": ("aenv.db", "aenv.db-wal", "aenv.db-shm"),
    "run": ("run",),
}
"""What stands where: `run` has logs and the folders of instances, `data` what 'aenv data pull' fetched."""


class Stopped(Exception):
    """The measuring was told to end."""


def sizes(home: Path, is_stopped: Callable[[], bool] = lambda: False) -> dict[str, int]:
    """Bytes on the disk by part. Walks everything, which takes a while: for a thread. Stopped when told to end."""
    return {
        part: sum(size_of(home / name, is_stopped) for name in names if os.path.lexists(home / name))
        for part, names in PARTS.items()
    }


def size_of(path: Path, is_stopped: Callable[[], bool] = lambda: False) -> int:
    """Bytes that a file or a folder takes on its disk. What vanishes meanwhile or is closed to us counts nothing.

    Never follows a link, and stays on its file system: what is mounted below takes space elsewhere.
    """
    try:
        first = os.lstat(path)
    except OSError:
        return 0
    total, waiting = first.st_blocks * 512, [os.fspath(path)]
    while waiting:
        if is_stopped():
            raise Stopped
        folder = waiting.pop()
        try:
            with os.scandir(folder) as entries:
                for entry in entries:
                    found = entry.stat(follow_symlinks=False)
                    if found.st_dev == first.st_dev:
                        total += found.st_blocks * 512
                        if entry.is_dir(follow_symlinks=False):
                            waiting.append(entry.path)
        except OSError:  # a file, or a folder that is gone or closed to us
            continue
    return total


def free_bytes(home: Path) -> int:
    """What is left on the disk of a home folder, for its user."""
    return shutil.disk_usage(_there(home)).free


def total_bytes(home: Path) -> int:
    """The size of that disk."""
    return shutil.disk_usage(_there(home)).total


def _there(home: Path) -> Path:
    return next(path for path in (home, *home.parents) if path.exists())
