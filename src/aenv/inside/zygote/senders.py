"""Who says something on a socket: the kernel tells, whatever the message itself says."""

from __future__ import annotations

import select
import socket
import struct

from ...isolation.sandbox import protocol

SO_PASSCRED = 16
_SCM_CREDENTIALS = 2
_CREDENTIALS = struct.Struct("3i")


def received(line: socket.socket) -> tuple[bytes, int]:
    """A message, and the pid of its sender, as the kernel says; empty when the other end is closed.

    Descriptors that come with it are not taken.
    """
    try:
        packet, ancillary, _, _ = line.recvmsg(protocol.MAX_BYTES + 1, socket.CMSG_SPACE(_CREDENTIALS.size))
    except ConnectionResetError:  # it was closed with a message of ours unread
        return b"", 0
    if not packet:
        return b"", 0
    for level, kind, data in ancillary:
        if level == socket.SOL_SOCKET and kind == _SCM_CREDENTIALS:
            return packet, _CREDENTIALS.unpack(data[: _CREDENTIALS.size])[0]
    raise protocol.Broken("a message without its sender")


def facts(pid: int) -> tuple[int, list[int]]:
    """The parent of a process, and its numbers: here, and in each pid namespace below down to its own."""
    with open(f"/proc/{pid}/status", "rb") as file:
        text = file.read()
    # Its first line is the name, in which the kernel spells a new line as two characters.
    parent, numbers = (text.partition(b"\n%b:\t" % name)[2].partition(b"\n")[0] for name in (b"PPid", b"NSpid"))
    return int(parent), [*map(int, numbers.split())]


def is_readable(line: socket.socket) -> bool:
    """Whether something waits there to be read, its end too."""
    poll = select.poll()
    poll.register(line, select.POLLIN)
    return bool(poll.poll(0))
