"""Pydantic AI (`pip install 'pydantic-ai-slim>=2.66'`): the tools of an environment as its `Tool`s.

from pydantic_ai import Agent
from aenv.integrations.pydantic_ai import tools

async with Environment("gsm-tools@1.0.0") as env:
    agent = Agent("openai-chat:gpt-5-mini", tools=await tools(env))
    print((await agent.run("Read the problem and solve it.")).output)
"""

from __future__ import annotations

from typing import Any

from pydantic_ai import BinaryContent, Tool
from pydantic_ai.exceptions import ToolFailed
from pydantic_core import SchemaValidator, core_schema

from .tool_calls import InstanceTool, ToolAnswer, ToolsOf


def _tool(tool: InstanceTool) -> Tool[Any]:
    async def call(**arguments: Any) -> Any:
        return _returned(await tool.call(arguments))

    made: Tool[Any] = Tool.from_schema(call, tool.name, tool.description, tool.schema)
    # Without it, arguments of a model that are JSON but no object end the agent with a TypeError.
    made.function_schema.validator = SchemaValidator(core_schema.dict_schema(core_schema.str_schema()))
    return made


def _returned(answer: ToolAnswer) -> Any:
    if answer.is_error:
        # Not ModelRetry: that counts against the agent's retries, and an agent may fail as often as it likes.
        raise ToolFailed(answer.text)
    if not answer.pictures:
        return answer.text
    images = [BinaryContent(picture.content, media_type=picture.mime_type) for picture in answer.pictures]
    return [*([answer.text] if answer.text else []), *images]


tools = ToolsOf(_tool)
"""`await tools(env)`, or `tools(env)` of a SyncEnvironment. A tool that fails raises `ToolFailed`, which Pydantic
AI tells the model; images are `BinaryContent`."""
