"""The registry: everything an environment offers, in the order it was registered.

Decorators add to the active registry. There is one per process, because decorators run while a module is
imported and nothing can be handed to them; `collecting` puts another in its place for a while.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from ...base.errors import RegistrationError
from .signature import Signature


@dataclass(frozen=True, kw_only=True, eq=False)
class Definition:
    """A registered function under its public name."""

    name: str
    signature: Signature
    description: str | None = None

    @property
    def function(self) -> Callable[..., Any]:
        return self.signature.function


@dataclass(frozen=True, kw_only=True, eq=False)
class ToolDefinition(Definition):
    """A function that agents call over MCP."""

    title: str | None = None
    annotations: dict[str, Any] | None = None
    hidden: bool = False
    timeout: float | None = None

    @cached_property
    def descriptor(self) -> dict[str, Any]:
        """The tool as `tools/list` shows it."""
        optional = {
            "title": self.title,
            "outputSchema": self.signature.output_schema,
            "annotations": self.annotations,
        }
        return {
            "name": self.name,
            "description": self.description or "",
            "inputSchema": self.signature.input_schema,
            **{key: value for key, value in optional.items() if value is not None},
        }


@dataclass(frozen=True, kw_only=True, eq=False)
class FunctionDefinition(Definition):
    """A function behind an HTTP endpoint: also rewards, health and reset."""

    endpoint: str
    method: str = "POST"
    timeout: float | None = None


@dataclass(frozen=True, kw_only=True, eq=False)
class ResourceDefinition(Definition):
    """Something to read over MCP, by its URI; `{placeholders}` in the URI are the function's parameters."""

    uri: str
    mime_type: str = "text/plain"


@dataclass(frozen=True, kw_only=True, eq=False)
class PromptDefinition(Definition):
    """A prompt that MCP clients offer to their users."""


@dataclass(eq=False)
class Registry:
    """What one environment offers."""

    tools: dict[str, ToolDefinition] = field(default_factory=dict)
    functions: dict[str, FunctionDefinition] = field(default_factory=dict)
    rewards: dict[str, FunctionDefinition] = field(default_factory=dict)
    health: FunctionDefinition | None = None
    reset: FunctionDefinition | None = None
    resources: dict[str, ResourceDefinition] = field(default_factory=dict)
    prompts: dict[str, PromptDefinition] = field(default_factory=dict)
    starts: dict[str, Callable[..., Any]] = field(default_factory=dict)
    """Makers of resources, which are made when the instance starts."""

    def add_tool(self, tool: ToolDefinition) -> None:
        self._add("tool", self.tools, tool.name, tool)

    def add_function(self, function: FunctionDefinition) -> None:
        route = (function.method, function.endpoint)
        for other in self.functions.values():
            if (other.method, other.endpoint) == route:
                raise RegistrationError(
                    f"{function.method} {function.endpoint} of {function.name!r} is taken by {other.name!r}"
                )
        self._add("function", self.functions, function.name, function)

    def add_reward(self, reward: FunctionDefinition) -> None:
        self._add("reward", self.rewards, reward.name, reward)

    def add_resource(self, resource: ResourceDefinition) -> None:
        self._add("resource", self.resources, resource.uri, resource)

    def add_prompt(self, prompt: PromptDefinition) -> None:
        self._add("prompt", self.prompts, prompt.name, prompt)

    def add_start(self, name: str, function: Callable[..., Any]) -> None:
        self._add("start function", self.starts, name, function)

    def set_health(self, health: FunctionDefinition) -> None:
        if self.health:
            raise RegistrationError(f"health check {health.name!r}: {self.health.name!r} is one already")
        self.health = health

    def set_reset(self, reset: FunctionDefinition) -> None:
        if self.reset:
            raise RegistrationError(f"reset {reset.name!r}: {self.reset.name!r} is one already")
        self.reset = reset

    @staticmethod
    def _add(kind: str, known: dict[str, Any], name: str, new: Definition | Callable[..., Any]) -> None:
        if name in known:
            where = _place(getattr(known[name], "function", known[name]))
            raise RegistrationError(f"{kind} {name!r} is registered already, by {where}; give it another name")
        known[name] = new


_active = Registry()


def active_registry() -> Registry:
    """The registry that decorators add to now."""
    return _active


@contextmanager
def collecting(registry: Registry) -> Iterator[Registry]:
    """Inside, decorators add to `registry`."""
    global _active
    before, _active = _active, registry
    try:
        yield registry
    finally:
        _active = before


def _place(function: Callable[..., Any]) -> str:
    code = getattr(inspect.unwrap(function), "__code__", None)
    return f"{code.co_filename}:{code.co_firstlineno}" if code else repr(function)
