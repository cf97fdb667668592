"""Values for JSON schemas, from a seed: what a random agent passes to tools.

Texts are plain words, so that no call does more than a tool does with a word that means nothing to it.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from random import Random
from typing import Any

_WORDS = ("alpha", "bravo", "cedar", "delta", "ember", "fjord")
_DEEPEST = 6

Schema = Mapping[str, Any]


def arguments(schema: Schema, random: Random) -> dict[str, Any]:
    """Arguments that a tool with this input schema takes; each optional one is there or not."""
    value = sample({**schema, "type": "object"}, random, schema.get("$defs", {}))
    return value if isinstance(value, dict) else {}


def sample(schema: Any, random: Random, definitions: Mapping[str, Any], depth: int = 0) -> Any:
    """A value that `schema` describes; beyond a depth the smallest one, for schemas that name themselves."""
    if not isinstance(schema, Mapping):
        return random.choice(_WORDS)
    if "$ref" in schema:
        return sample(definitions.get(str(schema["$ref"]).rpartition("/")[2], {}), random, definitions, depth + 1)
    if "const" in schema:
        return schema["const"]
    if schema.get("enum"):
        return random.choice(schema["enum"])
    choices = schema.get("anyOf") or schema.get("oneOf")
    if choices:
        if depth > _DEEPEST and {"type": "null"} in choices:
            return None
        return sample(random.choice(choices), random, definitions, depth + 1)
    named = schema.get("type")
    kind = random.choice(named) if isinstance(named, list) and named else named
    match kind:
        case "object":
            return _object(schema, random, definitions, depth)
        case "array":
            return _array(schema, random, definitions, depth)
        case "integer":
            return random.randint(*_bounds(schema, whole=True))
        case "number":
            return round(random.uniform(*_bounds(schema, whole=False)), 3)
        case "boolean":
            return random.random() < 0.5
        case "null":
            return None
    return _text(schema, random)


def _object(schema: Schema, random: Random, definitions: Mapping[str, Any], depth: int) -> dict[str, Any]:
    required = schema.get("required", ())
    properties = schema.get("properties", {})
    taken = [name for name in properties if name in required or (depth <= _DEEPEST and random.random() < 0.5)]
    return {name: sample(properties[name], random, definitions, depth + 1) for name in taken}


def _array(schema: Schema, random: Random, definitions: Mapping[str, Any], depth: int) -> list[Any]:
    least = int(schema.get("minItems", 0))
    most = least if depth > _DEEPEST else min(int(schema.get("maxItems", least + 2)), least + 2)
    return [
        sample(schema.get("items", {}), random, definitions, depth + 1) for _ in range(random.randint(least, most))
    ]


def _bounds(schema: Schema, *, whole: bool) -> tuple[Any, Any]:
    step = 1 if whole else 0.001
    low = schema.get("minimum", schema.get("exclusiveMinimum", -step) + step)
    high = schema.get("maximum", schema.get("exclusiveMaximum", low + 10 + step) - step)
    if whole:
        low, high = math.ceil(low), math.floor(high)
    return (low, high) if low <= high else (high, high)


def _text(schema: Schema, random: Random) -> str:
    word = random.choice(_WORDS)
    least, most = int(schema.get("minLength", 0)), int(schema.get("maxLength", 1000))
    return (word * (least // len(word) + 1) if len(word) < least else word)[:most]
