"""Google's Agent Development Kit (`pip install 'google-adk>=2.13'`): the tools of an environment as its tools.

from google.adk.agents import LlmAgent
from aenv.integrations.google_adk import tools

async with Environment("gsm-tools@1.0.0") as env:
    agent = LlmAgent(name="solver", model="gemini-flash-latest", tools=await tools(env))
"""

from __future__ import annotations

from typing import Any

from google.adk.tools import BaseTool
from google.genai import types

from .tool_calls import InstanceTool, ToolsOf


class AdkTool(BaseTool):
    """A tool of an instance."""

    def __init__(self, tool: InstanceTool) -> None:
        super().__init__(name=tool.name, description=tool.description)
        self._tool = tool

    def _get_declaration(self) -> types.FunctionDeclaration:
        return types.FunctionDeclaration(
            name=self.name, description=self.description, parameters_json_schema=self._tool.schema
        )

    async def run_async(self, *, args: dict[str, Any], tool_context: Any) -> dict[str, Any]:
        """`{"result": text}`, or `{"error": text}` of a tool that fails. ADK takes images out of it."""
        answer = await self._tool.call(args)
        if answer.is_error:
            return {"error": answer.text}
        images = [types.Part.from_bytes(data=one.content, mime_type=one.mime_type) for one in answer.pictures]
        return {"result": answer.text, **({"images": images} if images else {})}


tools = ToolsOf(AdkTool)
"""`await tools(env)`, or `tools(env)` of a SyncEnvironment. A tool that fails gives `{"error": text}`;
images are parts of the function's response."""
