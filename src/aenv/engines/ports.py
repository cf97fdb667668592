"""Ports: who listens, and where a server in an instance can be reached that shares the host's network."""

from __future__ import annotations

import contextlib
import os
import socket
import sys
from collections.abc import Iterable, Iterator

from ..base.addresses import Origin

_LISTENING = "0A"
_EVERYWHERE = "::"  # also for IPv4, unless the server said otherwise
# Who answers at a loopback address: all the listeners that a connection could end at.
_ANSWERING = {
    "127.0.0.1": {"127.0.0.1", "0.0.0.0", "::ffff:127.0.0.1", _EVERYWHERE},
    "::1": {"::1", _EVERYWHERE},
}


def find(port: int, pids: Iterable[int]) -> Origin | None:
    """Where the processes `pids` listen on `port`; None when they do not, or when another process answers there.

    Another process: beside the host's server at 127.0.0.1 an instance can listen on the same port at '::'. It
    must not get others connected to the host's.
    """
    listeners = list(_listeners(port))
    if not listeners:
        return None
    own = {inode for pid in pids for inode in _sockets(pid)}
    for host, addresses in _ANSWERING.items():
        answering = {inode for address, inode in listeners if address in addresses}
        if answering and answering <= own:
            return Origin(host, port)
    return None


def answers(port: int, pid: int) -> bool:
    """Whether a process listens on `port` in the network of process `pid`, at an address of its loopback."""
    reached = set().union(*_ANSWERING.values())
    return any(address in reached for address, _ in _listeners(port, pid))


def _listeners(port: int, pid: int | str = "self") -> Iterator[tuple[str, str]]:
    """The address and the inode of every socket that listens on `port`, in the network of a process."""
    for table in ("tcp", "tcp6"):
        with contextlib.suppress(OSError), open(f"/proc/{pid}/net/{table}") as lines:
            next(lines, None)
            for line in lines:
                fields = line.split()
                address, _, number = fields[1].partition(":")
                if fields[3] == _LISTENING and int(number, 16) == port:
                    yield _spelled(address), fields[9]


def _spelled(address: str) -> str:
    """An address as people write it, from words of 32 bits in the machine's order."""
    words = (int(address[at : at + 8], 16) for at in range(0, len(address), 8))
    packed = b"".join(word.to_bytes(4, sys.byteorder) for word in words)
    return socket.inet_ntop(socket.AF_INET if len(packed) == 4 else socket.AF_INET6, packed)


def _sockets(pid: int) -> Iterator[str]:
    """The inodes of the sockets that a process holds."""
    with contextlib.suppress(OSError), os.scandir(f"/proc/{pid}/fd") as descriptors:
        for entry in descriptors:
            with contextlib.suppress(OSError):
                target = os.readlink(entry.path)
                if target.startswith("socket:["):
                    yield target[8:-1]
