"""User namespaces: who a process is, inside and outside; and new networks.

As root, ids 0 to 65535 inside are ids of the host that no user has. As an ordinary user, id 0 inside is that user,
and there is no other. Either way a process that enters is root of its own namespaces alone.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import signal
import socket
import struct
from dataclasses import dataclass

from . import system

ID_COUNT = 65536
_FIRST_RANGE = 0x7000  # ranges of ids that no account is in; each user namespace has one of its own
_RANGES = 0x0FFF
KEPT = (_FIRST_RANGE + _RANGES) * ID_COUNT
"""The first of the ids that lasting files have on the disk, which no user namespace gets: `lasting_folders.py`."""
_TCP_BUFFERS = "4096 16384 262144"  # bytes of a socket: at least, at first, at most


@dataclass(frozen=True)
class UserNamespace:
    """A user namespace that no process has entered yet."""

    descriptor: int
    owner: int
    """Who is root inside, on the host."""


def user_namespace() -> UserNamespace:
    """A new one. To be called in a process that has no threads."""
    if not is_root():
        return UserNamespace(_made(os.geteuid()), os.geteuid())
    import secrets  # costs some MiB, which processes that enter none do without

    owner = (_FIRST_RANGE + secrets.randbelow(_RANGES)) * ID_COUNT
    try:
        # Made by its own root: what the kernel counts for its owner is then neither the host's root's nor that of
        # other namespaces.
        return UserNamespace(_made(owner), owner)
    except PermissionError:  # on a host where only root may make them
        return UserNamespace(_made(owner, by_root=True), owner)


def shown_as(owner: int) -> int:
    """A user namespace that is never entered: a mount with it shows KEPT as files of `owner`. For root."""
    return _made(owner, by_root=True, first=KEPT)


def is_root() -> bool:
    """Whether this process is root of the host, and not of a user namespace that has few ids."""
    if os.geteuid() != 0:
        return False
    with open("/proc/self/uid_map") as lines:
        ranges = [tuple(map(int, line.split())) for line in lines]
    return any(begin <= _FIRST_RANGE * ID_COUNT < begin + count for begin, _, count in ranges)


def _made(owner: int, *, by_root: bool = False, first: int = 0) -> int:
    ready, told = os.pipe()
    holder = os.fork()
    if holder == 0:
        try:
            if is_root() and not by_root:
                os.setgroups([])
                os.setresgid(owner, owner, owner)
                os.setresuid(owner, owner, owner)
            system.unshare("user")
            os.write(told, b"+")
            signal.pause()
        except OSError as error:
            os.write(told, str(error.errno).encode())
        finally:
            os._exit(0)
    try:
        os.close(told)
        answer = os.read(ready, 16)
        if answer != b"+":
            number = int(answer or b"1")
            raise OSError(number, f"no new user namespace: {os.strerror(number).lower()}")
        _write_maps(holder, owner, first)
        return os.open(f"/proc/{holder}/ns/user", os.O_RDONLY | os.O_CLOEXEC)
    finally:
        os.close(ready)
        os.kill(holder, signal.SIGKILL)
        os.waitpid(holder, 0)


def enter(user_namespace: int, *others: str) -> None:
    """Be id 0 of a user namespace, with every capability inside it and none outside.

    With `others`, which are kinds of namespaces, the descriptor means a process. Its namespaces of these kinds are
    entered in the same moment: a process that is inside already may not look at that one.
    """
    system.setns(user_namespace, "user", *others)
    if _is_ranged("/proc/self/gid_map"):
        os.setgroups([])
    os.setresgid(0, 0, 0)
    os.setresuid(0, 0, 0)
    # Changing ids made us secret to /proc, our own folder there included.
    system.prctl(system.PR_SET_DUMPABLE, 1)


def map_same_ids(pid: int) -> None:
    """Give the user namespace of a process, which lies within ours, the ids that we have."""
    for kind in ("uid", "gid"):
        count = ID_COUNT if _is_ranged(f"/proc/self/{kind}_map") else 1
        _write(f"/proc/{pid}/{kind}_map", f"0 0 {count}")


def has_one_id() -> bool:
    """Whether there is no id but 0 in our user namespace: it was made by an ordinary user."""
    return not _is_ranged("/proc/self/uid_map")


def bring_up_loopback() -> None:
    """Let processes of a new network reach each other."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sock:
        up = struct.pack("16sh14x", b"lo", 1 | 64)  # IFF_UP, IFF_RUNNING
        fcntl.ioctl(sock, 0x8914, up)  # SIOCSIFFLAGS
    # Buffers of TCP count little where a limit of memory does not hold them all: see `cgroups/control_files.py`.
    for file in ("tcp_rmem", "tcp_wmem"):
        with contextlib.suppress(OSError):  # where /proc is covered
            _write(f"/proc/sys/net/ipv4/{file}", _TCP_BUFFERS)


def _write_maps(pid: int, owner: int, first: int) -> None:
    if is_root():
        uids = gids = f"{first} {owner} {ID_COUNT}"
    else:
        uids, gids = f"0 {os.geteuid()} 1", f"0 {os.getegid()} 1"
        _write(f"/proc/{pid}/setgroups", "deny")  # or an ordinary user may not map groups
    _write(f"/proc/{pid}/uid_map", uids)
    _write(f"/proc/{pid}/gid_map", gids)


def _is_ranged(path: str) -> bool:
    with open(path) as file:
        return int(file.read().split()[2]) > 1


def _write(path: str, text: str) -> None:
    file = os.open(path, os.O_WRONLY | os.O_CLOEXEC)
    try:
        os.write(file, text.encode())
    finally:
        os.close(file)
