"""The data path: bytes between a client and an instance, both ways, as they come.

Nothing of MCP is parsed and no body is cut. Every tool call passes here, so it is plain ASGI: a small body
is one read and one write.
"""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Iterator

from starlette.types import Receive, Scope, Send

from ..errors import AEnvError, ConnectFailed, NetworkError, NotFound, ToolServerError, Unavailable
from ..http1 import Pool, Response
from . import envelope, routing
from .clients import Client, too_large
from .instances import Instances
from .tokens import Tokens

logger = logging.getLogger("aenv.gateway.proxy")

_SMALL = 64 << 10  # bytes up to which a body is held whole, to save writes
_HEALTHY = {"success": True, "code": 0, "message": "", "data": {"status": "healthy"}, "status": "healthy"}


class Proxy:
    """Forwards each request to the instance that it names."""

    def __init__(
        self, instances: Instances, tokens: Tokens, pool: Pool, *, max_body_bytes: int, loopback_only: bool
    ) -> None:
        self._instances = instances
        self._tokens = tokens
        self._pool = pool
        self._limit = max_body_bytes
        self._loopback_only = loopback_only

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        with Client(receive) as client:
            try:
                request = routing.read(scope, self._tokens, loopback_only=self._loopback_only)
                if request is None:
                    return await _without_instance(scope, receive, send)
                with _as_replies(request.instance):
                    response = await self._ask(scope["method"], request, client)
                    client.watch()
                    await self._relay(response, send)
            except AEnvError as error:
                await envelope.failure(error)(scope, receive, send)

    async def _ask(self, method: str, request: routing.DataRequest, client: Client) -> Response:
        origin = self._instances.address(request.instance).origin
        if request.length is not None and request.length > self._limit:
            raise too_large(self._limit)
        small = request.length is not None and request.length <= _SMALL
        body = await client.read(_SMALL) if small else client.stream(self._limit)
        return await self._pool.request(origin, method, request.target, request.headers, body)

    async def _relay(self, response: Response, send: Send) -> None:
        announced = response.header(b"content-length")
        length = int(announced) if announced else None
        if length is not None and length > self._limit:
            response.close()
            raise too_large(self._limit)
        start = {
            "type": "http.response.start",
            "status": response.status,
            "headers": routing.reply_headers(response.headers),
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
def _as_replies(instance: str) -> Iterator[None]:
    """Tells the client apart: nothing was sent, or nobody knows how far the call came."""
    try:
        yield
    except ConnectFailed:
        raise Unavailable(f"instance {instance!r} does not answer; it may have just ended") from None
    except NetworkError:
        raise ToolServerError(f"instance {instance!r} ended the connection before it had answered") from None


async def _without_instance(scope: Scope, receive: Receive, send: Send) -> None:
    if scope["path"] != "/health" or scope["method"] not in ("GET", "HEAD"):
        raise NotFound("no instance named; use /instances/<id>/… or the header AEnvCore-EnvInstance-ID")
    await envelope.reply(200, _HEALTHY)(scope, receive, send)
