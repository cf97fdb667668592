"""Sockets that the gateway listens on."""

from __future__ import annotations

import contextlib
import select
import socket

from starlette.responses import Response

from aenv.control.serving.listeners import bind_tcp, serving

CROWD = 500  # more than what asyncio lets wait by itself


async def test_a_crowd_that_connects_at_once_waits_for_its_turn_and_not_for_tcp_to_try_again() -> None:
    async def app(scope: object, receive: object, send: object) -> None:
        await Response()(scope, receive, send)  # type: ignore[arg-type]

    listener = bind_tcp("127.0.0.1", 0)
    address = listener.getsockname()
    async with serving(app, [listener]):
        with contextlib.ExitStack() as stack:
            # Without a pause in which the server could take any of them:
            clients = [stack.enter_context(socket.socket()) for _ in range(CROWD)]
            connecting = select.poll()
            for client in clients:
                client.setblocking(False)
                client.connect_ex(address)
                connecting.register(client, select.POLLOUT)
            assert len(connecting.poll(0)) == CROWD
