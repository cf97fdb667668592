"""The published registry classes: views of the registry, with nothing of their own."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from pydantic import BaseModel, ConfigDict

from ...base.errors import AEnvError
from .decorators import register_function, register_tool
from .registry import FunctionDefinition, Registry, ToolDefinition, active_registry, collecting


class Tool(BaseModel):
    """A tool's description."""

    model_config = ConfigDict(extra="allow")

    name: str
    description: str
    inputSchema: dict[str, Any]  # noqa: N815 - the published name
    outputSchema: dict[str, Any] | None = None  # noqa: N815 - the published name
    hidden: bool = False

    def get_mcp_tool(self) -> Any:
        """As `mcp.types.Tool`; needs the `mcp` package."""
        try:
            from mcp import types
        except ImportError as error:
            raise AEnvError("get_mcp_tool() needs the MCP SDK: pip install mcp") from error
        return types.Tool(name=self.name, description=self.description, inputSchema=self.inputSchema)

    def get_openai_tool(self) -> dict[str, Any]:
        """As a tool of OpenAI's chat completions."""
        described = {"name": self.name, "description": self.description, "parameters": self.inputSchema}
        return {"type": "function", "function": described}


class ToolRegistry:
    """The tools of a registry."""

    def __init__(self, registry: Registry | None = None) -> None:
        self._registry = registry if registry is not None else Registry()

    def register(
        self,
        func: Callable[..., Any],
        name: str | None = None,
        description: str | None = None,
        hidden: bool = False,
    ) -> Tool:
        with collecting(self._registry):
            register_tool(name=name, description=description, hidden=hidden)(func)
        return _described(list(self._registry.tools.values())[-1])

    def get_tool(self, name: str) -> Callable[..., Any] | None:
        tool = self._registry.tools.get(name)
        return tool.function if tool else None

    def get_tool_descriptor(self, name: str) -> Tool | None:
        tool = self._registry.tools.get(name)
        return _described(tool) if tool else None

    def list_tools(self) -> list[Tool]:
        return [_described(tool) for tool in self._registry.tools.values()]

    def list_mcp_tools(self) -> list[Any]:
        return [tool.get_mcp_tool() for tool in self.list_tools() if not tool.hidden]


class BaseRegistry:
    """Base of the published registries; the server that it remembers is the caller's."""

    def __init__(self, registry_name: str = "registry") -> None:
        self._registry_name = registry_name
        self._server: Any = None

    def set_server(self, server: Any) -> None:
        self._server = server

    def get_server(self) -> Any:
        return self._server

    @property
    def has_server(self) -> bool:
        return self._server is not None


class FunctionRegistry(BaseRegistry):
    """The functions, rewards and health checks of a registry."""

    def __init__(self, registry: Registry | None = None) -> None:
        super().__init__("functions")
        self._registry = registry if registry is not None else Registry()

    def register_function(
        self, func: Callable[..., Any], endpoint: str | None = None, method: str = "POST"
    ) -> Callable[..., Any]:
        with collecting(self._registry):
            return register_function(endpoint=endpoint, method=method)(func)

    def list_functions(self) -> dict[str, dict[str, Any]]:
        return {
            function.name: {
                "endpoint": function.endpoint,
                "method": function.method,
                "description": function.description or "",
                "parameters": function.signature.input_schema["properties"],
                "is_async": function.signature.is_async,
            }
            for function in self._all()
        }

    def list_functions_simple(self) -> dict[str, str]:
        return {function.name: function.endpoint for function in self._all()}

    def _all(self) -> list[FunctionDefinition]:
        registry = self._registry
        health = [registry.health] if registry.health else []
        return [*registry.functions.values(), *registry.rewards.values(), *health]


def get_registry() -> ToolRegistry:
    """The tools that decorators have registered in this process."""
    return ToolRegistry(active_registry())


def get_function_registry() -> FunctionRegistry:
    """The functions that decorators have registered in this process."""
    return FunctionRegistry(active_registry())


def _described(tool: ToolDefinition) -> Tool:
    return Tool(
        name=tool.name,
        description=tool.description or "",
        inputSchema=tool.signature.input_schema,
        outputSchema=tool.signature.output_schema,
        hidden=tool.hidden,
    )
