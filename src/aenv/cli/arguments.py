"""Arguments of a call as people type them, `n=3 name=Ada`, as the JSON that a schema asks for."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import click


@dataclass(frozen=True)
class Given:
    """What the command line gave: values that are JSON already, and texts whose type the schema tells."""

    values: Mapping[str, Any]
    pairs: Mapping[str, str]

    def typed(self, schema: Mapping[str, Any]) -> dict[str, Any]:
        """All arguments; a text becomes JSON where its parameter in `schema` takes that."""
        properties = schema.get("properties", {})
        definitions = schema.get("$defs", {})
        texts = {
            name: read(text, _types(properties.get(name, {}), definitions)) for name, text in self.pairs.items()
        }
        return {**self.values, **texts}


def split(pairs: Sequence[str], json_text: str | None) -> Given:
    """Check the form of what was typed; values are read later, when the schema is known."""
    texts: dict[str, str] = {}
    for pair in pairs:
        name, equals, text = pair.partition("=")
        if not name or not equals:
            raise click.UsageError(f"bad argument {pair!r}; write it as key=value")
        if name in texts:
            raise click.UsageError(f"argument {name!r} is given twice")
        texts[name] = text
    try:
        values = json.loads(json_text) if json_text is not None else {}
    except ValueError as error:
        raise click.UsageError(f"--args is not JSON: {error}") from error
    if not isinstance(values, dict):
        raise click.UsageError("--args must be a JSON object, as in '{\"n\": 3}'")
    return Given(values, texts)


def read(text: str, types: set[str]) -> Any:
    """`text` as JSON if it is that, of one of `types` (none given: any); otherwise as it stands."""
    if types == {"string"}:
        return text
    try:
        value = json.loads(text, parse_constant=_no_json)
    except ValueError:
        return text
    return value if not types or _json_types(value) & types else text


def _no_json(constant: str) -> Any:
    raise ValueError(f"{constant} is not JSON")


def _types(schema: Mapping[str, Any], definitions: Mapping[str, Any]) -> set[str]:
    """The JSON types that a schema allows; empty when it allows any, or says so in a way not read here."""
    if "$ref" in schema:
        return _types(definitions.get(schema["$ref"].rpartition("/")[2], {}), definitions)
    choices = schema.get("anyOf") or schema.get("oneOf")
    if choices:
        found = [_types(choice, definitions) for choice in choices]
        return set().union(*found) if all(found) else set()
    named = schema.get("type", [])
    types = {named} if isinstance(named, str) else set(named)
    # Published runtimes list a function's parameters with Python's names for types.
    return {"string"} if types == {"<class 'str'>"} else types & _JSON_TYPES


_JSON_TYPES = {"string", "integer", "number", "boolean", "null", "array", "object"}


def _json_types(value: Any) -> set[str]:
    match value:
        case None:
            return {"null"}
        case bool():
            return {"boolean"}
        case int():
            return {"integer", "number"}
        case float():
            return {"number"} | ({"integer"} if value.is_integer() else set())
        case str():
            return {"string"}
        case list():
            return {"array"}
    return {"object"}
