"""The decorators. Each works bare, with `()`, and with options; each returns the function unchanged,
so that a unit test calls it like any other function.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import replace
from typing import Any, TypeVar, overload

from ...base.errors import RegistrationError
from .inject import not_injected
from .registry import (
    FunctionDefinition,
    PromptDefinition,
    ResourceDefinition,
    ToolDefinition,
    active_registry,
)
from .signature import Signature

F = TypeVar("F", bound=Callable[..., Any])

_METHODS = ("GET", "POST", "PUT", "PATCH", "DELETE")
_RESERVED = ("/mcp", "/health", "/tools", "/task", "/functions/list", "/instances")
_TOOL_NAME = re.compile(r"[^\s\x00-\x1f]{1,128}\Z")


@overload
def register_tool(func: F, /) -> F: ...
@overload
def register_tool(
    func: None = None,
    /,
    *,
    name: str | None = ...,
    description: str | None = ...,
    title: str | None = ...,
    annotations: dict[str, Any] | None = ...,
    hidden: bool = ...,
    timeout: float | None = ...,
) -> Callable[[F], F]: ...
def register_tool(
    func: F | None = None,
    /,
    *,
    name: str | None = None,
    description: str | None = None,
    title: str | None = None,
    annotations: dict[str, Any] | None = None,
    hidden: bool = False,
    timeout: float | None = None,
) -> F | Callable[[F], F]:
    """Offer a function to agents, as an MCP tool.

    `annotations` are MCP's hints (`{"readOnlyHint": True}`); a hidden tool can be called but is not listed;
    `timeout` is in seconds.
    """

    def register(function: F) -> F:
        signature = Signature(function)
        tool_name = name or signature.name
        if not _TOOL_NAME.match(tool_name):
            raise RegistrationError(f"bad tool name {tool_name!r}; use up to 128 characters without spaces")
        active_registry().add_tool(
            ToolDefinition(
                name=tool_name,
                signature=signature,
                description=description or signature.description,
                title=title,
                annotations=annotations,
                hidden=hidden,
                timeout=timeout,
            )
        )
        return function

    return register(func) if func else register


@overload
def register_function(func: F, /) -> F: ...
@overload
def register_function(
    func: None = None,
    /,
    *,
    name: str | None = ...,
    endpoint: str | None = ...,
    method: str = ...,
    timeout: float | None = ...,
) -> Callable[[F], F]: ...
def register_function(
    func: F | None = None,
    /,
    *,
    name: str | None = None,
    endpoint: str | None = None,
    method: str = "POST",
    timeout: float | None = None,
) -> F | Callable[[F], F]:
    """Offer a function over plain HTTP: at `/functions/<name>`, or at an endpoint of its own."""

    def register(function: F) -> F:
        definition = _at("", method.upper(), function, name, timeout)
        place = _endpoint(definition.name, endpoint)
        if definition.method not in _METHODS:
            known = ", ".join(_METHODS)
            raise RegistrationError(f"bad method {method!r} of function {definition.name!r}; use one of {known}")
        active_registry().add_function(replace(definition, endpoint=place))
        return function

    return register(func) if func else register


@overload
def register_reward(func: F, /) -> F: ...
@overload
def register_reward(
    func: None = None, /, *, name: str | None = ..., timeout: float | None = ...
) -> Callable[[F], F]: ...
def register_reward(
    func: F | None = None, /, *, name: str | None = None, timeout: float | None = None
) -> F | Callable[[F], F]:
    """Judge an episode. The first reward is the default; others are called by name."""

    def register(function: F) -> F:
        active_registry().add_reward(_at("/task/reward", "POST", function, name, timeout))
        return function

    return register(func) if func else register


@overload
def register_health(func: F, /) -> F: ...
@overload
def register_health(func: None = None, /) -> Callable[[F], F]: ...
def register_health(func: F | None = None, /) -> F | Callable[[F], F]:
    """Answer `GET /health` yourself, in place of the default answer."""

    def register(function: F) -> F:
        active_registry().set_health(_at("/health", "GET", function))
        return function

    return register(func) if func else register


@overload
def register_reset(func: F, /) -> F: ...
@overload
def register_reset(func: None = None, /) -> Callable[[F], F]: ...
def register_reset(func: F | None = None, /) -> F | Callable[[F], F]:
    """Start over in place: `reset(seed=None, **options)`."""

    def register(function: F) -> F:
        active_registry().set_reset(_at("/task/reset", "POST", function))
        return function

    return register(func) if func else register


@overload
def register_start(func: F, /) -> F: ...
@overload
def register_start(func: None = None, /) -> Callable[[F], F]: ...
def register_start(func: F | None = None, /) -> F | Callable[[F], F]:
    """Call a function when the instance starts, in the background, while its creator is told that it is ready.

    It is the maker of a resource, and takes what makers take: `Depends(function)` waits for it and gets what it
    returned or yielded, or fails as it has failed.
    """

    def register(function: F) -> F:
        name = getattr(function, "__name__", repr(function))
        if wrong := not_injected(function):
            raise RegistrationError(
                f"the start function {name!r} asks for {', '.join(map(repr, wrong))}, which it is not given; "
                "it takes Context, Sidecar, SyncSidecar and Depends, and what has a default"
            )
        active_registry().add_start(name, function)
        return function

    return register(func) if func else register


def register_resource(
    uri: str, *, name: str | None = None, description: str | None = None, mime_type: str = "text/plain"
) -> Callable[[F], F]:
    """Offer something to read over MCP. `{placeholders}` in the URI become the function's arguments."""

    def register(function: F) -> F:
        signature = Signature(function)
        placeholders = set(re.findall(r"{(\w+)}", uri))
        parameters = set(signature.input_schema["properties"])
        if placeholders != parameters:
            raise RegistrationError(
                f"resource {uri!r} has placeholders {sorted(placeholders)}, "
                f"but {signature.name!r} takes {sorted(parameters)}"
            )
        active_registry().add_resource(
            ResourceDefinition(
                name=name or signature.name,
                signature=signature,
                description=description or signature.description,
                uri=uri,
                mime_type=mime_type,
            )
        )
        return function

    return register


