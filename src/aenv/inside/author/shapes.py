"""Shapes of values: a validator and a JSON schema for a function's arguments, and for its result.

Most tools take and give strings, numbers, lists and dicts; for those pydantic-core alone is enough, which saves
a third of an instance's start and of its memory. Everything else (models, dataclasses, enums, constraints) goes
to pydantic. Both ways give the same schemas; a test holds them together.
"""

from __future__ import annotations

import types
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Union, get_args, get_origin

from pydantic_core import SchemaValidator, core_schema

Json = dict[str, Any]
_SIMPLE: dict[Any, tuple[Any, Json]] = {
    str: (core_schema.str_schema, {"type": "string"}),
    int: (core_schema.int_schema, {"type": "integer"}),
    float: (core_schema.float_schema, {"type": "number"}),
    bool: (core_schema.bool_schema, {"type": "boolean"}),
    Any: (core_schema.any_schema, {}),
}


@dataclass(frozen=True)
class Shape:
    """`validate` returns the value in its annotated type, or raises pydantic-core's ValidationError."""

    validate: Callable[[Any], Any]
    schema: Json


@dataclass(frozen=True)
class Argument:
    hint: Any
    required: bool
    description: str | None = None


def of_arguments(arguments: Mapping[str, Argument], *, extra: bool) -> Shape:
    """The shape of keyword arguments; `extra` allows more than these. TypeError names what has no shape."""
    fields = {}
    properties = {}
    for name, argument in arguments.items():
        plain = _plain(argument.hint)
        if plain is None:
            from . import pydantic_shapes

            return pydantic_shapes.of_arguments(arguments, extra=extra)
        core, schema = plain
        fields[name] = core_schema.typed_dict_field(core, required=argument.required)
        described = {"description": argument.description} if argument.description else {}
        properties[name] = {**described, "title": name.title().replace("_", " ").strip(), **schema}
    validator = SchemaValidator(
        core_schema.typed_dict_schema(fields, extra_behavior="allow" if extra else "forbid")
    )
    whole: Json = {"additionalProperties": extra, "properties": properties, "type": "object"}
    required = [name for name, argument in arguments.items() if argument.required]
    return Shape(validator.validate_python, {**whole, "required": required} if required else whole)


def of_result(hint: Any) -> Shape | None:
    """The shape of a result; None when its type has no schema."""
    plain = _plain(hint)
    if plain is None:
        from . import pydantic_shapes

        return pydantic_shapes.of_result(hint)
    core, schema = plain
    return Shape(SchemaValidator(core).validate_python, schema)


def _plain(hint: Any) -> tuple[core_schema.CoreSchema, Json] | None:
    """The core schema and JSON schema of a type that needs no pydantic; None for any other."""
    try:
        simple = _SIMPLE.get(hint)
    except TypeError:  # unhashable, so nothing that we know
        return None
    if simple:
        return simple[0](), dict(simple[1])
    origin, inner = get_origin(hint) or hint, get_args(hint)
    if origin is list:
        item = _plain(inner[0] if inner else Any)
        return item and (core_schema.list_schema(item[0]), {"items": item[1], "type": "array"})
    if origin is dict:
        return _plain_dict(*(inner or (Any, Any)))
    if origin in (Union, types.UnionType) and len(inner) == 2 and inner[1] is type(None):
        return _plain_optional(inner[0])
    return None


def _plain_dict(key: Any, value: Any) -> tuple[core_schema.CoreSchema, Json] | None:
    plain = _plain(value)
    if plain is None or key not in (str, Any):
        return None
    keys = core_schema.str_schema() if key is str else core_schema.any_schema()
    return core_schema.dict_schema(keys, plain[0]), {"additionalProperties": plain[1] or True, "type": "object"}


def _plain_optional(hint: Any) -> tuple[core_schema.CoreSchema, Json] | None:
    plain = _plain(hint)
    if plain is None or not plain[1]:
        return None
    return core_schema.nullable_schema(plain[0]), {"anyOf": [plain[1], {"type": "null"}]}
