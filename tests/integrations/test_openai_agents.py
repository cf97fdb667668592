"""`list_openai_tools` with the real OpenAI Agents SDK, in its own virtual environment."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import pytest

from tests.venvs import judge

SOURCE = Path(__file__).parents[2] / "src"

TOOLS = """
from aenv import *

@register_tool
def search(query: str, options: dict = {}) -> dict:
    '''Search.'''
    return {"found": query}

@register_tool
def boom():
    raise ValueError("bad")
"""

SCRIPT = """
import asyncio, json
from agents import Agent, FunctionTool
from aenv import Environment

async def main():
    async with Environment("my-env@1.0.0") as env:
        tools = await env.list_openai_tools()
        Agent(name="a", tools=tools)
        assert all(isinstance(tool, FunctionTool) for tool in tools)
        print(json.dumps({
            "names": [tool.name for tool in tools],
            "search": await tools[0].on_invoke_tool(None, '{"query": "x"}'),
            "boom": await tools[1].on_invoke_tool(None, ""),
            "bad": await tools[0].on_invoke_tool(None, "{"),
        }))

asyncio.run(main())
"""


@pytest.mark.slow
@pytest.mark.timeout(180)
async def test_the_tools_of_an_environment_are_function_tools_of_the_agents_sdk(project, start):
    runtime = await start(project(TOOLS))
    done = subprocess.run(
        [judge("agents"), "-c", SCRIPT],
        env={"PYTHONPATH": str(SOURCE), "DUMMY_INSTANCE_IP": runtime.url, "OPENAI_AGENTS_DISABLE_TRACING": "1"},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    said = json.loads(done.stdout)
    assert said["names"] == ["search", "boom"]
    assert said["search"] == '{"found":"x"}'
    assert json.loads(said["boom"])[0]["text"] == "Error calling tool 'boom': bad"
    assert said["bad"].startswith("the arguments of 'search' are not JSON")
