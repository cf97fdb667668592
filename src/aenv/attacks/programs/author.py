"""Attacks by the author of an environment, from the process that instances are forked from."""

from __future__ import annotations

import ctypes
import os
import signal
import socket
import stat

from attempt import Contained, Given, attack, checked, first, libc, main, mount, own

_REMOUNT_BIND = 32 | 4096
_NEW_USER, _NEW_MOUNT = 0x10000000, 0x20000


def _status(name: str) -> str:
    with open("/proc/self/status") as lines:
        return next(line.split()[1] for line in lines if line.startswith(f"{name}:"))


def _sockets() -> list[socket.socket]:
    found = []
    for name in os.listdir("/proc/self/fd"):
        try:
            if stat.S_ISSOCK(os.fstat(int(name)).st_mode):
                found.append(socket.socket(fileno=os.dup(int(name))))
        except OSError:
            continue  # the one that the folder was read by
    return found


@attack
def capabilities(given: Given) -> str:
    """What a process may do that others may not."""
    found = int(_status("CapEff"), 16)
    if not found:
        raise Contained("none")
    return f"{found:x}"


@attack
def change_our_code(given: Given) -> str:
    """What the gateway starts for the next command is read from here."""
    from aenv.isolation.sandbox import enter

    place = os.path.dirname(enter.__file__)
    if given.get("is_outside"):
        mount(place.encode(), place.encode(), flags=4096)
        mount(None, place.encode(), flags=_REMOUNT_BIND | 1)
    folder = place
    while folder != "/":  # whichever of them is mounted
        if libc.mount(None, folder.encode(), None, _REMOUNT_BIND, None) == 0:
            break
        folder = os.path.dirname(folder)
    with open(enter.__file__, "ab"):
        return "could have written to it"


@attack
def hold_a_socket_that_others_read(given: Given) -> str:
    """One on which something other than the stager listens: the peer of a stager is in this pid namespace."""
    if given.get("is_outside"):
        kept = socket.socketpair()  # this process stands for the gateway, which is in no namespace of an instance
        return f"{len(kept)} sockets, of process {os.getppid()}"
    for sock in _sockets():
        pid = int.from_bytes(sock.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12)[:4], "little")
        if pid == 0:  # one that has no number here
            return "a socket that leads out of the pid namespace"
    raise Contained("its sockets lead to the stager alone")


@attack
def hold_a_listener(given: Given) -> str:
    """Of the network, which the gateway accepts from."""
    for sock in _sockets():
        if sock.family == socket.AF_INET and sock.getsockopt(socket.SOL_SOCKET, socket.SO_ACCEPTCONN):
            return f"a listener at {sock.getsockname()}"
    raise Contained("none among its descriptors")


@attack
def end_the_stager(given: Given) -> str:
    """Stop it, which would stop all who wait for it; and kill it."""
    for number in (signal.SIGSTOP, signal.SIGKILL):
        os.kill(1, number)
    with open("/proc/1/status") as file:
        if "State:\tT" in file.read():
            return "it is stopped"
    raise Contained("it lives")


@attack
def look_into_the_stager(given: Given) -> str:
    """Its memory, its descriptors, its namespaces; also with all rights that it may use."""
    said = []
    for uses in (False, True):
        if uses:
            _use_all_rights()
        for name in ("mem", "environ", "fd", "ns/mnt", "root", "maps"):
            try:
                path = f"/proc/1/{name}"
                if name == "fd":
                    said += [os.readlink(f"{path}/{number}") for number in os.listdir(path)]
                else:
                    os.close(os.open(path, os.O_RDONLY))
                    said.append(name)
            except OSError:
                continue
    if not said:
        raise Contained("all of it is closed")
    return ", ".join(said)


@attack
def get_all_rights(given: Given) -> str:
    """Those of a user namespace come to who enters it, or makes it."""
    _use_all_rights()
    ways = (("", _NEW_USER), ("/proc/1/ns/user", _NEW_USER), ("/proc/self/ns/user", 0))

    def enter(way: tuple[str, int]) -> None:
        path, kind = way
        checked(libc.setns(os.open(path, os.O_RDONLY), kind) if path else libc.unshare(kind))

    first(ways, enter, f"has {_status('CapEff')}, and no other")
    return f"has {_status('CapEff')}"


@attack
def mount_with_all_rights(given: Given) -> str:
    """Over the user namespace that instances are in."""
    if given.get("is_outside"):
        checked(libc.unshare(_NEW_USER | _NEW_MOUNT))
    else:
        _use_all_rights()
    folder = own(given, "mounted")
    os.makedirs(folder, exist_ok=True)
    mount(b"none", folder.encode(), b"tmpfs")
    return "mounted a tmpfs"


def _use_all_rights() -> None:
    """Put all capabilities to use that this process may."""
    permitted = int(_status("CapPrm"), 16)
    if not permitted:
        raise Contained("it may use no rights at all")
    low, high = permitted & 0xFFFFFFFF, permitted >> 32
    header, sets = (ctypes.c_uint32 * 2)(0x20080522, 0), (ctypes.c_uint32 * 6)(low, low, 0, high, high, 0)
    checked(libc.capset(ctypes.byref(header), ctypes.byref(sets)))


if __name__ == "__main__":
    main()
