"""The judge `fastmcp` 4.x: its `Client` over HTTP and stdio, in the modes legacy, auto and pinned."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from typing import Any

from checks import Progress, Refused, Target, main
from fastmcp import Client
from fastmcp.client.transports import StdioTransport, StreamableHttpTransport
from mcp import MCPError
from pydantic import BaseModel


class Session:
    def __init__(self, client: Client[Any]) -> None:
        self._client = client
        self.has_ping = str(client.protocol_version) < "2026"

    async def tools(self) -> list[dict[str, Any]]:
        return [_wire(tool) for tool in await self._client.list_tools()]

    async def call(
        self, name: str, arguments: dict[str, Any], progress: Callable[[Progress], None] | None = None
    ) -> dict[str, Any]:
        async def on_progress(done: float, total: float | None, message: str | None) -> None:
            if progress:
                progress((done, total, message))

        try:
            result = await self._client.call_tool(
                name, arguments, progress_handler=on_progress, raise_on_error=False
            )
        except MCPError as error:
            raise Refused(str(error)) from error
        return {
            "content": [_wire(part) for part in result.content],
            "structuredContent": result.structured_content,
            "isError": result.is_error,
        }

    async def call_then_cancel(self, name: str, arguments: dict[str, Any], when: Awaitable[object]) -> None:
        call = asyncio.create_task(self._client.call_tool_mcp(name, arguments))
        await when
        call.cancel()  # the client tells the server: a notification, or in the stateless era a closed request
        with suppress(asyncio.CancelledError):
            await call

    async def ping(self) -> None:
        assert await self._client.ping()

    async def resources(self) -> list[dict[str, Any]]:
        return [_wire(resource) for resource in await self._client.list_resources()]

    async def resource_templates(self) -> list[dict[str, Any]]:
        return [_wire(template) for template in await self._client.list_resource_templates()]

    async def read_resource(self, uri: str) -> list[dict[str, Any]]:
        try:
            return [_wire(part) for part in await self._client.read_resource(uri)]
        except MCPError as error:
            raise Refused(str(error)) from error

    async def prompts(self) -> list[dict[str, Any]]:
        return [_wire(prompt) for prompt in await self._client.list_prompts()]

    async def get_prompt(self, name: str, arguments: dict[str, str]) -> dict[str, Any]:
        return _wire(await self._client.get_prompt(name, arguments))


def _wire(model: BaseModel) -> dict[str, Any]:
    return model.model_dump(mode="json", by_alias=True, exclude_none=True)


@asynccontextmanager
async def connect(target: Target) -> AsyncIterator[Session]:
    if target.command:
        command, *arguments = target.command
        transport: Any = StdioTransport(command, arguments, keep_alive=False)
    else:
        transport = StreamableHttpTransport(target.url, headers=target.headers)
    async with Client(transport, timeout=30, mode=target.mode) as client:
        era = "2025-11-25" if target.mode == "legacy" else "2026-07-28"
        assert client.protocol_version == era, f"negotiated {client.protocol_version}, expected {era}"
        yield Session(client)


if __name__ == "__main__":
    main(connect)
