"""The data path: bytes between a client and an instance, both ways, as they come.

Nothing of MCP is parsed and no body is cut. Every tool call passes here, so it is plain ASGI: a small body
is one read and one write.
"""

from __future__ import annotations

import contextlib
import logging
import time
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass

from starlette.types import Receive, Scope, Send

from ..addresses import Origin
from ..errors import (
    AEnvError,
    ConnectFailed,
    NetworkError,
    NotFound,
    ToolServerError,
    Unauthenticated,
    Unavailable,
)
from ..http1 import Pool, Response
from ..instances.instances import Instances, Use
from ..services.services import Services
from ..serving import envelope
from ..serving.accounts import Accounts
from ..serving.clients import Client, too_large
from ..serving.metrics import Metrics
from ..serving.routes import is_local_socket
from ..wire import TOKEN_HEADER
from . import routing
from .tokens import Tokens

logger = logging.getLogger("aenv.gateway.proxy")

_SMALL = 64 << 10  # bytes up to which a body is held whole, to save writes
_Body = bytes | AsyncIterator[bytes]
_TOKEN = TOKEN_HEADER.lower().encode()
_HEALTHY = {"success": True, "code": 0, "message": "", "data": {"status": "healthy"}, "status": "healthy"}


@dataclass(frozen=True)
class DataRules:
    """What holds for every request on the data path."""

    max_body_bytes: int
    loopback_only: bool
    require_token: bool = False


