"""Blocks that define an environment: each is served, and its check calls it."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from aenv import Environment

from .blocks import Block, given, indented, replaced


@dataclass(frozen=True)
class Authored:
    """A block that defines an environment: it is served, and `check` calls it."""

    block: Block
    check: Callable[[Environment], Awaitable[None]]
    slow: bool = False


def _described(tool: dict[str, object], parameter: str) -> object:
    return tool["inputSchema"]["properties"][parameter]["description"]  # type: ignore[index]


async def _search_code(env: Environment) -> None:
    assert [tool["name"] for tool in await env.list_tools()] == ["doc@1.0.0/search_code"]
    assert (await env.call_tool("search_code", {"query": "def main"})).structured == {"matches": []}


async def _quickstart(env: Environment) -> None:
    await _search_code(env)
    assert await env.call_function("calculate_sum", {"a": 10, "b": 20}) == 30
    assert await env.call_reward({"status": {"completed": True}}) == 1.0
    assert await env.call_reward({"status": {}}) == 0.0


async def _my_tool(env: Environment) -> None:
    (tool,) = await env.list_tools()
    assert tool["description"].startswith("Tool description for LLMs.")
    assert _described(tool, "param1") == "Description of param1"
    assert (await env.call_tool("my_tool", {"param1": "x"})).structured == {"result": "Processed x"}


async def _code_quality_reward(env: Environment) -> None:
    assert await env.call_reward({"code": "", "test_results": {"passed": True}}) == 1.0
    assert await env.call_reward({"code": "", "test_results": {"passed": False}}) == -0.5


async def _echo(env: Environment) -> None:
    (tool,) = await env.list_tools()
    assert _described(tool, "content") == "Any content to echo"
    assert (await env.call_tool("my_custom_echo_env", {"content": "x"})).structured == {"result": "x"}


async def _simple_types(env: Environment) -> None:
    arguments = {"name": "a", "count": 1, "price": 1.5, "enabled": True, "tags": ["b"]}
    assert (await env.call_tool("simple_types", arguments)).content == [{"type": "text", "text": "OK"}]
    found = await env.call_tool("search_users", {"params": {"query": "ann"}})
    assert found.content == [{"type": "text", "text": "Searching: ann"}]


async def _evaluate_code_quality(env: Environment) -> None:
    reward = await env.call_reward({"code": "import a\ndef b(): ...", "test_results": {"passed": 1}})
    assert reward["score"] == 1.0


async def _custom_endpoint(env: Environment) -> None:
    answer = await env.call_function("custom_endpoint", {"data": {"a": 1}})
    assert answer == {"status": "success", "data": {"a": 1}}


async def _health(env: Environment) -> None:
    health = await env.check_health()
    assert health["data"]["status"] == "healthy"
    assert health["data"]["uptime"] == "Running normally"


NO_MATCHES = replaced("placeholder", "[...]", "[]")

AUTHORED = {
    "readme: define tools": Authored(
        Block("000", "from aenv import register_tool, register_function", repairs=(NO_MATCHES,)), _quickstart
    ),
    "article: register a tool": Authored(
        Block(
            "001",
            "from aenv import register_tool",
            lines=5,
            ends='{"matches": [...]}',
            repairs=(indented("000 11"), NO_MATCHES),
        ),
        _search_code,
    ),
    "concepts: tools": Authored(
        Block("002", "from aenv import register_tool", 11, repairs=(indented("000 11 22 1 2 11"),)), _my_tool
    ),
    "concepts: reward functions": Authored(
        Block("002", "from aenv import register_reward", 10, repairs=(indented("000 11 2 1 1 2 1"),)),
        _code_quality_reward,
    ),
    "sdk: development example": Authored(
        Block("003", "from typing import Dict, Any", 13, repairs=(indented("0000 1111 2 1 2 11"),)), _echo
    ),
    "sdk: input parameters": Authored(
        Block(
            "003",
            "from aenv import register_tool",
            20,
            below="Example:",
            repairs=(
                indented("00000 11111 0 1 00 111 00 1"),
                given("missing import", "from fastmcp import FastMCP\nfrom pydantic import BaseModel"),
            ),
        ),
        _simple_types,
        slow=True,
    ),
    "sdk: reward functions": Authored(
        Block(
            "003",
            "from aenv import register_reward",
            31,
            repairs=(indented("000 1111 22 1 2 1 111 1 22 11 22 11 22 1 222 1"),),
        ),
        _evaluate_code_quality,
    ),
    "sdk: function registration": Authored(
        Block("003", "from aenv import register_function", 5, repairs=(indented("000 11"),)), _custom_endpoint
    ),
    "sdk: health checks": Authored(
        Block("003", "from aenv import register_health", 17, repairs=(indented("000 1111 2 1 1 1 22222 1"),)),
        _health,
    ),
}
