"""Tools in the formats of model providers: OpenAI Chat, Anthropic, and the OpenAI Agents SDK.

Providers allow only letters, digits, "_" and "-" in a name, 64 characters at most.
"""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import Awaitable, Callable, Coroutine, Iterable
from typing import Any

from .result import ToolResult

CallTool = Callable[[str, dict[str, Any]], Coroutine[Any, Any, ToolResult]]


def legal_names(names: Iterable[str]) -> dict[str, str]:
    """Each legal name with the tool that it stands for."""
    legal: dict[str, str] = {}
    for name in names:
        base = re.sub(r"[^A-Za-z0-9_-]", "_", name)[:64] or "_"
        candidate, number = base, 2
        while candidate in legal:
            suffix = f"_{number}"
            candidate, number = base[: 64 - len(suffix)] + suffix, number + 1
        legal[candidate] = name
    return legal


def openai(tools: Iterable[dict[str, Any]]) -> list[dict[str, Any]]:
    """Tools for OpenAI's chat completions."""
    return [
        {"type": "function", "function": {"name": legal, "description": text, "parameters": tool["inputSchema"]}}
        for legal, text, tool in _described(tools)
    ]


def anthropic(tools: Iterable[dict[str, Any]]) -> list[dict[str, Any]]:
    """Tools for Anthropic's messages."""
    return [
        {"name": legal, "description": text, "input_schema": tool["inputSchema"]}
        for legal, text, tool in _described(tools)
    ]


def openai_agents(tools: Iterable[dict[str, Any]], call_tool: CallTool) -> list[Any]:
    """`agents.FunctionTool`s that call the instance, from any loop. ImportError names a missing extra."""
    try:
        from agents import FunctionTool
    except ImportError as error:
        raise ImportError(
            "list_openai_tools() needs the OpenAI Agents SDK: pip install 'openai-agents>=0.24'"
        ) from error
    return [
        FunctionTool(
            name=legal,
            description=text,
            params_json_schema=tool["inputSchema"],
            on_invoke_tool=_invoker(tool["name"], call_tool),
            strict_json_schema=False,  # strict mode refuses tools with a free dict among their parameters
        )
        for legal, text, tool in _described(tools)
    ]


def _described(tools: Iterable[dict[str, Any]]) -> list[tuple[str, str, dict[str, Any]]]:
    """Each tool with its legal name and its description."""
    listed = [{**tool, "inputSchema": _parameters(tool["inputSchema"])} for tool in tools]
    legal = legal_names(tool["name"] for tool in listed)
    return [(name, tool.get("description") or "", tool) for name, tool in zip(legal, listed, strict=True)]


def _parameters(schema: dict[str, Any]) -> dict[str, Any]:
    """The schema of the arguments with its properties as objects.

    MCP also allows one that names none, and `true` for one of any type; providers and frameworks refuse these.
    """
    named = {name: {} if said is True else said for name, said in schema.get("properties", {}).items()}
    return {**schema, "properties": named}


def _invoker(name: str, call_tool: CallTool) -> Callable[[Any, str], Awaitable[Any]]:
    home = asyncio.get_running_loop()

    async def invoke(_context: Any, arguments: str) -> Any:
        try:
            parsed = json.loads(arguments or "{}")
        except ValueError as error:
            return f"the arguments of {name!r} are not JSON: {error}"
        if not isinstance(parsed, dict):
            return f"the arguments of {name!r} are not a JSON object"
        return _output(await _on(home, call_tool(name, parsed)))

    return invoke


def _output(result: ToolResult) -> Any:
    """A text; with images, a list of parts as the Agents SDK takes them."""
    if result.is_error:
        return json.dumps(result.content)
    parts = [_output_part(part) for part in result.content]
    if any(part["type"] == "image" for part in parts):
        return parts
    return "\n".join(part["text"] for part in parts)


def _output_part(part: dict[str, Any]) -> dict[str, Any]:
    match part:
        case {"type": "text", "text": text}:
            return {"type": "text", "text": text}
        case {"type": "image", "data": data, "mimeType": mime_type}:
            return {"type": "image", "image_url": f"data:{mime_type};base64,{data}"}
    return {"type": "text", "text": json.dumps(part)}


async def _on(home: asyncio.AbstractEventLoop, work: Coroutine[Any, Any, ToolResult]) -> ToolResult:
    """What `work` gives on the loop that its connections live on, which may be another one than the agent's."""
    if asyncio.get_running_loop() is home:
        return await work
    return await asyncio.wrap_future(asyncio.run_coroutine_threadsafe(work, home))
