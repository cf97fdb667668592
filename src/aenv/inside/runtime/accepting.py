"""Accepting connections of a unix socket, each only when epoll has room for it.

The kernel counts the epoll watches of all processes of a user, and a neighbour can hold them all. libuv ends the
process where epoll refuses a descriptor. So epoll is asked before, and libuv finds the descriptor there. A client
that there is no watch for is told to come again.
"""

from __future__ import annotations

import asyncio
import errno
import logging
import os
import select
import socket
from collections.abc import Callable

logger = logging.getLogger("aenv.inside.runtime.http")

_BACKLOG = 1024
_SHORTAGE = 1.0  # seconds to wait when there are no more descriptors
_TOLD = 1.0  # seconds in which a client that was refused reads that
_TEXT = b'{"error":"the user of this instance has no epoll watches left; try again"}'
_REFUSAL = (
    b"HTTP/1.1 503 Service Unavailable\r\ncontent-type: application/json\r\nretry-after: 1\r\n"
    b"connection: close\r\ncontent-length: %d\r\n\r\n%b" % (len(_TEXT), _TEXT)
)


class WatchedAcceptor:
    """Gives each connection of `listener` to a new protocol, from `open` to `close`."""

    def __init__(self, listener: socket.socket, connection: Callable[[], asyncio.Protocol]) -> None:
        self._listener = listener
        self._connection = connection
        self._loop = asyncio.get_running_loop()
        self._tasks: set[asyncio.Task[None]] = set()
        self._events: select.epoll | None = None

    def open(self) -> None:
        self._listener.setblocking(False)
        self._listener.listen(_BACKLOG)
        self._loop.add_reader(self._listener.fileno(), self._accept)

    def close(self) -> None:
        self._loop.remove_reader(self._listener.fileno())
        self._listener.close()
        if self._events:
            self._events.close()

    def _accept(self) -> None:
        try:
            connection, _ = self._listener.accept()
        except (BlockingIOError, InterruptedError, ConnectionAbortedError):
            return
        except OSError as error:
            if error.errno not in (errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM):
                raise
            logger.warning("no connection can be accepted now: %s", error)
            self._loop.remove_reader(self._listener.fileno())
            self._loop.call_later(_SHORTAGE, self._loop.add_reader, self._listener.fileno(), self._accept)
            return
        connection.setblocking(False)
        if self._is_watched(connection):
            task = self._loop.create_task(self._serve(connection))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)
        else:
            connection.send(_REFUSAL)
            self._loop.call_later(_TOLD, connection.close)

    async def _serve(self, connection: socket.socket) -> None:
        try:
            await self._loop.connect_accepted_socket(self._connection, connection)
        except OSError:
            connection.close()  # the client has left

    def _is_watched(self, connection: socket.socket) -> bool:
        """Let the loop's epoll take it, for no event yet; whether it did."""
        if not type(self._loop).__module__.startswith("uvloop"):
            return True  # asyncio's own loop raises an error where epoll refuses, and lives
        if self._events is None:
            # Private, and there for uvloop's own tests. To look for it in /proc takes half a millisecond.
            self._events = select.epoll.fromfd(os.dup(self._loop._get_backend_id()))  # type: ignore[attr-defined]
        try:
            self._events.register(connection.fileno(), 0)
        except OSError as error:
            if error.errno not in (errno.ENOSPC, errno.ENOMEM):
                raise
            return False
        return True
