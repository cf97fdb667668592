"""The MCP methods, for both protocol eras, independent of transport.

A transport hands in a decoded message and gets the reply's body back. Eras differ in three ways only: how a
client introduces itself, the extra fields of a stateless result, and how a call is cancelled (the transport's
business).
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from typing import Any

from ...base import mcp
from ...base.errors import AEnvError
from ...base.limits import MAX_BODY_BYTES
from ..author.content import failure
from .calls import ReportProgress
from .history import History
from .messages import too_large
from .surface import Surface

_LIST_TTL_MS = 300_000  # what an instance offers does not change while it lives


def encode_result(id: str | int, result: dict[str, Any]) -> bytes:
    """The reply on the wire; a result that cannot go there becomes a tool's failure that says why."""
    try:
        body = mcp.dumps(mcp.result(id, result))
    except ValueError as error:  # text with a lone surrogate has no UTF-8 form
        return mcp.dumps(mcp.result(id, failure(f"the result has no JSON form: {error}").as_result()))
    if len(body) > MAX_BODY_BYTES:
        return mcp.dumps(mcp.result(id, failure(too_large(len(body))).as_result()))
    return body


class Methods:
    """`await methods.call(method, params, …)` gives the `result` of a JSON-RPC request."""

    def __init__(self, surface: Surface, history: History, name: str, version: str) -> None:
        self._surface = surface
        self._run_tool = history.of_tools(surface.call_tool)
        self._server_info = {"name": name, "version": version}
        self._methods: dict[str, Callable[[Mapping[str, Any]], Awaitable[dict[str, Any]]]] = {
            "initialize": self._initialize,
            "server/discover": self._discover,
            "ping": self._empty,
            "logging/setLevel": self._empty,
            "tools/list": self._list_tools,
            "resources/list": self._list_resources,
            "resources/templates/list": self._list_templates,
            "resources/read": self._read_resource,
            "prompts/list": self._list_prompts,
            "prompts/get": self._get_prompt,
        }

    async def call(
        self,
        method: str,
        params: Mapping[str, Any],
        *,
        stateless: bool = False,
        report: ReportProgress | None = None,
    ) -> dict[str, Any]:
        """The method's result. RpcError when the request itself is wrong."""
        if method == "tools/call":
            result = await self._call_tool(params, report)
        else:
            handler = self._methods.get(method)
            if handler is None:
                raise mcp.RpcError(mcp.METHOD_NOT_FOUND, f"unknown method {method!r}")
            try:
                result = await handler(params)
            except AEnvError as error:
                raise mcp.RpcError(mcp.INTERNAL_ERROR, error.message) from error
        return self._stateless(method, result) if stateless else result

    def _stateless(self, method: str, result: dict[str, Any]) -> dict[str, Any]:
        meta = {**result.get("_meta", {}), mcp.SERVER_INFO_META: self._server_info}
        extra: dict[str, Any] = {"resultType": "complete", "_meta": meta}
        if method.endswith("/list") or method in ("server/discover", "resources/read"):
            cached = 0 if method == "resources/read" else _LIST_TTL_MS
            extra |= {"ttlMs": cached, "cacheScope": "private"}
        return {**result, **extra}

    async def _initialize(self, params: Mapping[str, Any]) -> dict[str, Any]:
        asked = params.get("protocolVersion")
        version = asked if asked in mcp.HANDSHAKE_VERSIONS else mcp.HANDSHAKE_VERSIONS[-1]
        return {
            "protocolVersion": version,
            "capabilities": await self._capabilities(),
            "serverInfo": self._server_info,
        }

    async def _discover(self, params: Mapping[str, Any]) -> dict[str, Any]:
        return {
            "supportedVersions": [mcp.STATELESS_VERSION, *reversed(mcp.HANDSHAKE_VERSIONS)],
            "capabilities": await self._capabilities(),
        }

    async def _capabilities(self) -> dict[str, Any]:
        capabilities: dict[str, Any] = {"tools": {"listChanged": False}}
        if any(await self._surface.resources()):
            capabilities["resources"] = {"listChanged": False, "subscribe": False}
        if await self._surface.prompts():
            capabilities["prompts"] = {"listChanged": False}
        return capabilities

    async def _empty(self, params: Mapping[str, Any]) -> dict[str, Any]:
        return {}

    async def _list_tools(self, params: Mapping[str, Any]) -> dict[str, Any]:
        return {"tools": await self._surface.tools()}

    async def _call_tool(self, params: Mapping[str, Any], report: ReportProgress | None) -> dict[str, Any]:
        name = params.get("name")
        arguments = params.get("arguments")
        if not isinstance(name, str):
            raise mcp.RpcError(mcp.INVALID_PARAMS, "params.name must be the tool's name")
        if arguments is not None and not isinstance(arguments, dict):
            raise mcp.RpcError(mcp.INVALID_PARAMS, "params.arguments must be an object")
        return await self._run_tool(name, arguments or {}, report)

    async def _list_resources(self, params: Mapping[str, Any]) -> dict[str, Any]:
        return {"resources": (await self._surface.resources())[0]}

    async def _list_templates(self, params: Mapping[str, Any]) -> dict[str, Any]:
        return {"resourceTemplates": (await self._surface.resources())[1]}

    async def _read_resource(self, params: Mapping[str, Any]) -> dict[str, Any]:
        uri = params.get("uri")
        if not isinstance(uri, str):
            raise mcp.RpcError(mcp.INVALID_PARAMS, "params.uri must be a string")
        return await self._surface.read_resource(uri)

    async def _list_prompts(self, params: Mapping[str, Any]) -> dict[str, Any]:
        return {"prompts": await self._surface.prompts()}

    async def _get_prompt(self, params: Mapping[str, Any]) -> dict[str, Any]:
        name, arguments = params.get("name"), params.get("arguments") or {}
        if not isinstance(name, str) or not isinstance(arguments, dict):
            raise mcp.RpcError(mcp.INVALID_PARAMS, "params.name must be a string and params.arguments an object")
        return await self._surface.get_prompt(name, arguments)
