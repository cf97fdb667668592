"""The MCP endpoint that ready agents call: what it answers, and to whom."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from typing import Any

import pytest

from aenv.base.addresses import parse_url
from aenv.base.errors import ToolError
from aenv.base.http1 import Pool
from aenv.client.result import ToolResult
from aenv.rollouts.ready.tool_endpoint import ToolAccess, ToolEndpoint

TOOLS = [{"name": "echo", "inputSchema": {"type": "object"}}]


class Echo:
    """An environment with one tool, as far as the endpoint knows it."""

    def __init__(self) -> None:
        self.hangs, self.was_cancelled = asyncio.Event(), asyncio.Event()

    async def known_tools(self) -> list[dict[str, Any]]:
        return TOOLS

    async def call_tool(self, name: str, arguments: dict[str, Any] | None) -> ToolResult:
        if name == "hang":
            self.hangs.set()
            try:
                await asyncio.Event().wait()
            finally:
                self.was_cancelled.set()
        if name != "echo":
            raise ToolError(f"no tool {name!r}")
        return ToolResult([{"type": "text", "text": "hi"}], structured={"said": arguments})


@pytest.fixture
async def endpoint() -> AsyncIterator[ToolEndpoint]:
    async with ToolEndpoint() as made:
        yield made


async def ask(to: ToolAccess, message: Any, method: str = "POST", token: str | None = None) -> tuple[int, Any]:
    origin, path = parse_url(to.url)
    body = message if isinstance(message, bytes) else json.dumps(message).encode()
    headers = [("authorization", f"Bearer {to.token if token is None else token}")]
    async with Pool() as pool:
        response = await pool.request(origin, method, path, headers, body)
        text = await response.read()
    return response.status, json.loads(text) if text else None


def request(method: str, **params: Any) -> dict[str, Any]:
    return {"jsonrpc": "2.0", "id": 1, "method": method, "params": params}


async def test_a_client_greets_lists_and_calls(endpoint: ToolEndpoint) -> None:
    async with endpoint.serving(Echo(), 9) as access:  # type: ignore[arg-type]
        _, greeted = await ask(access, request("initialize", protocolVersion="2025-03-26"))
        assert greeted["result"]["protocolVersion"] == "2025-03-26"
        note = {"jsonrpc": "2.0", "method": "notifications/initialized"}
        assert await ask(access, note) == (202, None)
        assert (await ask(access, request("tools/list")))[1]["result"] == {"tools": TOOLS}
        _, called = await ask(access, request("tools/call", name="echo", arguments={"a": 1}))
        content = [{"type": "text", "text": "hi"}]
        assert called["result"] == {"content": content, "isError": False, "structuredContent": {"said": {"a": 1}}}


async def test_a_call_without_a_result_is_for_the_agent_to_read(endpoint: ToolEndpoint) -> None:
    async with endpoint.serving(Echo(), 1) as access:  # type: ignore[arg-type]
        _, found = await ask(access, request("tools/call", name="other"))
        assert found["result"] == {"content": [{"type": "text", "text": "no tool 'other'"}], "isError": True}
        _, found = await ask(access, request("tools/call", name="echo"))
        assert "no more calls" in found["result"]["content"][0]["text"]


@pytest.mark.parametrize(
    ("message", "code"),
    [
        (b"{", -32700),
        ([request("ping")], -32600),
        ({"id": 1}, -32600),
        (request("resources/list"), -32601),
        (request("tools/call", name=1), -32602),
        (request("tools/call", name="echo", arguments=[]), -32602),
    ],
)
async def test_a_wrong_request_is_an_error_of_the_protocol(
    endpoint: ToolEndpoint, message: Any, code: int
) -> None:
    async with endpoint.serving(Echo(), 9) as access:  # type: ignore[arg-type]
        assert (await ask(access, message))[1]["error"]["code"] == code


async def test_only_the_token_of_a_rollout_that_goes_on_is_taken(endpoint: ToolEndpoint) -> None:
    async with endpoint.serving(Echo(), 9) as access:  # type: ignore[arg-type]
        assert [(await ask(access, b"", method))[0] for method in ("GET", "DELETE")] == [405, 200]
        assert (await ask(access, request("ping"), token="other"))[0] == 401
    assert (await ask(access, request("ping")))[0] == 401
    assert access.token not in repr(access)


async def test_a_call_that_goes_on_at_the_end_of_a_rollout_is_given_up(endpoint: ToolEndpoint) -> None:
    env = Echo()
    async with asyncio.TaskGroup() as group:
        async with endpoint.serving(env, 9) as access:  # type: ignore[arg-type]
            asked = group.create_task(ask(access, request("tools/call", name="hang")))
            await env.hangs.wait()
        await env.was_cancelled.wait()
    assert asked.result()[0] == 410
