"""Files below a folder that somebody else writes to: reached part by part, so that no link leads out of it.

Every step is relative to an open folder. To check the whole path first, and open it then, would leave time to put
a link in between.
"""

from __future__ import annotations

import contextlib
import errno
import io
import os
import secrets
import stat
from collections.abc import Iterable, Iterator
from pathlib import Path

from ..errors import InvalidRequest

_FOLDER = os.O_PATH | os.O_DIRECTORY | os.O_NOFOLLOW
_ROUNDS = 10  # of removing, while somebody goes on adding


@contextlib.contextmanager
def folder(root: Path | str, parts: Iterable[str], *, make: bool = False) -> Iterator[int]:
    """A descriptor of the folder `root/part/part/…`. NotADirectoryError where a part is a link."""
    current = os.open(root, _FOLDER)
    try:
        for part in parts:
            if make:
                with contextlib.suppress(FileExistsError):
                    os.mkdir(part, dir_fd=current)
            deeper = os.open(part, _FOLDER, dir_fd=current)
            os.close(current)
            current = deeper
        yield current
    finally:
        os.close(current)


def open_file(parent: int, name: str) -> io.BufferedReader:
    """A regular file, to be read. Opening anything else could wait forever, or do something."""
    handle = os.open(name, os.O_PATH | os.O_NOFOLLOW, dir_fd=parent)
    try:
        if not stat.S_ISREG(os.fstat(handle).st_mode):
            raise InvalidRequest(f"{name!r} is not a regular file")
        # Not to wait: code in the instance could have made it a file that is opened only after a while.
        return open(os.open(f"/proc/self/fd/{handle}", os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC), "rb")
    finally:
        os.close(handle)


def remove(parent: int, name: str) -> None:
    """Remove a file, or a folder with all that is in it, however deep that is. Links are removed, not followed."""
    if not stat.S_ISDIR(os.stat(name, dir_fd=parent, follow_symlinks=False).st_mode):
        os.unlink(name, dir_fd=parent)
        return
    with _opened(parent, name) as top:
        for left in reversed(range(_ROUNDS)):
            _clear(top)
            try:
                os.rmdir(name, dir_fd=parent)
            except OSError as error:
                if error.errno != errno.ENOTEMPTY or not left:
                    raise
            else:
                return


def _clear(top: int) -> None:
    found = _empty(top, top)
    while found:
        inner = found.pop()
        with _opened(top, inner) as deeper:
            found += _empty(deeper, top)
        os.rmdir(inner, dir_fd=top)


def _empty(current: int, top: int) -> list[str]:
    """Remove the files of a folder, and move its folders up to `top`: depth costs neither stack nor open files."""
    moved = []
    with os.scandir(current) as entries:
        for entry in list(entries):
            with contextlib.suppress(FileNotFoundError):  # somebody else was faster
                if not entry.is_dir(follow_symlinks=False):
                    os.unlink(entry.name, dir_fd=current)
                    continue
                with _opened(current, entry.name):  # a folder that cannot be written to cannot be moved either
                    new = f".removed-{secrets.token_hex(8)}"
                    os.rename(entry.name, new, src_dir_fd=current, dst_dir_fd=top)
                    moved.append(new)
    return moved


@contextlib.contextmanager
def _opened(parent: int, name: str) -> Iterator[int]:
    """A folder that can be listed and changed, whatever its owner's permissions were."""
    handle = os.open(name, _FOLDER, dir_fd=parent)
    try:
        with contextlib.suppress(PermissionError):  # another user's; perhaps it can be changed nevertheless
            os.chmod(f"/proc/self/fd/{handle}", 0o700)
        descriptor = os.open(".", os.O_RDONLY, dir_fd=handle)
    finally:
        os.close(handle)
    try:
        yield descriptor
    finally:
        os.close(descriptor)
