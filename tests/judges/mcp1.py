"""The judge `mcp` 1.x: its `ClientSession` over streamable HTTP and stdio."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from typing import Any

import httpx
from checks import Progress, Refused, Target, main
from mcp import ClientSession, McpError, StdioServerParameters
from mcp.client.stdio import stdio_client
from mcp.client.streamable_http import streamable_http_client
from mcp.types import CancelledNotification, CancelledNotificationParams, ClientNotification
from pydantic import AnyUrl, BaseModel


class Session:
    has_ping = True

    def __init__(self, client: ClientSession) -> None:
        self._client = client

    async def tools(self) -> list[dict[str, Any]]:
        return _wire(await self._client.list_tools())["tools"]

    async def call(
        self, name: str, arguments: dict[str, Any], progress: Callable[[Progress], None] | None = None
    ) -> dict[str, Any]:
        async def on_progress(done: float, total: float | None, message: str | None) -> None:
            if progress:
                progress((done, total, message))

        try:
            return _wire(
                await self._client.call_tool(name, arguments, progress_callback=on_progress if progress else None)
            )
        except McpError as error:
            raise Refused(str(error)) from error

    async def call_then_cancel(self, name: str, arguments: dict[str, Any], when: Awaitable[object]) -> None:
        request_id = self._client._request_id  # what the next request will have; no public name tells it
        call = asyncio.create_task(self._client.call_tool(name, arguments))
        await asyncio.sleep(0)  # one turn, so that the call takes its id before `when` does
        await when
        params = CancelledNotificationParams(requestId=request_id, reason="judged")
        await self._client.send_notification(
            ClientNotification(CancelledNotification(method="notifications/cancelled", params=params))
        )
        call.cancel()
        with suppress(asyncio.CancelledError, McpError):
            await call

    async def ping(self) -> None:
        await self._client.send_ping()

    async def resources(self) -> list[dict[str, Any]]:
        return _wire(await self._client.list_resources())["resources"]

    async def resource_templates(self) -> list[dict[str, Any]]:
        return _wire(await self._client.list_resource_templates())["resourceTemplates"]

    async def read_resource(self, uri: str) -> list[dict[str, Any]]:
        try:
            return _wire(await self._client.read_resource(AnyUrl(uri)))["contents"]
        except McpError as error:
            raise Refused(str(error)) from error

    async def prompts(self) -> list[dict[str, Any]]:
        return _wire(await self._client.list_prompts())["prompts"]

    async def get_prompt(self, name: str, arguments: dict[str, str]) -> dict[str, Any]:
        return _wire(await self._client.get_prompt(name, arguments))


def _wire(model: BaseModel) -> dict[str, Any]:
    return model.model_dump(mode="json", by_alias=True, exclude_none=True)


@asynccontextmanager
async def connect(target: Target) -> AsyncIterator[Session]:
    async with AsyncExitStack() as stack:
        if target.command:
            command, *arguments = target.command
            streams = stdio_client(StdioServerParameters(command=command, args=arguments))
        else:
            http = await stack.enter_async_context(httpx.AsyncClient(headers=target.headers, timeout=30))
            streams = streamable_http_client(target.url, http_client=http)
        read, write, *_ = await stack.enter_async_context(streams)
        client = await stack.enter_async_context(ClientSession(read, write))
        await client.initialize()
        yield Session(client)


if __name__ == "__main__":
    main(connect)
