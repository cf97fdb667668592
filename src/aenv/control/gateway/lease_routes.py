"""The request that holds the leases of a process: lines of `base/leasing.py`, both ways, until its end."""

from __future__ import annotations

import asyncio
import logging

from starlette.responses import Response, StreamingResponse
from starlette.types import Receive, Scope, Send

from ...base.errors import AEnvError, Forbidden, InvalidRequest
from ...base.leasing import PATH, LeaseLine, LeaseLines
from ...base.supervision import Tasks
from ...base.wire import LEASES_HEADER
from ..instances.leases import Holding, Leases
from ..serving.accounts import Role
from ..serving.routes import Route, RouteCall
from .same_host import is_near

logger = logging.getLogger("aenv.control.gateway.lease_routes")

_MEDIA = "application/x-ndjson"
_AT_ONCE = 64  # lines of one client that are being answered; the next ones wait on the wire


class LeaseRoutes:
    """The handler; `routes()` is the table."""

    def __init__(self, leases: Leases) -> None:
        self._leases = leases

    def routes(self) -> list[Route]:
        summary = "hold leases on instances that a client on this host calls by their sockets; lines both ways"
        return [Route("POST", PATH, self._hold, Role.USER, summary, media=_MEDIA)]

    async def _hold(self, call: RouteCall) -> Response:
        if not is_near(call.request.scope):
            raise Forbidden("leases are for clients on the gateway's host, which run as its user")
        return _Conversation(self._leases.hold(call.caller, is_local_socket=call.is_local_socket))


class _Conversation(StreamingResponse):
    """Answers lines as they come. Its end, or that of the connection, ends the leases."""

    def __init__(self, holding: Holding) -> None:
        super().__init__(content=(), media_type=_MEDIA, headers={LEASES_HEADER: holding.key})
        self._holding = holding
        self._lines = LeaseLines()
        self._turns = asyncio.Semaphore(_AT_ONCE)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        with self._holding as holding:
            await send({"type": "http.response.start", "status": 200, "headers": self.raw_headers})
            talking = asyncio.create_task(self._talk(receive, send))
            ended = asyncio.create_task(holding.ended.wait())
            try:
                await asyncio.wait({talking, ended}, return_when=asyncio.FIRST_COMPLETED)
            finally:
                talking.cancel()
                ended.cancel()
                await asyncio.gather(talking, ended, return_exceptions=True)
        await send({"type": "http.response.body", "body": b""})

    async def _talk(self, receive: Receive, send: Send) -> None:
        try:
            async with Tasks() as tasks:
                more = True
                while more:
                    message = await receive()
                    more = message.get("more_body", False)  # not so when the client has gone
                    for line in self._lines.feed(message.get("body", b"")):
                        await self._hear(line, send, tasks)
        except InvalidRequest as error:
            logger.warning("a client's leases ended: %s", error)

    async def _hear(self, line: LeaseLine, send: Send, tasks: Tasks) -> None:
        if line.what == "drop":
            try:
                self._holding.drop(line.id, line.calls)
            except InvalidRequest as error:
                logger.warning("what a client said of its calls is not counted: %s", error)
        elif line.what in ("take", "why"):
            await self._turns.acquire()
            # Given back when the answer is sent: a client that reads none gets no more.
            tasks.create_task(self._answer(line, send)).add_done_callback(lambda _: self._turns.release())
        else:
            raise InvalidRequest("field 'what' of a line of leases: use 'take', 'drop' or 'why'")

    async def _answer(self, line: LeaseLine, send: Send) -> None:
        try:
            if line.what == "why":
                answer = LeaseLine("why", line.id, reason=await self._holding.why_it_ended(line.id))
            else:
                answer = LeaseLine("granted", line.id, await self._holding.take(line.id))
        except AEnvError:
            answer = LeaseLine("refused", line.id)  # the gateway's own path says why
        await send({"type": "http.response.body", "body": answer.encode(), "more_body": True})
