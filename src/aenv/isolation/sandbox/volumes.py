"""Volumes: file systems of a fixed size in a file of the host, for what is kept and must not grow without end.

A volume is mounted in the mount namespace of its user alone, and the kernel takes everything apart when that ends:
a crash leaves no mount on the host. Nothing but the kernel ever writes to the file.
"""

from __future__ import annotations

import contextlib
import ctypes
import errno
import fcntl
import os
import shutil
import struct
import subprocess
from collections.abc import Iterator
from pathlib import Path

from . import system
from .namespaces import KEPT, is_root

LEAST_BYTES = 16 << 20
_MAKE = "mkfs.ext4"
_FSOPEN, _FSCONFIG, _FSMOUNT = 430, 431, 432  # the same numbers on every machine
_SET_STRING, _CREATE = 1, 6
_CLOEXEC = 1
_CONTROL = "/dev/loop-control"
_GET_FREE, _CONFIGURE, _GET_STATUS = 0x4C82, 0x4C0A, 0x4C05
_AUTOCLEAR = 4
_CONFIG = "=II5Q4I160s2Q8Q"
"""The kernel's `struct loop_config`: the file, the size of blocks, `struct loop_info64`, and room."""
_STATUS = "=5Q4I160s2Q"
_ROUNDS = 20  # of looking for a free device, which others may take first


def why_not() -> str:
    """Why there can be no volumes here, and what to do about it; empty when there can."""
    if not is_root():
        return "an ordinary user cannot mount a file system of a fixed size; run aenv serve as root"
    if not shutil.which(_MAKE):
        return f"there is no program {_MAKE!r}; install e2fsprogs"
    if not os.path.exists(_CONTROL):
        return f"there is no {_CONTROL}; load the module 'loop', and let a container have its devices"
    return ""


def make(place: Path, size_bytes: int) -> None:
    """Make a volume, empty, whole or not at all. It takes up what is written to it, and at most this size."""
    work = place.with_name(f"{place.name}.new")
    try:
        with work.open("wb") as file:
            os.fchmod(file.fileno(), 0o600)
            file.truncate(max(size_bytes, LEAST_BYTES))
        subprocess.run(
            [_MAKE, "-q", "-F", "-m", "0", "-E", f"root_owner={KEPT}:{KEPT},nodiscard", str(work)],
            check=True,
            stdin=subprocess.DEVNULL,
            capture_output=True,
        )
        work.rename(place)
    except subprocess.CalledProcessError as error:
        raise OSError(errno.EIO, f"{_MAKE} failed: {error.stderr.decode(errors='replace').strip()}") from None
    finally:
        work.unlink(missing_ok=True)


def opened(place: str) -> int:
    """A mount of a volume, attached nowhere yet. For root."""
    with _device(place) as device:
        context = system.syscall(_FSOPEN, b"ext4", _CLOEXEC)
        try:
            system.syscall(_FSCONFIG, context, _SET_STRING, b"source", os.fsencode(device), 0)
            system.syscall(_FSCONFIG, context, _CREATE, 0, 0, 0)
            tree = system.syscall(_FSMOUNT, context, _CLOEXEC, system.MOUNT_ATTR_NOSUID | system.MOUNT_ATTR_NODEV)
        finally:
            os.close(context)
    with contextlib.suppress(OSError):  # of the program that makes it; users take it for a file of theirs
        os.rmdir("lost+found", dir_fd=tree)
    return tree


@contextlib.contextmanager
def _device(place: str) -> Iterator[str]:
    """The block device of a volume, for as long as the block lasts, and then for as long as it is mounted.

    A file that has one already gets the same again: two file systems on one file would destroy it. The lock keeps
    others from making a second one meanwhile.
    """
    # The lock is another opening's: the device keeps the first one, and a lock on it would last as long.
    with open(place, "r+b") as file, open(place, "rb") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        found = os.fstat(file.fileno())
        for _ in range(_ROUNDS):
            handle, device = _used(found) or _made(file.fileno())
            if handle is not None:
                break
        else:
            raise OSError(errno.EBUSY, f"no loop device is free for {place}")
        try:
            yield device
        finally:
            os.close(handle)


def _used(file: os.stat_result) -> tuple[int | None, str] | None:
    """The device that this file has already, open."""
    for name in sorted(os.listdir("/sys/block")):
        if not name.startswith("loop") or not os.path.exists(f"/sys/block/{name}/loop"):
            continue
        device = f"/dev/{name}"
        with contextlib.suppress(OSError):
            handle = os.open(device, os.O_RDWR | os.O_CLOEXEC)
            # Asked when it is open: from now on no other process takes it from the file.
            status = bytearray(struct.calcsize(_STATUS))
            try:
                fcntl.ioctl(handle, _GET_STATUS, status)
                if struct.unpack(_STATUS, status)[:2] == (_encoded(file.st_dev), file.st_ino):
                    return handle, device
            except OSError:  # it has no file any more
                pass
            os.close(handle)
    return None


def _made(file: int) -> tuple[int | None, str]:
    """A device for this file, open; it ends with its last user. None when others were faster."""
    control = os.open(_CONTROL, os.O_RDWR | os.O_CLOEXEC)
    try:
        device = f"/dev/loop{fcntl.ioctl(control, _GET_FREE)}"
    finally:
        os.close(control)
    handle = os.open(device, os.O_RDWR | os.O_CLOEXEC)
    info = (0, 0, 0, 0, 0, 0, 0, 0, _AUTOCLEAR, b"", 0, 0)
    try:
        fcntl.ioctl(handle, _CONFIGURE, struct.pack(_CONFIG, file, 0, *info, *(0,) * 8))
    except OSError as error:
        os.close(handle)
        if error.errno != errno.EBUSY:
            raise
        return None, device
    return handle, device


def _encoded(device: int) -> int:
    """As the kernel writes a device's number in old structures."""
    major, minor = os.major(device), os.minor(device)
    return ctypes.c_uint64((minor & 0xFF) | (major << 8) | ((minor & ~0xFF) << 12)).value
