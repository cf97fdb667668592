"""The data port of a gateway: served by this process, or by workers; what they do not answer, by this process."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator, Sequence
from socket import socket

from ...serving import listeners
from ..parts import Parts
from .acceptor import Acceptor
from .forwarder import Forwarder, OwnerAccess
from .owner_listener import answering, owner_listener
from .workers import Workers

_KEEP_ALIVE = 365 * 86400  # seconds: closed at the moment of a request, a connection would lose it


@contextlib.asynccontextmanager
async def serving_data(made: Parts, sockets: Sequence[socket], port: int | None) -> AsyncIterator[None]:
    """Answer requests on `sockets` inside the `async with`; there is at most one."""
    if not sockets:
        yield
        return
    [listener] = sockets
    board, settings = made.shared.board, made.settings
    with owner_listener() as owner:
        app = answering(made.proxy, made.instances, board.secret, (settings.host, port))
        async with listeners.serving(app, [owner.listener], keep_alive=_KEEP_ALIVE):
            if settings.workers > 1:
                async with Workers(settings.workers, board, listener, owner, made.data_rules):
                    yield
                return
            # One process is enough: this one, which needs no second to hand calls on.
            access = OwnerAccess(owner.path, board.secret)
            async with Forwarder(board, 1, made.tokens, made.data_rules, access) as forwarder:
                with Acceptor(forwarder, listener):
                    yield
