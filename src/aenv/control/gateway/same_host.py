"""Whether a request comes from the gateway's own host, so that its client may be told of an instance's socket.

Through the gateway's unix socket the kernel says which user asks. Over TCP it does not; there the path of a socket
is told to every client on loopback that owns the instance. It opens nothing: the socket lies in a folder that only
the gateway's user can enter.
"""

from __future__ import annotations

import os

from starlette.types import Scope

from ...base import origins
from ..serving.deliveries import CONNECTION, ClientConnection
from ..serving.routes import is_local_socket


def is_near(scope: Scope) -> bool:
    """Whether it may be the gateway's user, on this host."""
    connection: ClientConnection | None = scope.get(CONNECTION)
    if is_local_socket(scope):
        return connection is not None and connection.peer_user() == os.geteuid()
    client: tuple[str, int] | None = scope.get("client")
    return client is not None and origins.is_loopback(client[0])
