"""The judge `fastmcp` 2.x: its `Client` over streamable HTTP and stdio."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from typing import Any

from checks import Progress, Refused, Target, main
from fastmcp import Client
from fastmcp.client.transports import StdioTransport, StreamableHttpTransport
from mcp import McpError
from pydantic import BaseModel


class Session:
    has_ping = True

    def __init__(self, client: Client[Any]) -> None:
        self._client = client

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
        except McpError as error:
            raise Refused(str(error)) from error
        return {
            "content": [_wire(part) for part in result.content],
            "structuredContent": result.structured_content,
            "isError": result.is_error,
        }

    async def call_then_cancel(self, name: str, arguments: dict[str, Any], when: Awaitable[object]) -> None:
        request_id = self._client.session._request_id  # what the next request will have; no public name tells it
        call = asyncio.create_task(self._client.call_tool_mcp(name, arguments))
        await asyncio.sleep(0)  # one turn, so that the call takes its id before `when` does
        await when
        await self._client.cancel(request_id, "judged")
        call.cancel()
        with suppress(asyncio.CancelledError, McpError):
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
        except McpError as error:
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
    async with Client(transport, timeout=30) as client:
        yield Session(client)


if __name__ == "__main__":
    main(connect)
