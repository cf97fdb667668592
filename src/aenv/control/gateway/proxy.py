"""The data path: bytes between a client and an instance, both ways, as they come.

Nothing of MCP is parsed and no body is cut. Every tool call passes here, so it is plain ASGI: a small body
is one read and one write.
"""

from __future__ import annotations

import contextlib
import logging
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping
from functools import partial
from typing import Any
from urllib.parse import unquote

from starlette.types import Receive, Scope, Send

from ...base import mcp
from ...base.addresses import Origin
from ...base.errors import (
    AEnvError,
    ConnectFailed,
    Forbidden,
    NetworkError,
    NotFound,
    NotJudged,
    ToolServerError,
    Unauthenticated,
    Unavailable,
)
from ...base.http1 import Pool, RawHeaders, Response
from ...base.wire import SELF_CHECK_HEADER, SELF_CHECK_ONLY, TOKEN_HEADER
from ..instances.instance_access import InstanceAccess, Use
from ..services.service_supervisor import ServiceSupervisor
from ..serving import envelope
from ..serving.accounts import Accounts, Role
from ..serving.clients import Client, too_large
from ..serving.metrics import Metrics
from ..serving.routes import STORE_PATIENCE, is_local_socket
from ..serving.upgrades import Upgrade, upgrade_of
from ..stores import store_timeouts
from . import data_request
from .data_request import REWARD, DataRules
from .self_checks import ASKED_OTHERWISE, SKIPPED, SelfChecks, refusal_of
from .tokens import Tokens
from .tunnels import Tunnels

logger = logging.getLogger("aenv.control.gateway.proxy")

_SMALL = 64 << 10  # bytes up to which a body is held whole, to save writes
END_IS_KNOWN = 2.0  # seconds after its connections broke; the engine takes milliseconds, on a busy host more
_Body = bytes | AsyncIterator[bytes]
_TOKEN = TOKEN_HEADER.lower().encode()
_SELF_CHECK = SELF_CHECK_HEADER.lower().encode()
_HEALTHY = {"success": True, "code": 0, "message": "", "data": {"status": "healthy"}, "status": "healthy"}


