"""AutoGen (`pip install 'autogen-agentchat>=0.7.5'`): the tools of an environment as its `BaseTool`s.

from autogen_agentchat.agents import AssistantAgent
from aenv.integrations.autogen import tools

async with Environment("gsm-tools@1.0.0") as env:
    agent = AssistantAgent("solver", model_client, tools=await tools(env), max_tool_iterations=20)
    print(await agent.run(task="Read the problem and solve it."))
"""

from __future__ import annotations

from typing import Any

from autogen_core import CancellationToken
from autogen_core.tools import BaseTool, ToolSchema
from pydantic import BaseModel, ConfigDict

from .tool_calls import InstanceTool, ToolAnswer, ToolsOf


class ToolArguments(BaseModel):
    """Whatever the model says: the instance validates it."""

    model_config = ConfigDict(extra="allow")


class AutogenTool(BaseTool[ToolArguments, ToolAnswer]):
    """A tool of an instance."""

    def __init__(self, tool: InstanceTool) -> None:
        super().__init__(ToolArguments, ToolAnswer, tool.name, tool.description)
        self._tool = tool

    @property
    def schema(self) -> ToolSchema:
        """The tool's own schema, with its references."""
        return ToolSchema(name=self.name, description=self.description, parameters=self._tool.schema, strict=False)

    async def run(self, args: ToolArguments, cancellation_token: CancellationToken) -> ToolAnswer:
        """The answer; RuntimeError where the tool fails, which AutoGen tells the model."""
        answer = await self._tool.call(args.model_extra)
        if answer.is_error:
            raise RuntimeError(answer.text)
        return answer

    def return_value_as_string(self, value: Any) -> str:
        """What the model reads. Results are texts in AutoGen: of an image it reads the type and the size."""
        images = [f"[{image.mime_type}, {len(image.content)} bytes]" for image in value.pictures]
        return "\n".join([*([value.text] if value.text else []), *images])


tools = ToolsOf(AutogenTool)
"""`await tools(env)`, or `tools(env)` of a SyncEnvironment. A tool that fails is a result with `is_error`.
`run_json` gives a `ToolAnswer` with its images; AutoGen's own loop makes texts of results."""
