"""FastMCP server objects served as they are, by both generations of FastMCP."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from aenv.base import mcp
from tests.running import DidNotStart, running_runtime
from tests.venvs import judge

SOURCE = Path(__file__).parent.parent / "src"

SERVER = '''
from fastmcp import Context, FastMCP
from aenv import register_function, register_prompt, register_resource, register_tool

mcp = FastMCP("demo")

@mcp.tool
def add(a: int, b: int) -> int:
    """Add."""
    return a + b

@mcp.tool
async def steps(ctx: Context) -> str:
    for n in range(3):
        await ctx.report_progress(n, 3)
    return "done"

@mcp.tool
def fails() -> str:
    raise ValueError("nope")

@mcp.resource("note://theirs")
def note() -> str:
    return "their note"

@mcp.prompt
def ask(topic: str) -> str:
    return f"What about {topic}?"

@register_tool
def own(x: int) -> int:
    return x

@register_function
def plain(x: int) -> int:
    return x

@register_resource("note://ours")
def our_note() -> str:
    return "our note"

@register_prompt
def greet() -> str:
    return "Hello!"
'''


@pytest.fixture(params=["fastmcp2", "fastmcp4"])
async def runtime(request, project):
    python = str(judge(request.param))
    async with running_runtime(project(SERVER), variables={"PYTHONPATH": str(SOURCE)}, python=python) as running:
        yield running


@pytest.mark.slow
@pytest.mark.timeout(180)
async def test_a_fastmcp_server_is_served_with_all_it_has(runtime):
    names = {tool["name"] for tool in runtime.ready["tools"]}
    assert names == {"add", "steps", "fails", "own"}
    added = await runtime.tool("add", a=1, b=2)
    assert (added["content"][0]["text"], added["structuredContent"]) == ("3", {"result": 3})
    assert (await runtime.tool("own", x=4))["structuredContent"] == {"result": 4}
    failed = await runtime.tool("fails")
    assert failed["isError"] is True
    assert "nope" in failed["content"][0]["text"]
    assert (await runtime.tool("unknown"))["isError"] is True
    assert (await runtime.call("POST", "/tools/add", {"a": 2, "b": 3}))[1]["data"]["structured"] == {"result": 5}
    assert (await runtime.call("POST", "/functions/plain", {"x": 6}))[1]["data"] == 6
    for uri, text in (("note://theirs", "their note"), ("note://ours", "our note")):
        assert (await runtime.rpc("resources/read", uri=uri))["result"]["contents"][0]["text"] == text
    for name, arguments in (("ask", {"topic": "x"}), ("greet", {})):
        reply = await runtime.rpc("prompts/get", name=name, arguments=arguments)
        assert reply["result"]["messages"][0]["role"] == "user"
    assert (await runtime.rpc("resources/read", uri="note://none"))["error"]["code"] == mcp.RESOURCE_NOT_FOUND


@pytest.mark.slow
@pytest.mark.timeout(180)
async def test_progress_of_a_fastmcp_tool_reaches_the_client(runtime):
    params = {"name": "steps", "arguments": {}, "_meta": {"progressToken": 1}}
    accept = {"accept": "application/json, text/event-stream"}
    body = mcp.dumps(mcp.request(1, "tools/call", params))
    _, reply = await runtime.request("POST", "/mcp", body, accept)
    *progress, last = [json.loads(event) for event in mcp.SseParser().feed(reply)]
    assert [message["params"]["progress"] for message in progress] == [0, 1, 2]
    assert last["result"]["content"][0]["text"] == "done"


async def test_a_fastmcp_object_without_fastmcp_names_the_extra(project):
    path = project("class FastMCP: pass\nFastMCP.__module__ = 'mcp.server.fastmcp'\nserver = FastMCP()")
    with pytest.raises(DidNotStart, match=r"pip install 'fastmcp>=2.14'"):
        async with running_runtime(path):
            pass
