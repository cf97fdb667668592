"""The data path to one instance: MCP calls, functions, health, over kept-alive connections.

Stateless MCP costs one request a call. A server that only knows the handshake era is recognised when the
session opens; then the handshake is made once.
"""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, TypeVar
from urllib.parse import urlencode

from .. import __version__
from ..base import mcp, wire
from ..base.addresses import Origin
from ..base.errors import AEnvError, NetworkError, NotFound, Unauthenticated
from ..base.http1 import Headers, Pool, Response
from ..base.replies import unwrap
from .api import in_time
from .nearby import NearInstance, NotSent
from .result import Progress

T = TypeVar("T")
OnProgress = Callable[[Progress], Any]

_CLIENT = {"name": "aenv", "version": __version__}
_ACCEPT = ("accept", "application/json, text/event-stream")
_JSON = ("content-type", "application/json")
_TOKEN = wire.TOKEN_HEADER.lower().encode()


class Session:
    """Talks to the runtime of one instance, below `base` on `origin`.

    `era_known` says that the server is one of ours, which speak stateless MCP; others have to be asked.
    `token` opens the gateway's data path and is short-lived: replies bring newer ones, `renew` asks for one.
    `near` is taken whenever it can be.
    """

    def __init__(
        self,
        pool: Callable[[], Pool],
        origin: Origin,
        base: str,
        headers: list[tuple[str, str]],
        timeout: float,
        *,
        era_known: bool = False,
        token: str | None = None,
        renew: Callable[[], Awaitable[str | None]] | None = None,
        near: NearInstance | None = None,
    ) -> None:
        self.origin = origin
        self.base = base
        self._pool = pool
        self._headers = headers
        self._token = token
        self._renew = renew
        self._renewing = asyncio.Lock()
        self.near = near
        """The way to it without the gateway, where there is one."""
        self._timeout = timeout
        self._ids = itertools.count(1)
        self._stateless = True
        self._handshake_headers: list[tuple[str, str]] = []
        self._era_known = era_known
        self._opening = asyncio.Lock()

    async def open(self) -> None:
        """Find out which era the server speaks; the first call does so if that is not known yet."""
        async with self._opening:
            if self._era_known:
                return
            try:
                await self._exchange("server/discover", {}, self._timeout, None)
            except NetworkError:
                raise
            except (mcp.RpcError, AEnvError):
                # A server of the handshake era: it answers, but does not know the question.
                await self._handshake()
            self._era_known = True

    async def _handshake(self) -> None:
        self._stateless = False
        self._handshake_headers = []
        params = {"protocolVersion": mcp.HANDSHAKE_VERSIONS[-1], "capabilities": {}, "clientInfo": _CLIENT}
        response, result = await self._exchange("initialize", params, self._timeout, None)
        self._handshake_headers.append((mcp.VERSION_HEADER, str(result.get("protocolVersion"))))
        session = response.header(mcp.SESSION_HEADER.encode())
        if session:
            self._handshake_headers.append((mcp.SESSION_HEADER, session))
        body = mcp.dumps(mcp.notification("notifications/initialized", {}))
        async with asyncio.timeout(self._timeout):
            response = await self._send("POST", "/mcp", [_ACCEPT, _JSON, *self._handshake_headers], body)
            await response.read()

    async def rpc(
        self,
        method: str,
        params: Mapping[str, Any],
        *,
        timeout: float | None = None,
        on_progress: OnProgress | None = None,
    ) -> dict[str, Any]:
        """The result of one MCP request. RpcError carries the server's error."""
        if not self._era_known:
            await self.open()
        timeout = self._timeout if timeout is None else timeout
        try:
            return (await self._exchange(method, params, timeout, on_progress))[1]
        except NotFound:
            if self._stateless or not self._handshake_headers:
                raise
        # The server has forgotten the session, so it has not looked at the call either.
        await self._handshake()
        return (await self._exchange(method, params, timeout, on_progress))[1]

    async def _exchange(
        self, method: str, params: Mapping[str, Any], timeout: float, on_progress: OnProgress | None
    ) -> tuple[Response, dict[str, Any]]:
        id = next(self._ids)
        meta: dict[str, Any] = mcp.stateless_meta(_CLIENT) if self._stateless else {}
        if on_progress:
            meta["progressToken"] = id
        full = {**params, "_meta": meta} if meta else params
        headers = [_ACCEPT, _JSON]
        headers += mcp.stateless_headers(method, params) if self._stateless else self._handshake_headers
        body = mcp.dumps(mcp.request(id, method, full))

        async def read(response: Response) -> tuple[Response, dict[str, Any]]:
            if (response.header(b"content-type") or "").startswith("text/event-stream"):
                return response, await self._last_event(response, on_progress)
            return response, self._message(response, await response.read())

        async with asyncio.timeout(timeout):
            response, message = await self._ask("POST", "/mcp", headers, body, read, method)
        return response, _result(message)

    async def _last_event(self, response: Response, on_progress: OnProgress | None) -> dict[str, Any]:
        parser = mcp.SseParser()
        answer: dict[str, Any] | None = None
        async for chunk in response:
            for event in parser.feed(chunk):
                message = mcp.loads(event)
                if "method" not in message:
                    answer = message
                elif on_progress and message["method"] == "notifications/progress":
                    params = message["params"]
                    on_progress(Progress(params["progress"], params.get("total"), params.get("message")))
        if answer is None:
            raise NetworkError(f"{self.origin} ended the stream before the answer")
        return answer

    def _message(self, response: Response, body: bytes) -> dict[str, Any]:
        try:
            message = mcp.loads(body)
        except ValueError:
            message = None
        if isinstance(message, dict) and message.get("jsonrpc") == "2.0":
            error = message.get("error", {})
            if response.status == 404 and error.get("code") != mcp.METHOD_NOT_FOUND:
                raise NotFound(str(error.get("message")))  # how a server says that it forgot the session
            return message
        unwrap(response, body, self.origin)
        raise NetworkError(f"{self.origin} answered {response.status} with something that is not MCP")

    async def http(
        self,
        method: str,
        path: str,
        *,
        query: Mapping[str, Any] | None = None,
        body: Mapping[str, Any] | None = None,
        headers: Headers = (),
        timeout: float | None = None,
        whole: bool = False,
        heard: Callable[[Response], None] | None = None,
    ) -> Any:
        """A plain HTTP call to the runtime: the `data` of its envelope, or the `whole` envelope.

        `heard` is told of the response, before an error in it is raised.
        """
        target = path + (f"?{urlencode(query)}" if query else "")
        payload = mcp.dumps(body) if body is not None else b""

        async def read(response: Response) -> tuple[Response, bytes]:
            return response, await response.read()

        async with in_time(self.origin, method, path, self._timeout if timeout is None else timeout):
            response, reply = await self._ask(method, target, [_JSON, *headers], payload, read)
        if heard:
            heard(response)
        return unwrap(response, reply, self.origin, whole=whole)

    async def _ask(
        self,
        method: str,
        target: str,
        headers: Headers,
        body: bytes,
        read: Callable[[Response], Awaitable[T]],
        rpc_method: str = "",
    ) -> T:
        """What `read` makes of the response: by the instance's own socket where that can be, else as ever."""
        if self.near:
            try:
                return await self.near.exchange(method, target, rpc_method, headers, body, read)
            except NotSent:
                pass
        return await read(await self._send(method, target, headers, body))

    async def _send(self, method: str, target: str, headers: Headers, body: bytes) -> Response:
        """The head of the answer; once more with a new token when ours had expired, which ran nothing."""
        token = self._token
        response = await self._once(method, target, headers, body)
        if response.status == 401 and self._renew:
            await self._replace(token, response, self._renew)
            response = await self._once(method, target, headers, body)
        self._token = response.header(_TOKEN) or self._token
        return response

    async def _once(self, method: str, target: str, headers: Headers, body: bytes) -> Response:
        bearer = [("authorization", f"Bearer {self._token}")] if self._token else []
        sent = [*headers, *self._headers, *bearer]
        return await self._pool().request(self.origin, method, self.base + target, sent, body)

    async def _replace(
        self, token: str | None, refusal: Response, renew: Callable[[], Awaitable[str | None]]
    ) -> None:
        """Get another token than `token`. Raises the refusal when there is none, or when it was not about that."""
        reply = await refusal.read()
        if _is_of_the_gateway(reply):
            async with self._renewing:  # calls at the same time need one new token, not one each
                if self._token == token:
                    self._token = await renew()
            if self._token not in (token, None):
                return
        unwrap(refusal, reply, self.origin)
        raise Unauthenticated(f"{self.origin} refused the call")


def _result(message: Mapping[str, Any]) -> dict[str, Any]:
    if "error" in message:
        error = message["error"]
        raise mcp.RpcError(error.get("code", 0), error.get("message", "unknown error"), error.get("data"))
    result: dict[str, Any] = message["result"]
    return result


def _is_of_the_gateway(reply: bytes) -> bool:
    """Whether a 401 came before the instance saw anything; an endpoint of the author may answer 401 too."""
    try:
        envelope = mcp.loads(reply)
    except ValueError:
        return False
    return isinstance(envelope, dict) and envelope.get("error") == Unauthenticated.code
