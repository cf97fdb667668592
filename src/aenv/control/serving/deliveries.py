"""Whether a reply has reached its client: the kernel knows what was acknowledged, and what was refused.

A client that goes away in the very moment in which it is answered looks alive until the reply has been sent.
"""

from __future__ import annotations

import asyncio
import fcntl
import os
import socket
import struct
import time
from typing import Protocol

from starlette.types import Scope

_SIOCOUTQ = 0x5411
_TCP_CLOSE = b"\7"
_PATIENCE = 5.0  # seconds for an acknowledgement; then it counts as delivered, since nothing says otherwise
_SHORTEST, _LONGEST = 0.001, 0.1  # seconds between two looks: no event tells of an acknowledgement


class ClientConnection(Protocol):
    """What a server puts into the scope of a request, under `CONNECTION`."""

    is_lost: bool
    """Whether it ended before the last request was answered."""

    def share(self) -> int:
        """A descriptor of the socket, for the caller to close; -1 when it is closed."""
        ...

    def peer_user(self) -> int | None:
        """The id of the user at the other end of a unix socket; None where the kernel does not say."""
        ...


CONNECTION = "aenv.connection"


class Delivery:
    """The delivery of one reply, made before that is sent. Await `arrived`: it closes what this holds."""

    def __init__(self, scope: Scope) -> None:
        self._connection: ClientConnection | None = scope.get(CONNECTION)
        # Of our own: once the reply is sent, the connection may be closed.
        self._descriptor = self._connection.share() if self._connection else -1

    async def arrived(self) -> bool:
        """After the reply was sent: False when it is certain that the client has not got it."""
        if self._connection is None:
            return True
        try:
            if self._connection.is_lost or self._descriptor < 0:
                return False
            with socket.socket(fileno=self._descriptor) as shared:
                self._descriptor = -1
                return await _acknowledged(shared)
        finally:
            if self._descriptor >= 0:
                os.close(self._descriptor)


async def _acknowledged(shared: socket.socket) -> bool:
    deadline, pause = time.monotonic() + _PATIENCE, _SHORTEST
    while True:
        if shared.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR):
            return False
        # Whether the client's host has refused what was sent: its program has closed the connection.
        is_tcp = shared.family != socket.AF_UNIX
        if is_tcp and shared.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, 1) == _TCP_CLOSE:
            return False
        # What the other end has not acknowledged, or on a unix socket not read.
        (unread,) = struct.unpack("i", fcntl.ioctl(shared.fileno(), _SIOCOUTQ, b"\0\0\0\0"))
        if unread == 0 or time.monotonic() > deadline:
            return True
        await asyncio.sleep(pause)
        pause = min(2 * pause, _LONGEST)
