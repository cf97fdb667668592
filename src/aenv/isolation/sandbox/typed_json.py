"""Messages between our processes: frozen dataclasses, written as JSON and read strictly.

A message is {"is": the name of its class, field: value…}. Its fields are text, whole numbers, booleans, None,
tuples, mappings by text, and dataclasses of these. A module that declares messages does not postpone its
annotations: `decode` reads the types of the fields.

Not here: the messages (`protocol.py`, `orders.py`, and the programs that are told one thing only). They are apart
because a program pays for each class that it loads, half a millisecond or so.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import fields, is_dataclass
from types import UnionType
from typing import Any, TypeVar

MAX_BYTES = 64 << 10
"""Of a message, where its reader gives no other limit."""
MAX_ERROR = 4096  # characters
_BIGGEST = 1 << 63
_PLAIN = (str, int, bool, type(None))
_ENCODER = json.JSONEncoder(default=vars)

T = TypeVar("T")


class Broken(Exception):
    """What was said is not the message that was due, with the reason."""


def encode(message: object) -> bytes:
    """The message as JSON. An error text is cut where it would be too long."""
    values = dict(vars(message))
    if "error" in values:
        values["error"] = values["error"][-MAX_ERROR:]
    return _ENCODER.encode({"is": type(message).__name__, **values}).encode()


def decode(packet: bytes, *expected: type[T], most_bytes: int | None = MAX_BYTES) -> T:
    """The message in it. Broken when it is not one of those that are expected, or is malformed.

    `most_bytes` is None for a sender that is believed, and may have much to say.
    """
    if most_bytes is not None and len(packet) > most_bytes:
        raise Broken(f"a message of more than {most_bytes >> 10} KiB")
    try:
        values = json.loads(packet)
    except (ValueError, RecursionError):
        raise Broken("a message that is not JSON") from None
    if not isinstance(values, dict):
        raise Broken("a message that is not an object")
    name = values.pop("is", None)
    kind = next((kind for kind in expected if kind.__name__ == name), None)
    if kind is None:
        raise Broken(f"a message that was not expected: {str(name)[:80]!r}")
    try:
        return kind(**_fields(kind, values))
    except Broken as error:
        raise Broken(f"{name}{error}") from None


def typed(kind: Any, value: Any) -> Any:
    """A value from JSON, as an annotation says. Broken when it is anything else; its text lacks the subject."""
    if type(value) is kind:  # exactly: True is not the number 1
        if kind is int and not -_BIGGEST <= value < _BIGGEST:
            raise Broken(" is too large")
        return value
    if kind in _PLAIN:
        raise Broken(" is of the wrong type")
    if isinstance(kind, UnionType):
        return _one_of(kind.__args__, value)
    if isinstance(kind, type) and is_dataclass(kind):
        return kind(**_fields(kind, _object(value)))
    if kind.__origin__ is tuple:
        return _tuple(kind.__args__, value)
    if kind.__origin__ is Mapping:
        return {name: _part(kind.__args__[1], one, name[:80]) for name, one in _object(value).items()}
    raise TypeError(f"no message can hold {kind}")


def _fields(kind: type, values: dict[str, Any]) -> dict[str, Any]:
    wanted = {field.name: field.type for field in fields(kind)}
    if values.keys() != wanted.keys():
        raise Broken(f" has other fields than {', '.join(wanted) or 'none'}")
    found = {}
    for name, value in values.items():
        try:
            found[name] = typed(wanted[name], value)
        except Broken as error:
            raise Broken(f".{name}{error}") from None
    return found


def _object(value: Any) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise Broken(" is not an object")
    return value


def _part(kind: Any, value: Any, key: object) -> Any:
    try:
        return typed(kind, value)
    except Broken as error:
        raise Broken(f"[{key!r}]{error}") from None


def _one_of(kinds: tuple[Any, ...], value: Any) -> Any:
    for kind in kinds:
        try:
            return typed(kind, value)
        except Broken as error:
            reason = error
    raise reason


def _tuple(kinds: tuple[Any, ...], value: Any) -> tuple[Any, ...]:
    if type(value) is not list:
        raise Broken(" is not a list")
    if kinds[1:] == (...,):
        kinds = kinds[:1] * len(value)
    if len(kinds) != len(value):
        raise Broken(f" has {len(value)} parts, and should have {len(kinds)}")
    return tuple(_part(kind, one, at) for at, (kind, one) in enumerate(zip(kinds, value, strict=True)))
