"""The judge `mcp` 2.x: its `Client` over HTTP and stdio, in the modes legacy, auto and pinned."""

from __future__ import annotations

import asyncio
import warnings
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from typing import Any

import httpx2
from checks import Progress, Refused, Target, main
from mcp import Client, MCPError, StdioServerParameters
from mcp.client.streamable_http import streamable_http_client
from pydantic import BaseModel


class Session:
    def __init__(self, client: Client) -> None:
        self._client = client
        self.has_ping = client.protocol_version < "2026"

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
        except MCPError as error:
            raise Refused(str(error)) from error

    async def call_then_cancel(self, name: str, arguments: dict[str, Any], when: Awaitable[object]) -> None:
        call = asyncio.create_task(self._client.call_tool(name, arguments))
        await when
        call.cancel()  # the client tells the server: a notification, or in the stateless era a closed request
        with suppress(asyncio.CancelledError):
            await call

    async def ping(self) -> None:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # deprecated since the stateless era, which has none
            await self._client.send_ping()

    async def resources(self) -> list[dict[str, Any]]:
        return _wire(await self._client.list_resources())["resources"]

    async def resource_templates(self) -> list[dict[str, Any]]:
        return _wire(await self._client.list_resource_templates())["resourceTemplates"]

    async def read_resource(self, uri: str) -> list[dict[str, Any]]:
        try:
            return _wire(await self._client.read_resource(uri))["contents"]
        except MCPError as error:
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
            server: Any = StdioServerParameters(command=command, args=arguments)
        else:
            http = await stack.enter_async_context(httpx2.AsyncClient(headers=target.headers, timeout=30))
            server = streamable_http_client(target.url, http_client=http)
        client = await stack.enter_async_context(Client(server, mode=target.mode))
        era = "2025-11-25" if target.mode == "legacy" else "2026-07-28"
        assert client.protocol_version == era, f"negotiated {client.protocol_version}, expected {era}"
        yield Session(client)


if __name__ == "__main__":
    main(connect)