@overload
def register_prompt(func: F, /) -> F: ...
@overload
def register_prompt(
    func: None = None, /, *, name: str | None = ..., description: str | None = ...
) -> Callable[[F], F]: ...
def register_prompt(
    func: F | None = None, /, *, name: str | None = None, description: str | None = None
) -> F | Callable[[F], F]:
    """Offer a prompt to MCP clients: return its text, or a list of {"role", "content"} messages."""

    def register(function: F) -> F:
        signature = Signature(function)
        active_registry().add_prompt(
            PromptDefinition(
                name=name or signature.name,
                signature=signature,
                description=description or signature.description,
            )
        )
        return function

    return register(func) if func else register


def _at(
    endpoint: str,
    method: str,
    function: Callable[..., Any],
    name: str | None = None,
    timeout: float | None = None,
) -> FunctionDefinition:
    signature = Signature(function)
    return FunctionDefinition(
        name=name or signature.name,
        signature=signature,
        description=signature.description,
        endpoint=endpoint,
        method=method,
        timeout=timeout,
    )


def _endpoint(name: str, endpoint: str | None) -> str:
    if endpoint is None:
        return f"/functions/{name}"
    path = "/" + endpoint.strip("/")
    if path == "/" or "?" in path or "#" in path or any(character.isspace() for character in path):
        raise RegistrationError(f"bad endpoint {endpoint!r} of function {name!r}; write a path, as in '/score'")
    if any(path == reserved or path.startswith(f"{reserved}/") for reserved in _RESERVED):
        raise RegistrationError(f"endpoint {endpoint!r} of function {name!r} belongs to the runtime; take another")
    return path
