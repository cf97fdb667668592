"""Inspect (`pip install 'inspect-ai>=0.3.285'`): the tools of an environment as its `Tool`s.

from inspect_ai.agent import react
from aenv.integrations.inspect_ai import tools

async with Environment("gsm-tools@1.0.0") as env:
    agent = react(tools=await tools(env))
"""

from __future__ import annotations

from typing import Any

from inspect_ai.model import ContentImage, ContentText
from inspect_ai.tool import Tool, ToolDef, ToolError, ToolParams

from .tool_calls import InstanceTool, ToolAnswer, ToolsOf, resolved


def _tool(tool: InstanceTool) -> Tool:
    # Inspect hands over all arguments as they are where the parameter is called `kwargs` and is of any type.
    async def execute(**kwargs: Any) -> Any:
        return _result(await tool.call(kwargs))

    schema = _known(resolved(tool.schema))
    # Inspect refuses a parameter that is not described.
    described = {name: {"description": name, **said} for name, said in schema.get("properties", {}).items()}
    parameters = ToolParams.model_validate({**schema, "properties": described})
    return ToolDef(execute, tool.name, tool.description or tool.name, parameters).as_tool()


def _known(schema: Any) -> Any:
    """The schema in the words that Inspect knows; it leaves out all others, with what they say of the type."""
    if isinstance(schema, list):
        return [_known(one) for one in schema]
    if not isinstance(schema, dict):
        return schema
    known = {key: _known(said) for key, said in schema.items() if key not in ("const", "oneOf", "prefixItems")}
    if isinstance(named := schema.get("properties"), dict):
        known["properties"] = {name: _known(one) for name, one in named.items()}
    if "const" in schema:
        known["enum"] = [schema["const"]]
    if "oneOf" in schema:
        known.setdefault("anyOf", _known(schema["oneOf"]))
    if "prefixItems" in schema:
        known.setdefault("items", {"anyOf": _known(schema["prefixItems"])})
    return known


def _result(answer: ToolAnswer) -> Any:
    if answer.is_error:
        raise ToolError(answer.text)
    if not answer.pictures:
        return answer.text
    images = [ContentImage(image=picture.url) for picture in answer.pictures]
    return [*([ContentText(text=answer.text)] if answer.text else []), *images]


tools = ToolsOf(_tool)
"""`await tools(env)`, or `tools(env)` of a SyncEnvironment. A tool that fails raises `ToolError`, which
Inspect tells the model; images are `ContentImage`s."""
