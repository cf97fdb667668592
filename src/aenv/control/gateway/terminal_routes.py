"""Terminals of instances, for pages and programs: bytes both ways over a WebSocket.

Binary messages are what is typed and what is printed. Text messages are JSON: the client's `{"resize": [columns,
rows]}` and `{"ack": bytes}`, and at the end the server's `{"exit": code}`. Printed bytes are sent ahead of their
acknowledgement up to a limit, so that a flood waits in the instance and not in the gateway or the page.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import time
from collections.abc import Coroutine
from functools import partial
from typing import Any, cast

from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from ...base.errors import AEnvError, TooManyRequests, Unavailable, Unsupported
from ...engines.base import InstanceTerminal, OpensTerminals
from ..instances.instance_access import InstanceAccess
from ..serving import envelope
from ..serving.accounts import Accounts, Caller, Role
from ..serving.routes import Route, RouteCall
from ..serving.upgrades import upgrade_of
from ..serving.websockets import WebSocket, offered

PROTOCOL = "aenv.terminal"
IDLE = 1800.0  # seconds without a key
_MOST = 200  # of a gateway: the host has some thousands
_AHEAD_BYTES = 256 << 10  # that were sent and not acknowledged
_MAX_TYPED_BYTES = 1 << 20  # that the program in the terminal has not read
_CHECK_EVERY = 10.0  # seconds
_GOODBYE = 5.0  # seconds for a client to take the reason of the end
_MAX_SIDE = 1000
_PIECE_BYTES = 4096
_NORMAL, _REFUSED, _TOO_MUCH = 1000, 1008, 1009  # how WebSockets end
# Of the instance's files what is there; in its workspace, where commands run, too.
_SHELL = (
    "/bin/sh",
    "-c",
    'TERM=xterm-256color; LANG="${LANG:-C.UTF-8}"; export TERM LANG; '
    "if command -v bash >/dev/null 2>&1; then exec bash -i; fi; exec sh -i",
)
_QUERY = {"columns": "80 unless told", "rows": "24 unless told"}


class TerminalRoutes:
    """The handler; `routes()` is the table."""

    def __init__(self, instances: InstanceAccess, accounts: Accounts) -> None:
        self._instances = instances
        self._accounts = accounts
        self._open = 0

    def routes(self) -> list[Route]:
        what = (
            f"a shell in a terminal, for a WebSocket with the protocol {PROTOCOL}; else whether there can be one"
        )
        reply = dict[str, Any]
        return [
            Route("GET", "/env-instance/{id}/terminal", self._terminal, Role.USER, what, reply=reply, query=_QUERY)
        ]

    async def _terminal(self, call: RouteCall) -> Response:
        record = await self._instances.running(call.path["id"], call.caller)
        engine: object = self._instances.engine
        if isinstance(engine, OpensTerminals):
            reason = engine.why_no_terminal(record.id)
        else:
            reason = f"instances of the {self._instances.engine.name} engine have no terminals; use commands"
        if upgrade_of(call.request.scope) is None:
            return envelope.success({"available": not reason, "reason": reason})
        if reason:
            raise Unsupported(reason)
        offered(call.request, PROTOCOL)
        columns = call.number("columns", 80, least=1, most=_MAX_SIDE)
        rows = call.number("rows", 24, least=1, most=_MAX_SIDE)
        return _Opened(self, call, columns, rows)

    async def serve(self, call: RouteCall, columns: int, rows: int) -> None:
        """Open a terminal, take the connection for it, and go on until either side ends."""
        id, engine = call.path["id"], cast(OpensTerminals, self._instances.engine)
        if self._open >= _MOST:
            raise TooManyRequests(f"{_MOST} terminals are open on this gateway already; close one")
        self._open += 1
        try:
            with await self._instances.use(id):
                async with engine.terminal(id, _SHELL, columns=columns, rows=rows) as terminal:
                    session = _Session(terminal, WebSocket.accept(call.request, PROTOCOL))
                    await session.run(self._limits(session, call.caller))
        finally:
            self._open -= 1

    async def _limits(self, session: _Session, caller: Caller) -> tuple[int, str]:
        """Return, with the reason, when the terminal has been idle for too long or its account was revoked."""
        while (left := session.used + IDLE - time.monotonic()) > 0:
            await asyncio.sleep(min(left, _CHECK_EVERY))
            with contextlib.suppress(Unavailable):  # no account was revoked while the store does not answer
                if caller.account and not await self._accounts.may_act(caller.account):
                    return _REFUSED, "the account was revoked"
        return _NORMAL, f"closed after {IDLE / 60:g} minutes without a key"


class _Opened(Response):
    """The answer to a WebSocket: the connection is taken, or an error says why not."""

    def __init__(self, routes: TerminalRoutes, call: RouteCall, columns: int, rows: int) -> None:
        super().__init__(status_code=101)
        self._serve = partial(routes.serve, call, columns, rows)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            await self._serve()
        except AEnvError as error:
            await envelope.failure(error)(scope, receive, send)


class _Session:
    """One terminal and its client."""

    def __init__(self, terminal: InstanceTerminal, client: WebSocket) -> None:
        self._terminal = terminal
        self._client = client
        self._typed = bytearray()
        self._is_typed = asyncio.Event()
        self._ahead = 0
        self._acknowledged = asyncio.Event()
        self.used = time.monotonic()
        """When the client last typed."""

    async def run(self, limits: Coroutine[Any, Any, tuple[int, str]]) -> None:
        tasks = [asyncio.ensure_future(one) for one in (self._print(), self._hear(), self._type(), limits)]
        try:
            done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
            code, reason = next(iter(done)).result()
            if code:
                async with asyncio.timeout(_GOODBYE):
                    await self._client.close(code, reason)
        except (ConnectionError, TimeoutError):
            pass  # the client has gone, or reads nothing, which is a way to end a terminal
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    async def _print(self) -> tuple[int, str]:
        while data := await self._terminal.read():
            await self._client.send(data)
            self._ahead += len(data)
            while self._ahead > _AHEAD_BYTES:
                self._acknowledged.clear()
                await self._acknowledged.wait()
        await self._client.send(json.dumps({"exit": self._terminal.exit_code}))
        return _NORMAL, "the shell has ended"

    async def _hear(self) -> tuple[int, str]:
        async for message in self._client.messages():
            if isinstance(message, bytes):
                self.used = time.monotonic()
                self._typed += message
                self._is_typed.set()
                if len(self._typed) > _MAX_TYPED_BYTES:
                    return _TOO_MUCH, "more was typed than the program has read"
                continue
            try:
                self._obey(message)
            except (ValueError, TypeError):
                return _REFUSED, 'text messages are {"resize": [columns, rows]} and {"ack": bytes}'
        return 0, ""

    def _obey(self, message: str) -> None:
        match json.loads(message):
            case {"resize": [int(columns), int(rows)]}:
                self._terminal.resize(columns, rows)
            case {"ack": int(count)} if 0 <= count <= self._ahead:
                self._ahead -= count
                self._acknowledged.set()
            case _:
                raise ValueError(message)

    async def _type(self) -> tuple[int, str]:
        """Apart from what is heard: a program that reads nothing must not keep acknowledgements from us."""
        while True:
            await self._is_typed.wait()
            self._is_typed.clear()
            data = bytes(self._typed[:_PIECE_BYTES])
            await self._terminal.write(data)
            del self._typed[: len(data)]
            if self._typed:
                self._is_typed.set()
