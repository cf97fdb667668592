"""Files below a folder that another program writes to: reached part by part, so that neither a link nor a mount
leads out of it.

Every step is relative to an open folder. To check the whole path first, and open it then, would leave time to put
a link in between. A mount matters as much as a link: code with rights over its own mounts can lay any file that
it can name over one that we read, and we would read it with our rights.
"""

from __future__ import annotations

import contextlib
import ctypes
import errno
import functools
import io
import os
import secrets
import stat
from collections.abc import Iterable, Iterator
from pathlib import Path

from ..base.errors import InvalidRequest
from ..isolation.sandbox import system

_FOLDER = os.O_PATH | os.O_DIRECTORY | os.O_NOFOLLOW
_ROUNDS = 10  # of removing, while others go on adding
_OPENAT2 = 437  # the same number on every machine
_RESOLVE = 0x01 | 0x02 | 0x04 | 0x08  # no other mount, no magic link, no link, nothing above


@contextlib.contextmanager
def folder(root: Path | str, parts: Iterable[str], *, make: bool = False) -> Iterator[int]:
    """A descriptor of the folder `root/part/part/…`. NotADirectoryError where a part is a link or a mount."""
    current = os.open(root, _FOLDER)
    try:
        for part in parts:
            if make:
                with contextlib.suppress(FileExistsError):
                    os.mkdir(part, dir_fd=current)
            deeper = step(current, part, _FOLDER)
            os.close(current)
            current = deeper
        yield current
    finally:
        os.close(current)


def step(parent: int, name: str, flags: int, mode: int = 0) -> int:
    """Open what is in the folder `parent`, and neither behind a link nor on another mount.

    NotADirectoryError when it is elsewhere. With O_PATH, or O_CREAT for a file that is not there yet.
    """
    if "/" in name or name in ("", ".", ".."):
        raise InvalidRequest(f"bad name {name!r}; a step of a path has no '/'")
    if not _has_openat2():
        return _step_by_mount_ids(parent, name, flags, mode)
    try:
        return _openat2(parent, os.fsencode(name), flags, mode)
    except OSError as error:
        if error.errno in (errno.ELOOP, errno.EXDEV):
            raise _elsewhere(name) from None
        raise


def open_file(parent: int, name: str) -> io.BufferedReader:
    """A regular file, to be read. Opening anything else could wait forever, or do something."""
    handle = step(parent, name, os.O_PATH | os.O_NOFOLLOW)
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
            with contextlib.suppress(FileNotFoundError):  # another program was faster
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
    handle = step(parent, name, _FOLDER)
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


@functools.cache
def _has_openat2() -> bool:
    """Whether the kernel has it (Linux 5.6), and nothing around us refuses it."""
    try:
        os.close(_openat2(system.AT_FDCWD, b".", _FOLDER, 0))
    except OSError as error:
        if error.errno not in (errno.ENOSYS, errno.EPERM):
            raise
        return False
    return True


def _openat2(parent: int, name: bytes, flags: int, mode: int) -> int:
    how = (ctypes.c_uint64 * 3)(flags | os.O_CLOEXEC, mode, _RESOLVE)
    return system.syscall(_OPENAT2, parent, name, ctypes.byref(how), ctypes.sizeof(how))


def _step_by_mount_ids(parent: int, name: str, flags: int, mode: int) -> int:
    """The same, for older kernels: what was opened without following it is kept if it is on the same mount."""
    if flags & os.O_CREAT:
        # What is there already is refused, a link or a mount included.
        return os.open(name, flags | os.O_EXCL | os.O_NOFOLLOW, mode, dir_fd=parent)
    assert flags & os.O_PATH  # to open it otherwise could do something before we know where it is
    handle = os.open(name, flags | os.O_NOFOLLOW, dir_fd=parent)
    if _mount_of(handle) != _mount_of(parent):
        os.close(handle)
        raise _elsewhere(name)
    return handle


def _mount_of(descriptor: int) -> str:
    with open(f"/proc/self/fdinfo/{descriptor}") as lines:
        return next(line for line in lines if line.startswith("mnt_id:"))


def _elsewhere(name: str) -> NotADirectoryError:
    return NotADirectoryError(errno.ENOTDIR, "it leads through a link or a mount", name)
