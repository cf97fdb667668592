"""FastMCP server objects, served as they are: `mcp = FastMCP(...)` in an environment's file.

FastMCP keeps its own behaviour; we are its client inside the process, so that both protocol eras, plain tool
calls and health work as for any other environment. fastmcp is imported only when such an object is found.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from contextlib import AsyncExitStack, suppress
from types import ModuleType
from typing import Any

from ...base import mcp
from ...base.errors import StartFailed
from .calls import ReportProgress
from .surface import RegistrySurface


def find_server(modules: Iterable[ModuleType]) -> Any | None:
    """The first FastMCP server object among the globals of `modules`."""
    for module in modules:
        for value in vars(module).values():
            if any(
                kind.__name__ == "FastMCP" and kind.__module__.split(".")[0] in ("fastmcp", "mcp")
                for kind in type(value).__mro__
            ):
                return value
    return None


class FastMcpSurface:
    """A FastMCP server together with the environment's own registered functions."""

    def __init__(self, server: Any, own: RegistrySurface) -> None:
        self._server = server
        self._own = own
        self._stack = AsyncExitStack()
        self._client: Any = None

    async def __aenter__(self) -> FastMcpSurface:
        try:
            from fastmcp import Client  # seconds of import that other environments do not pay
        except ImportError as error:
            raise StartFailed(
                "the environment holds a FastMCP server, and fastmcp is not installed; "
                "install it with: pip install 'fastmcp>=2.14'"
            ) from error
        self._client = await self._stack.enter_async_context(Client(self._server))
        return self

    async def __aexit__(self, *exc: object) -> None:
        await self._stack.aclose()

    async def tools(self) -> list[dict[str, Any]]:
        return [*await self._own.tools(), *_plain(await self._client.list_tools())]

    async def call_tool(
        self, name: str, arguments: Mapping[str, Any], report: ReportProgress | None = None
    ) -> dict[str, Any]:
        if name in (tool["name"] for tool in await self._own.tools()):
            return await self._own.call_tool(name, arguments, report)

        async def progress(progress: float, total: float | None, message: str | None) -> None:
            if report:
                report(progress, total, message)

        try:
            result = await self._client.call_tool_mcp(name, dict(arguments), progress_handler=progress)
        except Exception as error:  # boundary: FastMCP's own errors, which differ between its versions
            return {"content": [{"type": "text", "text": str(error)}], "isError": True}
        return _one(result)

    async def resources(self) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
        fixed, templates = await self._own.resources()
        return (
            [*fixed, *_plain(await self._client.list_resources())],
            [*templates, *_plain(await self._client.list_resource_templates())],
        )

    async def read_resource(self, uri: str) -> dict[str, Any]:
        with suppress(mcp.RpcError):
            return await self._own.read_resource(uri)
        try:
            return _one(await self._client.read_resource_mcp(uri))
        except Exception as error:  # boundary: FastMCP's own errors
            raise mcp.RpcError(mcp.RESOURCE_NOT_FOUND, str(error), {"uri": uri}) from error

    async def prompts(self) -> list[dict[str, Any]]:
        return [*await self._own.prompts(), *_plain(await self._client.list_prompts())]

    async def get_prompt(self, name: str, arguments: Mapping[str, Any]) -> dict[str, Any]:
        if name in (prompt["name"] for prompt in await self._own.prompts()):
            return await self._own.get_prompt(name, arguments)
        try:
            return _one(await self._client.get_prompt_mcp(name, dict(arguments)))
        except Exception as error:  # boundary: FastMCP's own errors
            raise mcp.RpcError(mcp.INVALID_PARAMS, str(error)) from error


def _plain(models: Iterable[Any]) -> list[dict[str, Any]]:
    return [_one(model) for model in models]


def _one(model: Any) -> dict[str, Any]:
    dumped: dict[str, Any] = model.model_dump(mode="json", by_alias=True, exclude_none=True)
    # The stateless era's fields are ours to set, for the client that asked.
    return {key: value for key, value in dumped.items() if key not in ("resultType", "ttlMs", "cacheScope")}
