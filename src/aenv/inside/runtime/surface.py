"""What MCP clients see of an environment: tools, resources, prompts.

`Surface` is the seam: the environment's own registry is one, a FastMCP server object is another
(`fastmcp.py`).
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Protocol
from urllib.parse import unquote

from ...base import mcp
from ...base.errors import AEnvError
from ..author.content import ToolOutput, UnserialisableResult, as_parts, failure, to_jsonable, to_output
from ..author.registry import Registry, ResourceDefinition
from .calls import CallFailed, Calls, ReportProgress

if TYPE_CHECKING:
    from .joined_parts import JoinedParts


class Surface(Protocol):
    """The MCP side of an environment. Lists are MCP descriptors; results are MCP results."""

    async def tools(self) -> list[dict[str, Any]]: ...

    async def call_tool(
        self, name: str, arguments: Mapping[str, Any], report: ReportProgress | None
    ) -> dict[str, Any]: ...

    async def resources(self) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
        """The resources, and the resource templates."""
        ...

    async def read_resource(self, uri: str) -> dict[str, Any]: ...

    async def prompts(self) -> list[dict[str, Any]]: ...

    async def get_prompt(self, name: str, arguments: Mapping[str, Any]) -> dict[str, Any]: ...


class RegistrySurface:
    def __init__(self, registry: Registry, calls: Calls) -> None:
        self._registry = registry
        self._calls = calls
        self.parts: JoinedParts | None = None
        """Of a composed environment, once they have joined."""

    async def tools(self) -> list[dict[str, Any]]:
        own = [tool.descriptor for tool in self._registry.tools.values() if not tool.hidden]
        return [*own, *self.parts.tools] if self.parts else own

    async def call_tool(
        self, name: str, arguments: Mapping[str, Any], report: ReportProgress | None = None
    ) -> dict[str, Any]:
        if self.parts and self.parts.has_tool(name):
            return await self.parts.call_tool(name, arguments)
        return (await self._output(name, arguments, report)).as_result()

    async def _output(self, name: str, arguments: Mapping[str, Any], report: ReportProgress | None) -> ToolOutput:
        tool = self._registry.tools.get(name)
        if tool is None:
            known = ", ".join(offered["name"] for offered in await self.tools())
            return failure(f"Unknown tool: {name}; this environment has {known or 'no tools'}")
        try:
            value = await self._calls.run(tool, arguments, report=report, timeout=tool.timeout)
            return to_output(value, tool.signature.structure)
        except CallFailed as error:
            return failure(f"Error calling tool {name!r}: {error.message}")
        except (AEnvError, UnserialisableResult) as error:
            return failure(str(error))

    async def resources(self) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
        fixed, templates = [], []
        for resource in self._registry.resources.values():
            shown = {
                "name": resource.name,
                "description": resource.description or "",
                "mimeType": resource.mime_type,
            }
            if "{" in resource.uri:
                templates.append({"uriTemplate": resource.uri, **shown})
            else:
                fixed.append({"uri": resource.uri, **shown})
        return fixed, templates

    async def read_resource(self, uri: str) -> dict[str, Any]:
        resource, arguments = self._match(uri)
        value = await self._calls.run(resource, arguments)
        parts = as_parts(value)
        if parts and "resource" in parts[0]:
            blob = parts[0]["resource"]["blob"]
            return {"contents": [{"uri": uri, "mimeType": resource.mime_type, "blob": blob}]}
        if parts and "data" in parts[0]:
            return {"contents": [{"uri": uri, "mimeType": parts[0]["mimeType"], "blob": parts[0]["data"]}]}
        text = parts[0]["text"] if parts else mcp.dumps(to_jsonable(value)).decode()
        return {"contents": [{"uri": uri, "mimeType": resource.mime_type, "text": text}]}

    def _match(self, uri: str) -> tuple[ResourceDefinition, dict[str, str]]:
        for resource in self._registry.resources.values():
            parts = re.split(r"{(\w+)}", resource.uri)
            pattern = "".join(
                f"(?P<{part}>[^/]+)" if index % 2 else re.escape(part) for index, part in enumerate(parts)
            )
            match = re.fullmatch(pattern, uri)
            if match:
                return resource, {name: unquote(value) for name, value in match.groupdict().items()}
        raise mcp.RpcError(mcp.RESOURCE_NOT_FOUND, f"no resource {uri!r}", {"uri": uri})

    async def prompts(self) -> list[dict[str, Any]]:
        return [
            {
                "name": prompt.name,
                "description": prompt.description or "",
                "arguments": [
                    {
                        "name": name,
                        "description": schema.get("description", ""),
                        "required": name in prompt.signature.input_schema.get("required", ()),
                    }
                    for name, schema in prompt.signature.input_schema["properties"].items()
                ],
            }
            for prompt in self._registry.prompts.values()
        ]

    async def get_prompt(self, name: str, arguments: Mapping[str, Any]) -> dict[str, Any]:
        prompt = self._registry.prompts.get(name)
        if prompt is None:
            raise mcp.RpcError(mcp.INVALID_PARAMS, f"no prompt {name!r}")
        value = await self._calls.run(prompt, arguments)
        messages = value if isinstance(value, list) else [{"role": "user", "content": value}]
        return {
            "description": prompt.description or "",
            "messages": [_message(message) for message in messages],
        }


def _message(message: Any) -> dict[str, Any]:
    role = message.get("role", "user") if isinstance(message, dict) else "user"
    content = message.get("content") if isinstance(message, dict) else message
    if isinstance(content, str):
        content = {"type": "text", "text": content}
    return {"role": role, "content": to_jsonable(content)}
