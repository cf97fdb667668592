"""Servers for agents, in the process of the runner: uvicorn's HTTP, without its server, which owns signals."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator, Awaitable, Callable, MutableMapping
from contextlib import asynccontextmanager
from typing import Any

from ..base.errors import Conflict, TooLarge

Scope = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]
Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]
Application = Callable[[Scope, Receive, Send], Awaitable[None]]


@asynccontextmanager
async def listening(app: Application, host: str = "127.0.0.1", port: int = 0) -> AsyncIterator[int]:
    """Answer requests at this address with an ASGI application; its port. Conflict when the port is taken."""
    import uvicorn
    from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol
    from uvicorn.server import ServerState

    loop, state = asyncio.get_running_loop(), ServerState()
    config = uvicorn.Config(
        app,
        http=HttpToolsProtocol,
        ws="none",
        lifespan="off",
        interface="asgi3",
        log_config=None,
        log_level="critical",
        access_log=False,
        proxy_headers=False,
        server_header=False,
    )
    config.load()
    try:
        server = await loop.create_server(
            lambda: HttpToolsProtocol(config, state, {}, loop), host, port, family=socket.AF_UNSPEC, backlog=2048
        )
    except OSError as error:
        raise Conflict(
            f"cannot listen on '{host}:{port}': {error.strerror or error}; choose another port"
        ) from None
    try:
        yield server.sockets[0].getsockname()[1]
    finally:
        server.close()
        for connection in list(state.connections):
            connection.shutdown()
        for task in list(state.tasks):
            task.cancel()
        await asyncio.gather(*state.tasks, return_exceptions=True)


async def body(receive: Receive, most: int) -> bytes:
    """The whole body of a request. TooLarge above `most` bytes; CancelledError when the client has gone."""
    parts: list[bytes] = []
    size, more = 0, True
    while more:
        message = await receive()
        if message["type"] == "http.disconnect":
            raise asyncio.CancelledError
        parts.append(message.get("body", b""))
        size += len(parts[-1])
        if size > most:
            raise TooLarge(f"the request is larger than {most} bytes")
        more = message.get("more_body", False)
    return b"".join(parts)
