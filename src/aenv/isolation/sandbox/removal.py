"""Removing what code that is not ours has left: however deep it is, and whatever may be done to its folders."""

from __future__ import annotations

import contextlib
import itertools
import os
import shutil
import stat

_number = itertools.count()


def remove(path: str) -> None:
    """Remove a file, a link or a folder; fine when there is none. What a link leads to stays.

    All folders inside are first moved to the top, one level at a time: no path gets long, and nothing recurs.
    """
    try:
        let_in(os.path.dirname(path) or ".")
        found = os.lstat(path)
    except (FileNotFoundError, NotADirectoryError):
        return
    if not stat.S_ISDIR(found.st_mode):
        os.unlink(path)
        return
    let_in(path)
    while inner := list(os.scandir(path)):
        for entry in inner:
            if not entry.is_dir(follow_symlinks=False):
                os.unlink(entry.path)
                continue
            let_in(entry.path)
            for below in list(os.scandir(entry.path)):
                if below.is_dir(follow_symlinks=False):
                    _move(below.path, f"{path}/.removed-{os.getpid()}-{next(_number)}")
                else:
                    os.unlink(below.path)
            os.rmdir(entry.path)
    os.rmdir(path)


def let_in(folder: str) -> None:
    """Let this process, which may have no capabilities, into a folder that was closed."""
    mode = os.lstat(folder).st_mode
    if stat.S_ISDIR(mode) and mode & 0o700 != 0o700:
        with contextlib.suppress(PermissionError):  # of another owner: what follows says so
            os.chmod(folder, stat.S_IMODE(mode) | 0o700)


def _move(old: str, new: str) -> None:
    let_in(old)  # or it may not be moved
    try:
        os.rename(old, new)
    except OSError:  # a folder of an image, in an overlay, cannot be moved; it was made with one of a usual depth
        shutil.rmtree(old)
