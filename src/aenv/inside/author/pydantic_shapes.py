"""Shapes of types that need pydantic: models, dataclasses, enums, literals, constraints, and nests of them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, NotRequired, Required, get_args

from pydantic import ConfigDict, Field, PydanticUserError, TypeAdapter
from pydantic.fields import FieldInfo
from typing_extensions import TypedDict

from .shapes import Argument, Shape


def of_arguments(arguments: Mapping[str, Argument], *, extra: bool) -> Shape:
    fields: dict[str, Any] = {}
    for name, argument in arguments.items():
        hint = _described(argument)
        try:
            TypeAdapter(hint).json_schema()
        except PydanticUserError as error:
            raise TypeError(f"parameter {name!r}: {str(error).splitlines()[0]}") from error
        fields[name] = Required[hint] if argument.required else NotRequired[hint]
    # A TypedDict rather than a model: any parameter name is legal, and the result is the kwargs.
    make: Any = TypedDict
    shape = make("Arguments", fields)
    shape.__pydantic_config__ = ConfigDict(extra="allow" if extra else "forbid")
    adapter: TypeAdapter[Any] = TypeAdapter(shape)
    schema = adapter.json_schema()
    schema.pop("title", None)
    schema.setdefault("properties", {})
    return Shape(adapter.validate_python, schema)


def of_result(hint: Any) -> Shape | None:
    try:
        adapter: TypeAdapter[Any] = TypeAdapter(hint)
        schema = adapter.json_schema(mode="serialization")
    except PydanticUserError:
        return None
    if "$ref" in schema:  # a recursive model; MCP wants an object at the top
        schema = {"type": "object", **schema}
    return Shape(adapter.validate_python, schema)


def _described(argument: Argument) -> Any:
    """The hint with the docstring's description, unless the author described it in place."""
    hint = argument.hint
    marks = get_args(hint)[1:] if hasattr(hint, "__metadata__") else ()
    if argument.description and not any(isinstance(mark, FieldInfo) and mark.description for mark in marks):
        return Annotated[hint, Field(description=argument.description)]
    return hint
