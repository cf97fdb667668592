"""Sockets: unix sockets whose other end may be hostile, resets, and waiting for one without a read."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import struct

_SO_PASSRIGHTS = 83  # Linux 6.16; the same number on every machine that instances run on


def connect_unix(path: str) -> socket.socket:
    """A connection that takes no descriptors from its other end. OSError when there is none; never waits.

    A descriptor that was passed is closed by who reads the bytes next to it, and closing can take as long as the
    sender likes: a TCP socket with SO_LINGER holds up the whole event loop.
    """
    connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        connection.setblocking(False)
        refuse_descriptors(connection)
        connection.connect(path)
    except BaseException:
        connection.close()
        raise
    return connection


def refuse_descriptors(connection: socket.socket) -> bool:
    """Let the other end send no descriptors from now on; False where the kernel cannot refuse them.

    There, what protects us is that instances cannot make sockets linger (`isolation/sandbox/seccomp.py`).
    """
    with contextlib.suppress(OSError):
        connection.setsockopt(socket.SOL_SOCKET, _SO_PASSRIGHTS, 0)
        return True
    return False


def reset(transport: asyncio.Transport) -> None:
    """End the connection at once, and what the other end has not read with it.

    The kernel would keep that for minutes after an ordinary close.
    """
    connection: socket.socket = transport.get_extra_info("socket")
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    transport.abort()


async def readable(descriptor: int) -> None:
    """Return when there is something to read, or to accept."""
    loop, ready = asyncio.get_running_loop(), asyncio.Event()
    loop.add_reader(descriptor, ready.set)
    try:
        await ready.wait()
    finally:
        loop.remove_reader(descriptor)
