"""CAMEL (`pip install 'camel-ai>=0.2.90'`): the tools of an environment as its `FunctionTool`s.

from camel.agents import ChatAgent
from aenv.integrations.camel import tools

async with Environment("gsm-tools@1.0.0") as env:
    agent = ChatAgent("You solve arithmetic problems.", model=model, tools=await tools(env))
    print((await agent.astep("Read the problem and solve it.")).msgs[0].content)
"""

from __future__ import annotations

from typing import Any

from camel.toolkits import FunctionTool
from camel.utils.tool_result import ToolResult

from .tool_calls import InstanceTool, ToolsOf


def _tool(tool: InstanceTool) -> FunctionTool:
    # With `astep` it is awaited; with `step`, CAMEL runs it on a loop of its own.
    async def call(**arguments: Any) -> str | ToolResult:
        answer = await tool.call(arguments)
        if answer.pictures:
            return ToolResult(answer.text, images=[picture.url for picture in answer.pictures])
        # CAMEL hides the text of an exception in longer ones: an error is told as a result.
        return f"Error: {answer.text}" if answer.is_error else answer.text

    call.__name__ = tool.name
    function = {"name": tool.name, "description": tool.description, "parameters": tool.schema}
    return FunctionTool(call, openai_tool_schema={"type": "function", "function": function})


tools = ToolsOf(_tool)
"""`await tools(env)` for `astep`, or `tools(env)` of a SyncEnvironment for `step`. A tool that fails gives a text
that begins with "Error: "; images follow as a message of their own."""