class Proxy:
    """Forwards each request to the instance, or the service, that it names."""

    def __init__(
        self,
        instances: InstanceAccess,
        services: ServiceSupervisor,
        accounts: Accounts,
        tokens: Tokens,
        pool: Pool,
        metrics: Metrics,
        rules: DataRules,
        checks: SelfChecks,
        check_ready: Callable[[], Awaitable[None]],
    ) -> None:
        """`check_ready` raises Unavailable while requests should go elsewhere."""
        self._instances = instances
        self._services = services
        self._accounts = accounts
        self._tokens = tokens
        self._pool = pool
        self._metrics = metrics
        self._rules = rules
        self._limit = rules.max_body_bytes
        self._checks = checks
        self._check_ready = check_ready
        self._tunnels = Tunnels()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        began = time.perf_counter()
        status = 0
        path, rpc_method = scope["path"], ""
        with Client(receive) as client, store_timeouts.at_most(STORE_PATIENCE):
            try:
                rules = self._rules
                request = data_request.read(
                    scope, self._tokens, loopback_only=rules.loopback_only, allowed=rules.allowed
                )
                if request is None:
                    status = await self._without_instance(scope, receive, send)
                else:
                    path, rpc_method = request.target.partition("?")[0], request.header(b"mcp-method")
                    fresh = await self._check_token(request, scope)
                    with _as_replies(request):
                        status = await self._forward(scope, request, client, send, fresh)
            except AEnvError as error:
                status = error.status
                await envelope.failure(error)(scope, receive, send)
        if not (
            (upgrade := upgrade_of(scope)) and upgrade.is_taken
        ):  # which lasts for as long as it is open, and is not a call
            self._metrics.relayed(scope["method"], path, rpc_method, status, time.perf_counter() - began)

    async def _without_instance(self, scope: Scope, receive: Receive, send: Send) -> int:
        if scope["path"] not in ("/health", "/ready") or scope["method"] not in ("GET", "HEAD"):
            raise NotFound("no instance named; use /instances/<id>/… or the header AEnvCore-EnvInstance-ID")
        if scope["path"] == "/ready":
            await self._check_ready()
            await envelope.success({"status": "ready"})(scope, receive, send)
        else:
            await envelope.reply(200, _HEALTHY)(scope, receive, send)
        return 200

    async def _check_token(self, request: data_request.DataRequest, scope: Scope) -> RawHeaders:
        """Refuse what a token should have opened and did not; a new one for the reply, when it is time."""
        if request.is_service:
            await self._check_service(request, scope)
            return []
        claim = request.claim
        if claim is None or claim.is_over:
            if not is_local_socket(scope):
                await self._check_owner(request)
            return []
        if claim.account and not await self._accounts.may_act(claim.account):
            raise Unauthenticated(
                "the account that this instance token was made for was revoked, or is a viewer's"
            )
        if not claim.is_stale or claim.port:
            return []
        return [(_TOKEN, self._tokens.sign(claim.instance, claim.account).encode())]

    async def _check_owner(self, request: data_request.DataRequest) -> None:
        """For what came without a token of the instance: where one is demanded, its owner's opens it, too."""
        guard = await self._instances.guard(request.instance)
        if not guard.demands_token:
            return
        if request.account_token:
            await self._check_account(
                request.account_token, guard.owner, f"instance {request.instance!r} not found"
            )
            return
        what = "expired" if request.claim else "is missing"
        raise Unauthenticated(
            f"the instance token {what}; GET /env-instance/{request.instance} gives its owner a new one, "
            "and the token of the owner's account opens it, too"
        )

    async def _check_service(self, request: data_request.DataRequest, scope: Scope) -> None:
        """The name of a service can be guessed: where there are accounts, its owner's token opens it."""
        if is_local_socket(scope) or not await self._accounts.are_needed():
            return
        if not request.account_token:
            raise Unauthenticated("a service takes the token of its owner: 'Authorization: Bearer <token>'")
        owner = self._services.owner(request.instance)
        missing = f"service {request.instance!r} not found (404)"
        await self._check_account(request.account_token, owner, missing)

    async def _check_account(self, token: str, owner: str | None, missing: str) -> None:
        """Refuse an account that does not own it, with the words for what is not there; and a viewer."""
        caller = (await self._accounts.authenticate(token)).caller()
        if not caller.owns(owner):
            raise NotFound(missing)
        if not caller.role.includes(Role.USER):
            raise Forbidden(f"the role '{caller.role}' may not call instances; that needs the role '{Role.USER}'")

    async def _still_may(self, request: data_request.DataRequest) -> Callable[[], Awaitable[bool]] | None:
        """How to ask again whether the account that opened it may act; None where it took none."""
        account = request.claim.account if request.claim else None
        if account is None and request.account_token:
            with contextlib.suppress(Unauthenticated):  # it was not needed
                account = (await self._accounts.authenticate(request.account_token)).id
        return partial(self._accounts.may_act, account) if account else None

    async def _forward(
        self,
        scope: Scope,
        request: data_request.DataRequest,
        client: Client,
        send: Send,
        fresh: RawHeaders,
    ) -> int:
        method, upgrade = scope["method"], upgrade_of(scope)
        if request.is_service:
            return await self._serve(method, request, client, send, upgrade)
        use = await self._instances.use(request.instance)
        with use as address:
            origin = address.origin
            if request.claim and request.claim.port:
                origin = await self._instances.port(request.instance, request.claim.port)
            body = await self._body(request, client)
            if upgrade:
                until = request.claim.expires_at if request.claim and request.claim.port else None
                may = await self._still_may(request)
                return await self._tunnels.carry(upgrade, send, origin, request, until=until, may=may)
            asks_only = request.header(_SELF_CHECK) == SELF_CHECK_ONLY
            if method == "POST" and _is_reward(request.target) and (use.self_check or asks_only):
                refusal, headers = await self._checked(use, request.target, body)
                if refusal or asks_only:
                    await _said(send, refusal or {"success": True, "data": None}, headers)
                    return 200
                fresh = [*fresh, *headers]
            try:
                return await self._exchange(origin, method, request, body, client, send, fresh, use)
            except NetworkError:
                if reason := await use.why_it_ended(END_IS_KNOWN):
                    raise broke_off(request.instance, reason) from None
                raise

    async def _checked(self, use: Use, target: str, body: _Body) -> tuple[Mapping[str, Any] | None, RawHeaders]:
        """For a reward: what to say in its place where it could not be trusted, and headers for the reply."""
        if use.self_check in ("", "own"):
            return None, []
        if use.self_check == "skipped":
            return None, SKIPPED.headers
        if not isinstance(body, bytes) or body.strip() not in (b"", b"{}"):
            return None, ASKED_OTHERWISE.headers
        query = target.partition("?")[2]
        try:
            checked = await self._checks.of(use.instance, query and f"?{query}")
        except NotJudged as error:
            return refusal_of(error), []
        return checked.refusal, checked.headers

    async def _serve(
        self, method: str, request: data_request.DataRequest, client: Client, send: Send, upgrade: Upgrade | None
    ) -> int:
        """Ask a replica of a service; when it takes no connection, another one, if there is something to send."""
        body = await self._body(request, client)
        session = request.header(b"mcp-session-id") or None
        with self._services.use(request.instance, session) as origin:
            if upgrade:
                may = await self._still_may(request)
                return await self._tunnels.carry(upgrade, send, origin, request, until=None, may=may)
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
        request: data_request.DataRequest,
        body: _Body,
        client: Client,
        send: Send,
        fresh: RawHeaders,
        use: Use | None = None,
    ) -> int:
        response = await self._pool.request(origin, method, request.target, (), body, request.headers)
        client.watch()
        if use and method == "GET" and (response.header(b"content-type") or "").startswith("text/event-stream"):
            use.end()  # a client that only listens does not keep the instance running
        await self._relay(response, send, fresh)
        return response.status

    async def _body(self, request: data_request.DataRequest, client: Client) -> _Body:
        if request.length is not None and request.length > self._limit:
            raise too_large(self._limit)
        small = request.length is not None and request.length <= _SMALL
        return await client.read(_SMALL) if small else client.stream(self._limit)

    async def _relay(self, response: Response, send: Send, fresh: RawHeaders) -> None:
        announced = response.header(b"content-length")
        length = int(announced) if announced else None
        if length is not None and length > self._limit:
            response.close()
            raise too_large(self._limit)
        start = {
            "type": "http.response.start",
            "status": response.status,
            "headers": data_request.reply_headers(response.status, response.headers) + fresh,
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


def broke_off(instance: str, reason: str) -> ToolServerError:
    """For a call whose instance has ended the connection; `reason` where the instance has ended."""
    if reason:
        return ToolServerError(f"instance {instance!r} ended before it had answered: {reason}")
    return ToolServerError(f"instance {instance!r} ended the connection before it had answered")


def _is_reward(target: str) -> bool:
    return unquote(target.partition("?")[0]).rstrip("/") == REWARD


async def _said(send: Send, reply: Mapping[str, Any], headers: RawHeaders) -> None:
    body = mcp.dumps(reply)
    head = [(b"content-type", b"application/json"), (b"content-length", b"%d" % len(body)), *headers]
    await send({"type": "http.response.start", "status": 200, "headers": head})
    await send({"type": "http.response.body", "body": body})


@contextlib.contextmanager
def _as_replies(request: data_request.DataRequest) -> Iterator[None]:
    """Tells the client apart: nothing was sent, or nobody knows how far the call came."""
    what = f"{'service' if request.is_service else 'instance'} {request.instance!r}"
    try:
        yield
    except ConnectFailed:
        raise Unavailable(f"{what} does not answer; it may have just ended") from None
    except NetworkError:
        raise ToolServerError(f"{what} ended the connection before it had answered") from None
