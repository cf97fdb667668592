"""Accepting connections on a socket that several processes listen on, so that each gets its share.

A loop of uvloop's own accepts all that wait, and one process would get a whole burst. Here each takes one at a
time, and one that has more connections than another waits a moment for the other. Nothing is lost with a process
that is killed: what waits is in the socket that all have.
"""

from __future__ import annotations

import asyncio
import errno
import logging
import socket

from .forwarder import Forwarder

logger = logging.getLogger("aenv.control.gateway.forwarding")

_AFTER_YOU = 0.002  # seconds for which another process may take a connection first
_SHORTAGE = 1.0  # seconds to wait when there are no more descriptors


class Acceptor:
    """`with`: connections on `listener` are the forwarder's."""

    def __init__(self, forwarder: Forwarder, listener: socket.socket) -> None:
        self._forwarder = forwarder
        self._listener = listener
        self._loop = asyncio.get_running_loop()
        self._later: asyncio.TimerHandle | None = None
        listener.setblocking(False)

    def __enter__(self) -> Acceptor:
        self._listen()
        return self

    def __exit__(self, *exc: object) -> None:
        if self._later:
            self._later.cancel()
        self._loop.remove_reader(self._listener)

    def _listen(self) -> None:
        self._later = None
        self._loop.add_reader(self._listener, self._ready)

    def _ready(self) -> None:
        if self._forwarder.has_most:
            self._loop.remove_reader(self._listener)
            self._later = self._loop.call_later(_AFTER_YOU, self._accept_then_listen)
        else:
            self._accept()

    def _accept_then_listen(self) -> None:
        self._listen()
        self._accept()

    def _accept(self) -> None:
        try:
            connection, _ = self._listener.accept()
        except (BlockingIOError, InterruptedError, ConnectionAbortedError):
            return  # another process was faster, or the client has left
        except OSError as error:
            if error.errno not in (errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM):
                raise
            logger.warning("no connection can be accepted now: %s", error)
            self._loop.remove_reader(self._listener)
            self._later = self._loop.call_later(_SHORTAGE, self._listen)
            return
        connection.setblocking(False)
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._forwarder.start(self._serve(connection))

    async def _serve(self, connection: socket.socket) -> None:
        try:
            await self._loop.connect_accepted_socket(self._forwarder.connection, connection)
        except OSError:
            connection.close()  # the client has left
