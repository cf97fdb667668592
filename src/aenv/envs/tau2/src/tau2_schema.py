"""Descriptions and JSON schemas of tools, from their docstrings and annotations.

A record in an annotation is a dataclass; it becomes a `$ref` into `$defs`.
"""

from __future__ import annotations

import dataclasses
import inspect
import re
import types
from collections.abc import Callable
from enum import Enum
from typing import Any, Literal, Union, get_args, get_origin, get_type_hints

_SIMPLE = {str: "string", int: "integer", float: "number", bool: "boolean", type(None): "null"}
_ARGUMENT = re.compile(r"(\w+)(?:\s*\([^)]*\))?:\s*(.*)")


def described(method: Callable[..., Any]) -> tuple[str, dict[str, Any]]:
    """A tool's description, and the JSON schema of its parameters."""
    text, arguments = _docstring(inspect.getdoc(method) or "")
    hints = get_type_hints(method)
    records: dict[str, Any] = {}
    properties, required = {}, []
    for parameter in list(inspect.signature(method).parameters.values())[1:]:
        schema = {"title": parameter.name.replace("_", " ").title()}
        schema |= _schema(hints.get(parameter.name, Any), records)
        if parameter.name in arguments:
            schema["description"] = arguments[parameter.name]
        if parameter.default is inspect.Parameter.empty:
            required.append(parameter.name)
        else:
            schema["default"] = parameter.default
        properties[parameter.name] = schema
    parameters: dict[str, Any] = {"$defs": records} if records else {}
    parameters |= {"properties": properties}
    parameters |= {"required": required} if required else {}
    return text, parameters | {"title": "parameters", "type": "object"}


def _schema(kind: Any, records: dict[str, Any]) -> dict[str, Any]:
    if kind in _SIMPLE:
        return {"type": _SIMPLE[kind]}
    origin, inner = get_origin(kind), get_args(kind)
    if origin is Literal:
        return {"enum": list(inner), "type": "string"}
    if origin in (Union, types.UnionType):
        return {"anyOf": [_schema(one, records) for one in inner]}
    if origin is list:
        return {"type": "array", "items": _schema(inner[0], records)}
    if kind is list:
        return {"type": "array", "items": {}}
    if kind is dict or origin is dict:
        return {"type": "object", "additionalProperties": True}
    if isinstance(kind, type) and issubclass(kind, Enum):
        return {"enum": [member.value for member in kind], "type": "string"}
    if dataclasses.is_dataclass(kind) and isinstance(kind, type):
        return _record(kind, records)
    return {}


def _record(kind: type, records: dict[str, Any]) -> dict[str, Any]:
    name = kind.__name__
    if name not in records:
        records[name] = {}  # before its fields are read: a record may contain itself
        hints, properties, required = get_type_hints(kind), {}, []
        for field in dataclasses.fields(kind):
            schema = {"title": field.name.replace("_", " ").title()} | _schema(hints[field.name], records)
            if field.default is not dataclasses.MISSING:
                schema["default"] = field.default.value if isinstance(field.default, Enum) else field.default
            elif field.default_factory is dataclasses.MISSING:
                required.append(field.name)
            properties[field.name] = schema
        records[name] = {"properties": properties, "title": name, "type": "object"}
        records[name] |= {"required": required} if required else {}
    return {"$ref": f"#/$defs/{name}"}


def _docstring(text: str) -> tuple[str, dict[str, str]]:
    """The first paragraph in one line, and what `Args:` says of each argument."""
    body, _, rest = text.partition("\nArgs:\n")
    arguments: dict[str, str] = {}
    name = ""
    for line in rest.splitlines():
        if line and not line[0].isspace():
            break  # the next section
        found = _ARGUMENT.fullmatch(line.strip())
        if found and len(line) - len(line.lstrip()) <= 4:
            name = found[1]
            arguments[name] = found[2]
        elif name and line.strip():
            arguments[name] += " " + line.strip()
    return " ".join(body.strip().split("\n\n")[0].split()), arguments