class Proxy:
    """Forwards each request to the instance, or the service, that it names."""

    def __init__(
        self,
        instances: Instances,
        services: Services,
        accounts: Accounts,
        tokens: Tokens,
        pool: Pool,
        metrics: Metrics,
        rules: DataRules,
    ) -> None:
        self._instances = instances
        self._services = services
        self._accounts = accounts
        self._tokens = tokens
        self._pool = pool
        self._metrics = metrics
        self._rules = rules
        self._limit = rules.max_body_bytes

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        began = time.perf_counter()
        status = 0
        path, rpc_method = scope["path"], ""
        with Client(receive) as client:
            try:
                request = routing.read(scope, self._tokens, loopback_only=self._rules.loopback_only)
                if request is None:
                    status = await _without_instance(scope, receive, send)
                else:
                    path, rpc_method = request.target.partition("?")[0], request.header("mcp-method")
                    fresh = await self._check_token(request, scope)
                    with _as_replies(request):
                        status = await self._forward(scope["method"], request, client, send, fresh)
            except AEnvError as error:
                status = error.status
                await envelope.failure(error)(scope, receive, send)
        self._metrics.relayed(scope["method"], path, rpc_method, status, time.perf_counter() - began)

    async def _check_token(self, request: routing.DataRequest, scope: Scope) -> list[tuple[bytes, bytes]]:
        """Refuse what a token should have opened and did not; a new one for the reply, when it is time."""
        if request.is_service:
            return await self._check_account(request, scope)
        claim = request.claim
        if claim is None or claim.is_over:
            if self._rules.require_token and not is_local_socket(scope):
                what = "expired" if claim else "is missing"
                raise Unauthenticated(
                    f"the instance token {what}; GET /env-instance/{request.instance} has a new one"
                )
            return []
        if claim.account and not await self._accounts.is_valid(claim.account):
            raise Unauthenticated("the account that this instance token was made for was revoked")
        if not claim.is_stale or claim.port:
            return []
        return [(_TOKEN, self._tokens.sign(claim.instance, claim.account).encode())]

    async def _check_account(self, request: routing.DataRequest, scope: Scope) -> list[tuple[bytes, bytes]]:
        """The name of a service can be guessed: where there are accounts, its owner's token opens it."""
        if is_local_socket(scope) or not await self._accounts.are_needed():
            return []
        if not request.account_token:
            raise Unauthenticated("a service takes the token of its owner: 'Authorization: Bearer <token>'")
        account = await self._accounts.authenticate(request.account_token)
        if not account.caller().owns(self._services.owner(request.instance)):
            raise NotFound(f"service {request.instance!r} not found (404)")
        return []

    async def _forward(
        self,
        method: str,
        request: routing.DataRequest,
        client: Client,
        send: Send,
        fresh: list[tuple[bytes, bytes]],
    ) -> int:
        if request.is_service:
            return await self._serve(method, request, client, send)
        use = await self._instances.use(request.instance)
        with use as address:
            origin = address.origin
            if request.claim and request.claim.port:
                origin = await self._instances.port(request.instance, request.claim.port)
            body = await self._body(request, client)
            return await self._exchange(origin, method, request, body, client, send, fresh, use)

    async def _serve(self, method: str, request: routing.DataRequest, client: Client, send: Send) -> int:
        """Ask a replica of a service; when it takes no connection, another one, if there is something to send."""
        body = await self._body(request, client)
        session = request.header("mcp-session-id") or None
        with self._services.use(request.instance, session) as origin:
            try:
                return await self._exchange(origin, method, request, body, client, send, [])
            except ConnectFailed:
                self._services.failed(request.instance, origin)
                if not isinstance(body, bytes):
                    raise
        with self._services.use(request.instance, session) as origin:
            return await self._exchange(origin, method, request, body, client, send, [])

    async def _exchange(
        self,
        origin: Origin,
        method: str,
        request: routing.DataRequest,
        body: _Body,
        client: Client,
        send: Send,
        fresh: list[tuple[bytes, bytes]],
        use: Use | None = None,
    ) -> int:
        response = await self._pool.request(origin, method, request.target, request.headers, body)
        client.watch()
        if use and method == "GET" and (response.header(b"content-type") or "").startswith("text/event-stream"):
            use.end()  # a client that listens for what may come is no reason to keep the instance running
        await self._relay(response, send, fresh)
        return response.status

    async def _body(self, request: routing.DataRequest, client: Client) -> _Body:
        if request.length is not None and request.length > self._limit:
            raise too_large(self._limit)
        small = request.length is not None and request.length <= _SMALL
        return await client.read(_SMALL) if small else client.stream(self._limit)

    async def _relay(self, response: Response, send: Send, fresh: list[tuple[bytes, bytes]]) -> None:
        announced = response.header(b"content-length")
        length = int(announced) if announced else None
        if length is not None and length > self._limit:
            response.close()
            raise too_large(self._limit)
        start = {
            "type": "http.response.start",
            "status": response.status,
            "headers": routing.reply_headers(response.headers) + fresh,
        }
        if length is not None and length <= _SMALL:
            body = await response.read()
            await send(start)
            await send({"type": "http.response.body", "body": body})
            return
        await send(start)
        try:
            async for chunk in response:
                await send({"type": "http.response.body", "body": chunk, "more_body": True})
        except NetworkError:
            # Too late for an error reply. Left unfinished, the response ends as a broken connection.
            logger.debug("an instance broke off its response")
            return
        await send({"type": "http.response.body", "body": b""})


@contextlib.contextmanager
def _as_replies(request: routing.DataRequest) -> Iterator[None]:
    """Tells the client apart: nothing was sent, or nobody knows how far the call came."""
    what = f"{'service' if request.is_service else 'instance'} {request.instance!r}"
    try:
        yield
    except ConnectFailed:
        raise Unavailable(f"{what} does not answer; it may have just ended") from None
    except NetworkError:
        raise ToolServerError(f"{what} ended the connection before it had answered") from None


async def _without_instance(scope: Scope, receive: Receive, send: Send) -> int:
    if scope["path"] != "/health" or scope["method"] not in ("GET", "HEAD"):
        raise NotFound("no instance named; use /instances/<id>/… or the header AEnvCore-EnvInstance-ID")
    await envelope.reply(200, _HEALTHY)(scope, receive, send)
    return 200
