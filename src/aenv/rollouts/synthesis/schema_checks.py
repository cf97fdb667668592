"""Whether a value fits a JSON schema, as far as the schemas of tools and tasks go; not a whole validator.

Known are type, properties, required, additionalProperties, items, enum, const, anyOf, lengths, counts and bounds.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

_TYPES: dict[str, tuple[type, ...]] = {
    "object": (dict,),
    "array": (list,),
    "string": (str,),
    "integer": (int,),
    "number": (int, float),
    "boolean": (bool,),
    "null": (type(None),),
}


def misfit(schema: Any, value: Any, where: str, roots: Mapping[str, Any] | None = None) -> str:
    """The first place that does not fit, quoted, and why; "" where all fits."""
    if not isinstance(schema, Mapping):
        return ""
    known = schema.get("$defs", roots or {})
    if "$ref" in schema:
        return misfit(known.get(str(schema["$ref"]).rpartition("/")[2]), value, where, known)
    choices = schema.get("anyOf") or schema.get("oneOf")
    if choices and all(misfit(one, value, where, known) for one in choices):
        return misfit(choices[0], value, where, known) if len(choices) == 1 else f"{where!r} fits no alternative"
    if "const" in schema and value != schema["const"]:
        return f"{where!r} must be {schema['const']!r}"
    if schema.get("enum") and value not in schema["enum"]:
        return f"{where!r} must be one of {', '.join(map(repr, schema['enum']))}"
    kinds = schema.get("type")
    allowed = [kinds] if isinstance(kinds, str) else list(kinds or ())
    if allowed and not any(_is(kind, value) for kind in allowed):
        return f"{where!r} must be of type {' or '.join(allowed)}, and is {_told(value)}"
    if isinstance(value, dict):
        return _object(schema, value, where, known)
    if isinstance(value, list):
        if wrong := _bounds(schema, len(value), where, "minItems", "maxItems", "items"):
            return wrong
        found = (misfit(schema.get("items"), one, f"{where}[{index}]", known) for index, one in enumerate(value))
        return next(filter(None, found), "")
    if isinstance(value, str):
        return _bounds(schema, len(value.strip()), where, "minLength", "maxLength", "characters")
    if isinstance(value, int | float) and not isinstance(value, bool):
        return _bounds(schema, value, where, "minimum", "maximum", "")
    return ""


def _object(schema: Mapping[str, Any], value: dict[str, Any], where: str, known: Mapping[str, Any]) -> str:
    properties = schema.get("properties", {})
    if missing := next((name for name in schema.get("required", ()) if name not in value), None):
        return f"'{where}.{missing}' is missing"
    unknown = next((name for name in value if name not in properties), None)
    if unknown is not None and schema.get("additionalProperties") is False:
        return f"'{where}.{unknown}' is not known; there are {', '.join(properties)}"
    found = (misfit(properties.get(name), one, f"{where}.{name}", known) for name, one in value.items())
    return next(filter(None, found), "")


def _bounds(schema: Mapping[str, Any], size: float, where: str, least: str, most: str, what: str) -> str:
    unit = f" {what}" if what else ""
    if least in schema and size < schema[least]:
        return f"{where!r} must have at least {schema[least]}{unit}, and has {size}"
    if most in schema and size > schema[most]:
        return f"{where!r} must have at most {schema[most]}{unit}, and has {size}"
    return ""


def _is(kind: str, value: Any) -> bool:
    return isinstance(value, _TYPES.get(kind, (object,))) and (kind == "boolean" or not isinstance(value, bool))


def _told(value: Any) -> str:
    return "null" if value is None else f"a {type(value).__name__}"
