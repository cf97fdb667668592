"""The tools of rollouts as MCP servers on loopback, for agents that are programs beside their instances.

Every call goes through the rollout's own environment: it is recorded, counted and limited like a call of a
function, and the program has no token of the gateway. Not here: what starts programs (`program_agent.py`).
"""

from __future__ import annotations

import asyncio
import hashlib
import secrets
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

from ...base import mcp
from ...base.errors import TooLarge, ToolError
from ...base.mcp import RpcError
from .. import loopback_server
from ..loopback_server import Receive, Scope, Send
from ..task_instances import WatchedEnvironment

MAX_REQUEST_BYTES = 64 << 20
_PATH = "/mcp"
_SERVER = {"name": "aenv", "version": "1"}
_JSON = (b"content-type", b"application/json")


@dataclass(frozen=True)
class ToolAccess:
    """What a program needs to call the tools of its rollout."""

    url: str
    token: str = field(repr=False)

    @property
    def headers(self) -> dict[str, str]:
        return {"Authorization": f"Bearer {self.token}"}


@dataclass(eq=False)
class _Player:
    """A rollout whose program may call."""

    env: WatchedEnvironment
    left: int
    """How many calls it may still make."""
    tasks: set[asyncio.Task[dict[str, Any] | None]] = field(default_factory=set)


class ToolEndpoint:
    """Serves the tools of all rollouts of an agent; an `async with` for its life."""

    def __init__(self) -> None:
        self._players: dict[bytes, _Player] = {}
        self._url = ""

    async def __aenter__(self) -> ToolEndpoint:
        self._listening = loopback_server.listening(self)
        self._url = f"http://127.0.0.1:{await self._listening.__aenter__()}{_PATH}"
        return self

    async def __aexit__(self, *exc: object) -> None:
        await self._listening.__aexit__(None, None, None)

    @asynccontextmanager
    async def serving(self, env: WatchedEnvironment, max_calls: int) -> AsyncIterator[ToolAccess]:
        """Let a program call the tools of `env` in the block, so many times.

        Calls that are under way at its end are given up.
        """
        token = secrets.token_urlsafe(24)
        player = self._players[_digest(token)] = _Player(env, max_calls)
        try:
            yield ToolAccess(self._url, token)
        finally:
            del self._players[_digest(token)]
            for task in player.tasks:
                task.cancel()
            await asyncio.gather(*player.tasks, return_exceptions=True)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """As an ASGI application."""
        headers = {name.decode("latin-1"): value.decode("latin-1") for name, value in scope["headers"]}
        kind, _, token = headers.get("authorization", "").partition(" ")
        player = self._players.get(_digest(token.strip())) if kind.lower() == "bearer" else None
        if scope["path"].rstrip("/") != _PATH:
            await _send(send, 404, mcp.error(None, mcp.INVALID_REQUEST, f"only '{_PATH}' is served"))
        elif player is None:
            message = "the token is not that of a rollout which is under way"
            await _send(send, 401, mcp.error(None, mcp.INVALID_REQUEST, message))
        elif scope["method"] == "DELETE":  # of a session, and there are none
            await _send(send, 200)
        elif scope["method"] != "POST":
            await _send(send, 405, mcp.error(None, mcp.INVALID_REQUEST, "use POST; nothing is pushed by GET"))
        else:
            await self._post(player, receive, send)

    async def _post(self, player: _Player, receive: Receive, send: Send) -> None:
        try:
            body = await loopback_server.body(receive, MAX_REQUEST_BYTES)
        except TooLarge as error:
            await _send(send, 413, mcp.error(None, mcp.INVALID_REQUEST, error.message))
            return
        task = asyncio.ensure_future(_answer(player, body))
        player.tasks.add(task)
        try:
            await asyncio.wait({task})
        finally:
            player.tasks.discard(task)
            task.cancel()
        if task.cancelled():
            await _send(send, 410, mcp.error(None, mcp.INTERNAL_ERROR, "the rollout has ended"))
            return
        answer = task.result()
        await _send(send, 202 if answer is None else 200, answer)


async def _answer(player: _Player, body: bytes) -> dict[str, Any] | None:
    """The answer to one message; None for a notification."""
    try:
        message = mcp.loads(body)
    except ValueError:
        return mcp.error(None, mcp.PARSE_ERROR, "the body is not JSON")
    if not isinstance(message, dict) or not isinstance(message.get("method"), str):
        return mcp.error(None, mcp.INVALID_REQUEST, "the body must be one request of JSON-RPC")
    if "id" not in message:
        return None
    params = message.get("params")
    try:
        found = await _result(player, message["method"], params if isinstance(params, dict) else {})
    except RpcError as error:
        return mcp.error(message["id"], error.code, error.message)
    return mcp.result(message["id"], found)


async def _result(player: _Player, method: str, params: Mapping[str, Any]) -> dict[str, Any]:
    match method:
        case "initialize":
            asked = params.get("protocolVersion")
            version = asked if asked in mcp.HANDSHAKE_VERSIONS else mcp.HANDSHAKE_VERSIONS[-1]
            return {"protocolVersion": version, "capabilities": {"tools": {}}, "serverInfo": _SERVER}
        case "ping":
            return {}
        case "tools/list":
            return {"tools": await player.env.known_tools()}
        case "tools/call":
            return await _called(player, params.get("name"), params.get("arguments"))
    raise RpcError(mcp.METHOD_NOT_FOUND, f"no method {method!r} here; there are tools/list and tools/call")


async def _called(player: _Player, name: Any, arguments: Any) -> dict[str, Any]:
    """What a tool answers. A call that gives no result is an error for the agent to read."""
    if not isinstance(name, str) or not isinstance(arguments, dict | None):
        raise RpcError(mcp.INVALID_PARAMS, "'name' must be a text and 'arguments' an object")
    if player.left < 1:
        return _failed("no more calls are allowed in this task; end now")
    player.left -= 1
    try:
        result = await player.env.call_tool(name, arguments)
    except ToolError as error:
        return _failed(error.message)
    structured = {"structuredContent": result.structured} if isinstance(result.structured, dict) else {}
    return {"content": result.content, "isError": result.is_error, **structured}


def _failed(text: str) -> dict[str, Any]:
    return {"content": [{"type": "text", "text": text}], "isError": True}


async def _send(send: Send, status: int, body: Mapping[str, Any] | None = None) -> None:
    data = b"" if body is None else mcp.dumps(body)
    headers = [(b"content-length", str(len(data)).encode()), *([_JSON] if data else [])]
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": data})


def _digest(token: str) -> bytes:
    """What tokens are found by, so that the time of looking says nothing about them."""
    return hashlib.sha256(token.encode()).digest()
