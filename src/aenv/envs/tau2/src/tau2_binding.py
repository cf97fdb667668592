"""Functions that stand for a domain's tools, with signatures from which aenv reads what agents may send.

What aenv knows without pydantic (text, whole numbers, lists of text or of objects) is declared as such, because
each instance registers its tools anew, and pydantic would take longer for that than all else; choices are text
whose description names them. Other numbers are declared by their schema alone, and handed on as they came: how the
benchmark prints a number depends on how it was sent. `tau2_get_available_tools` has the full schemas.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from functools import cache
from typing import Annotated, Any

from tau2_actions import call_tool
from tau2_domains import specs
from tau2_session import Session, open_session
from tau2_toolkit import ToolSpec

from aenv import Depends

Json = dict[str, Any]
_PLAIN: tuple[tuple[Json, Any], ...] = (
    ({"type": "string"}, str),
    ({"type": "integer"}, int),
    ({"type": "array", "items": {"type": "string"}}, list[str]),
    ({"anyOf": [{"type": "string"}, {"type": "null"}]}, str | None),
)
_WORDS = ("title", "description", "default")


@cache
def tool_functions(domain: str, *, solo: bool) -> tuple[Callable[..., Json], ...]:
    """A function for each tool that an agent has in a domain."""
    return tuple(_tool_function(spec, call_tool) for spec in specs(domain, solo=solo).values())


def _tool_function(spec: ToolSpec, run: Callable[[Session, str, Json], Json]) -> Callable[..., Json]:
    """A function with the tool's parameters; it calls `run` with the session, the tool's name and arguments."""

    def call(session: Session, **arguments: Any) -> Json:
        return run(session, spec.name, arguments)

    properties, records = spec.parameters["properties"], spec.parameters.get("$defs", {})
    hints = {name: _hint(schema, records) for name, schema in properties.items()}
    required = spec.parameters.get("required", ())
    parameters = [
        inspect.Parameter(
            name,
            inspect.Parameter.KEYWORD_ONLY,
            default=inspect.Parameter.empty if name in required else schema.get("default"),
        )
        for name, schema in properties.items()
    ]
    session = inspect.Parameter("session", inspect.Parameter.KEYWORD_ONLY, default=Depends(open_session))
    call.__signature__ = inspect.Signature([*parameters, session])  # type: ignore[attr-defined]
    call.__annotations__ = {**hints, "session": Session, "return": dict[str, Any]}
    call.__name__ = spec.name
    call.__doc__ = _docstring(spec)
    return call


def _hint(schema: Json, records: Json) -> Any:
    bare = {key: value for key, value in schema.items() if key not in _WORDS}
    for known, hint in _PLAIN:
        if bare == known:
            return hint
    if "enum" in bare:
        return str
    if bare.get("type") == "array":
        return list[dict[str, Any]]
    from pydantic import WithJsonSchema  # where all is text, aenv does without it

    described = {key: schema[key] for key in ("description",) if key in schema}
    return Annotated[Any, WithJsonSchema({**_inlined(bare, records), **described})]


def _inlined(schema: Any, records: Json) -> Any:
    """The schema with its records in place: there is no common place for them in what aenv shows."""
    if isinstance(schema, list):
        return [_inlined(item, records) for item in schema]
    if not isinstance(schema, dict):
        return schema
    if "$ref" in schema:
        return _inlined(records[schema["$ref"].rpartition("/")[2]], records)
    return {key: _inlined(value, records) for key, value in schema.items()}


def _docstring(spec: ToolSpec) -> str:
    """As aenv reads it: what the tool does, and a line for each parameter."""
    properties, records = spec.parameters["properties"], spec.parameters.get("$defs", {})
    lines = [f"    {name}: {_described(schema, records)}" for name, schema in properties.items()]
    return "\n".join([spec.description, *(["", "Args:", *lines] if lines else [])])


def _described(schema: Json, records: Json) -> str:
    """A parameter's description, with what the schema that aenv shows does not say."""
    text = str(schema.get("description", ""))
    if "enum" in schema:
        return f"{text} One of {', '.join(schema['enum'])}."
    if schema.get("type") == "array" and "anyOf" in schema["items"]:
        record = _inlined(schema["items"]["anyOf"][0], records)
        return f"{text} Each is an object with {', '.join(record['properties'])}."
    return text
