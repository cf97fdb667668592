"""The host's folders, for Dockerfiles that stand on the host root: `RUN` can write into them.

What is the host's own stays so: a file of it can be hidden or replaced in a layer, and not be taken over. The same
would hold for its folders, and then nothing could be added to them. So a layer of empty folders like them, which
are ours, lies in between.
"""

from __future__ import annotations

import contextlib
import os
import stat
from collections.abc import Iterator
from pathlib import Path

from .host_rootfs import HostEntry, layer


def folders_layer(home: Path, folder: Path) -> Path:
    """A layer for above this folder of the host."""
    found = sorted(_folders(str(folder)))  # a folder before what lies in it
    parts = (f"{mode:o} {path}" for path, mode in found)
    return layer(home, "folders", parts, lambda: {path: HostEntry(mode) for path, mode in found})


def _folders(top: str) -> Iterator[tuple[str, int]]:
    """Those that every user may look into; what others hold stays out of sight."""
    waiting = [""]
    while waiting:
        path = waiting.pop()
        # The host's package manager may be at work.
        with contextlib.suppress(FileNotFoundError), os.scandir(f"{top}/{path}") as entries:
            for entry in entries:
                if entry.is_dir(follow_symlinks=False):
                    mode = stat.S_IMODE(entry.stat(follow_symlinks=False).st_mode)
                    if mode & 0o5 == 0o5:
                        inner = f"{path}/{entry.name}" if path else entry.name
                        yield inner, mode & 0o1755
                        waiting.append(inner)
