"""LangChain and LangGraph (`pip install 'langchain>=1.4'`): the tools of an environment as their tools.

from langchain.agents import create_agent
from aenv.integrations.langchain import tools

async with Environment("gsm-tools@1.0.0") as env:
    agent = create_agent("openai:gpt-5-mini", await tools(env))
    print(await agent.ainvoke({"messages": [("user", "Read the problem and solve it.")]}))
"""

from __future__ import annotations

from typing import Any

from langchain_core.tools import BaseTool, ToolException

from .tool_calls import InstanceTool, ToolAnswer, ToolsOf


class LangChainTool(BaseTool):
    """A tool of an instance, called with and without async."""

    instance_tool: Any

    # Named arguments alone, and none of LangChain's own among them: a tool may have a parameter called "config".
    async def _arun(self, /, **arguments: Any) -> tuple[Any, Any]:
        return _content_and_artifact(await self.instance_tool.call(arguments))

    def _run(self, /, **arguments: Any) -> tuple[Any, Any]:
        return _content_and_artifact(self.instance_tool.call_blocking(arguments))


def _content_and_artifact(answer: ToolAnswer) -> tuple[Any, Any]:
    if answer.is_error:
        raise ToolException(answer.text)
    if not answer.pictures:
        return answer.text, answer.structured
    images = [{"type": "image", "base64": image.data, "mime_type": image.mime_type} for image in answer.pictures]
    return [*([{"type": "text", "text": answer.text}] if answer.text else []), *images], answer.structured


def _tool(tool: InstanceTool) -> LangChainTool:
    return LangChainTool(
        name=tool.name,
        description=tool.description,
        args_schema=tool.schema,
        response_format="content_and_artifact",
        handle_tool_error=True,  # a ToolException becomes a ToolMessage with the status "error"
        instance_tool=tool,
    )


tools = ToolsOf(_tool)
"""`await tools(env)`, or `tools(env)` of a SyncEnvironment. A tool that fails gives a `ToolMessage` with the
status "error"; images are content blocks, and structured results the message's `artifact`."""
