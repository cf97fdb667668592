"""Linux's system calls that Python does not have, by ctypes. Each raises OSError as `os` does."""

from __future__ import annotations

import ctypes
import errno
import functools
import os
import platform
import signal
import struct

# Where 0 would be a flag's value, the name stands for itself.
NEW_NAMESPACES = {
    "user": 0x10000000,
    "pid": 0x20000000,
    "mount": 0x00020000,
    "network": 0x40000000,
    "ipc": 0x08000000,
    "uts": 0x04000000,
    "cgroup": 0x02000000,
}
NAMESPACE_FILES = {**{kind: kind for kind in NEW_NAMESPACES}, "mount": "mnt", "network": "net"}
"""How the kernel calls each kind in /proc."""
ROOM_NAMESPACES = ("mount", "ipc", "uts", "network")
"""What an instance enters; the last one only where the network is not the host's."""

MS_RDONLY = 1
MS_NOSUID = 2
MS_NODEV = 4
MS_NOEXEC = 8
MS_REMOUNT = 32
MS_BIND = 4096
MS_REC = 16384
MS_PRIVATE = 1 << 18
MNT_DETACH = 2

AT_FDCWD = -100
AT_EMPTY_PATH = 0x1000
AT_RECURSIVE = 0x8000
OPEN_TREE_CLONE = 1
OPEN_TREE_CLOEXEC = os.O_CLOEXEC
MOVE_MOUNT_F_EMPTY_PATH = 4
MOUNT_ATTR_RDONLY = 1
MOUNT_ATTR_NOSUID = 2
MOUNT_ATTR_NODEV = 4
MOUNT_ATTR_IDMAP = 0x00100000

_CLONE_CHILD_CLEARTID, _CLONE_CHILD_SETTID = 0x00200000, 0x01000000
_PR_GET_TID_ADDRESS = 40
PR_SET_PDEATHSIG = 1
PR_SET_DUMPABLE = 4
PR_CAPBSET_DROP = 24
PR_SET_NO_NEW_PRIVS = 38
PR_CAP_AMBIENT = 47
PR_CAP_AMBIENT_CLEAR_ALL = 4

# The same numbers on every machine that Linux came to late; pivot_root and capset are the old ones.
_NUMBERS = {"open_tree": 428, "move_mount": 429, "mount_setattr": 442, "pidfd_getfd": 438}
_NUMBERS |= {
    "x86_64": {"pivot_root": 155, "capset": 126, "clone": 56},
    "aarch64": {"pivot_root": 41, "capset": 91, "clone": 220},
}.get(platform.machine(), {})

_MOST_WORDS = 6
_libc = ctypes.CDLL(None, use_errno=True)
_with_lock = ctypes.PyDLL(None, use_errno=True)
_libc.syscall.restype = ctypes.c_long
# Six words, whatever a call takes: so none has to be wrapped, which each instance would do anew after its fork.
_libc.syscall.argtypes = (ctypes.c_long, *[ctypes.c_void_p] * _MOST_WORDS)
_libc.prctl.argtypes = (ctypes.c_int, *[ctypes.c_ulong] * 4)
_libc.mount.argtypes = (ctypes.c_char_p, ctypes.c_char_p, ctypes.c_char_p, ctypes.c_ulong, ctypes.c_char_p)


def syscall(number: int, *arguments: object, what: str = "") -> int:
    """Any system call, by its number. Pass pointers as ctypes objects or bytes; `what` is for errors."""
    result: int = _libc.syscall(number, *arguments, *_ZEROS[len(arguments) :])
    return result if result >= 0 else _checked(result, what)


def unshare(*kinds: str) -> None:
    """Leave these namespaces for new ones; a new pid namespace is for children only."""
    if _libc.unshare(_flags(kinds)) < 0:
        _checked(-1, f"new namespaces ({', '.join(kinds)})")


def setns(descriptor: int, *kinds: str) -> None:
    """Enter namespaces: of a namespace's file, or of the process that a pidfd means."""
    if _libc.setns(descriptor, _flags(kinds)) < 0:
        _checked(-1, f"entering namespaces ({', '.join(kinds)})")


def fork_as_init(*, tells_modules: bool) -> int:
    """As `os.fork`, but the child is the first process of a new pid namespace.

    Python's own preparations, and those that modules have asked for, are done where it `tells_modules`. They are
    about threads, and cost as much as the fork itself. Without them the caller seeds `random` in the child.
    """
    # The C library remembers its thread's number, and is not asked here: the kernel writes the new one there.
    place = ctypes.c_long()
    flags = NEW_NAMESPACES["pid"] | signal.SIGCHLD
    if not _libc.prctl(_PR_GET_TID_ADDRESS, ctypes.addressof(place), 0, 0, 0):  # not every kernel tells
        flags |= _CLONE_CHILD_SETTID | _CLONE_CHILD_CLEARTID
    zero = ctypes.c_long(0)
    last = (place, zero) if platform.machine() == "x86_64" else (zero, place)  # their order differs
    if tells_modules:
        ctypes.pythonapi.PyOS_BeforeFork()
    # With the interpreter's lock: a fork must not lose it.
    number = ctypes.c_long(_NUMBERS["clone"])
    pid: int = _with_lock.syscall(number, ctypes.c_long(flags), zero, zero, *last)
    if tells_modules:
        (ctypes.pythonapi.PyOS_AfterFork_Parent if pid else ctypes.pythonapi.PyOS_AfterFork_Child)()
    return _checked(pid, "fork")


