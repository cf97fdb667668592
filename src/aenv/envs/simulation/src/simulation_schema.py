"""What a world's state may be: a small part of JSON Schema, and paths such as "door.open" into a state."""

from __future__ import annotations

from typing import Any

_KNOWN: dict[str, tuple[str, ...]] = {
    "object": ("properties",),
    "array": ("items", "maxItems"),
    "string": ("enum", "maxLength"),
    "integer": ("minimum", "maximum"),
    "number": ("minimum", "maximum"),
    "boolean": (),
}
_LONGEST_TEXT = 2000
_LONGEST_LIST = 200


class Wrong(ValueError):
    """A value, or a schema, is not as it must be; the message names the place."""


def check_schema(schema: Any, where: str) -> None:
    """Wrong, unless it uses what is known here."""
    if not isinstance(schema, dict) or schema.get("type") not in _KNOWN:
        raise Wrong(f"{where}.type must be one of {', '.join(_KNOWN)}")
    kind = schema["type"]
    unknown = sorted(set(schema) - {"type", "description", *_KNOWN[kind]})
    if unknown:
        raise Wrong(f"{where} has {', '.join(map(repr, unknown))}, which {kind} does not know here")
    if kind == "object":
        properties = schema.get("properties")
        if not isinstance(properties, dict) or not all(name and "." not in name for name in properties):
            raise Wrong(f"{where}.properties must be an object; names hold no dot")
        for name, inner in properties.items():
            check_schema(inner, f"{where}.properties.{name}")
    if kind == "array":
        check_schema(schema.get("items"), f"{where}.items")


def check(schema: dict[str, Any], value: Any, where: str) -> None:
    """Wrong, unless the value is as the schema says. Every property is required, and no other allowed."""
    kind = schema["type"]
    is_kind = {
        "object": isinstance(value, dict),
        "array": isinstance(value, list),
        "string": isinstance(value, str),
        "boolean": isinstance(value, bool),
        "integer": isinstance(value, int) and not isinstance(value, bool),
        "number": isinstance(value, int | float) and not isinstance(value, bool) and value == value,
    }[kind]
    if not is_kind:
        raise Wrong(f"{where} must be of type {kind}")
    if kind == "object":
        _check_object(schema["properties"], value, where)
    elif kind == "array":
        most = schema.get("maxItems", _LONGEST_LIST)
        if len(value) > most:
            raise Wrong(f"{where} has {len(value)} items, and may have {most}")
        for index, item in enumerate(value):
            check(schema["items"], item, f"{where}[{index}]")
    elif kind == "string":
        if "enum" in schema and value not in schema["enum"]:
            raise Wrong(f"{where} must be one of {', '.join(map(repr, schema['enum']))}")
        if len(value) > schema.get("maxLength", _LONGEST_TEXT):
            raise Wrong(f"{where} is too long")
    elif kind in ("integer", "number") and not schema.get("minimum", value) <= value <= schema.get(
        "maximum", value
    ):
        raise Wrong(f"{where} must be from {schema.get('minimum', '-∞')} to {schema.get('maximum', '∞')}")


def _check_object(properties: dict[str, Any], value: dict[str, Any], where: str) -> None:
    missing, unknown = sorted(set(properties) - set(value)), sorted(set(value) - set(properties))
    if missing or unknown:
        said = [f"lacks {', '.join(missing)}"] * bool(missing) + [f"has unknown {', '.join(unknown)}"] * bool(
            unknown
        )
        raise Wrong(f"{where} {' and '.join(said)}")
    for name, inner in properties.items():
        check(inner, value[name], f"{where}.{name}")


def read(state: Any, path: str) -> Any:
    """What is at a path. Wrong when there is no such place."""
    here = state
    for name in path.split("."):
        if not isinstance(here, dict) or name not in here:
            raise Wrong(f"the state has no {path!r}")
        here = here[name]
    return here


def write(state: Any, path: str, value: Any) -> None:
    """Change what is at a path; there must be something."""
    read(state, path)
    parent, _, name = path.rpartition(".")
    (read(state, parent) if parent else state)[name] = value


def is_below(path: str, places: list[str]) -> bool:
    """Whether a path is one of the places, or within one."""
    return any(path == place or path.startswith(f"{place}.") for place in places)