def close_from(first: int) -> None:
    """Close every descriptor from this number on, however large it is."""
    os.closerange(first, _MOST_DESCRIPTORS)


def mount(source: str | None, target: str, kind: str | None, flags: int = 0, options: str = "") -> None:
    words = (_path(source), _path(target), _path(kind), flags, _path(options) if options else None)
    if _libc.mount(*words) < 0:
        _checked(-1, f"mount {kind or source} on {target}")


def umount(target: str, flags: int = MNT_DETACH) -> None:
    _checked(_libc.umount2(_path(target), flags), f"unmount {target}")


def pivot_root(new: str, old: str) -> None:
    syscall(_NUMBERS["pivot_root"], _path(new), _path(old), what=f"pivot_root to {new}")


def open_tree(path: str, *, recursive: bool = False) -> int:
    """A copy of the mount at `path`, attached nowhere yet."""
    flags = OPEN_TREE_CLONE | OPEN_TREE_CLOEXEC | (AT_RECURSIVE if recursive else 0)
    return syscall(_NUMBERS["open_tree"], AT_FDCWD, _path(path), flags, what=path)


def move_mount(tree: int, target: str) -> None:
    """Attach what `open_tree` gave."""
    words = (tree, b"", AT_FDCWD, _path(target), MOVE_MOUNT_F_EMPTY_PATH)
    syscall(_NUMBERS["move_mount"], *words, what=target)


def mount_setattr(tree: int, attributes: int, *, user_namespace: int = 0, recursive: bool = False) -> None:
    """Set attributes of a copy; with `user_namespace`, its owners are shown as that namespace maps them."""
    value = (ctypes.c_uint64 * 4)(attributes | (MOUNT_ATTR_IDMAP if user_namespace else 0), 0, 0, user_namespace)
    flags = AT_EMPTY_PATH | (AT_RECURSIVE if recursive else 0)
    syscall(_NUMBERS["mount_setattr"], tree, b"", flags, ctypes.byref(value), 32, what="mount_setattr")


def prctl(option: int, *values: int) -> int:
    result: int = _libc.prctl(option, *values, *_ZEROS[len(values) + 2 :])
    return result if result >= 0 else _checked(result, f"prctl {option}")


def act_as(id: int) -> None:
    """From now on this thread has the rights of that user and group over files, and no others."""
    _libc.setfsgid(id)
    _libc.setfsuid(id)
    if _libc.setfsuid(id) != id:  # they return what was before, and no error
        raise OSError(errno.EPERM, f"cannot act as user {id}")


def drop_bounding_capabilities(*kept: int) -> None:
    """No program that is started from here on can get any capability but these; this process keeps what it has."""
    prctl(PR_CAP_AMBIENT, PR_CAP_AMBIENT_CLEAR_ALL)
    for number in range(_last_capability() + 1):
        if number not in kept:
            prctl(PR_CAPBSET_DROP, number)


def permit_capabilities(*permitted: int, in_use: bool = False) -> None:
    """Nothing but these is left to this process, if any; and they only when they are put to use."""
    mask = 0
    for number in permitted:
        mask |= 1 << number
    low, high = mask & 0xFFFFFFFF, mask >> 32
    used_low, used_high = (low, high) if in_use else (0, 0)
    sets = _CAPABILITY_SETS.pack(used_low, low, 0, used_high, high, 0)  # effective, permitted, inheritable
    syscall(_NUMBERS["capset"], _CAPABILITY_HEADER, sets, what="capset")


_ZEROS = (0,) * _MOST_WORDS
_MOST_DESCRIPTORS = (1 << 31) - 1  # closed by one call of the kernel's, which does not count up to it
_CAPABILITY_HEADER = struct.pack("=2I", 0x20080522, 0)  # version 3, this process
_CAPABILITY_SETS = struct.Struct("=6I")


@functools.cache
def _last_capability() -> int:
    with open("/proc/sys/kernel/cap_last_cap") as file:
        return int(file.read())


def _flags(kinds: tuple[str, ...]) -> int:
    flags = 0
    for kind in kinds:
        flags |= NEW_NAMESPACES[kind]
    return flags


def _path(text: str | None) -> bytes | None:
    return None if text is None else os.fsencode(text)


def _checked(result: int, what: str = "") -> int:
    if result < 0:
        error = ctypes.get_errno()
        raise OSError(error, f"{os.strerror(error).lower()}{f': {what}' if what else ''}")
    return result
