"""What all records of telecom can do: be read from a file, copied for a world, dumped, merged with a task's data.

Fields are checked when records are read, built or merged, and not when one is set: the benchmark's outputs and
hashes rely on that. Not here: the records themselves (`tau2_telecom_carrier.py`, `tau2_telecom_phone.py`).
"""

from __future__ import annotations

import datetime as dt
from dataclasses import fields
from enum import Enum
from functools import cache
from types import UnionType
from typing import Any, ClassVar, Self, get_args, get_origin, get_type_hints

from tau2_validation import built


class Record:
    """A dataclass whose fields are values, records, and lists and dicts of them. Unknown fields are refused."""

    __pydantic_config__: ClassVar[dict[str, str]] = {"extra": "forbid"}

    @classmethod
    def read(cls, data: dict[str, Any]) -> Self:
        """A record of a file's data. ValueError says where the file has what it should not."""
        record: Self = _read(cls, data, cls.__name__)
        return record

    @classmethod
    def checked(cls, data: dict[str, Any]) -> Self:
        """A record, without others in it, of what a tool was given. ValueError as pydantic words it."""
        kind: Any = cls
        return cls(**vars(built(_model_of(kind), data)))

    def copied(self) -> Self:
        """A copy that shares nothing which can be changed."""
        copy: Self = _copied(self)
        return copy

    def dump(self) -> dict[str, Any]:
        """All fields as a nested dict, in the order of declaration."""
        return {name: _dumped(value) for name, value in vars(self).items()}

    def merged(self, data: dict[str, Any]) -> Self:
        """A checked copy in which `data` replaces what it names: dicts field by field, anything else whole."""
        return built(type(self), _merged(self.dump(), data))


def _read(kind: Any, value: Any, place: str) -> Any:
    """A value of a file as a field's type: tables become records, text becomes enum members, days and moments."""
    if isinstance(kind, UnionType):  # only ever `x | None`
        return None if value is None else _read(get_args(kind)[0], value, place)
    origin = get_origin(kind) or kind
    if origin is list and isinstance(value, list):
        (inner,) = get_args(kind)
        return [_read(inner, item, f"{place}[{index}]") for index, item in enumerate(value)]
    if origin is dict and isinstance(value, dict):
        of_key, of_value = get_args(kind)
        return {_read(of_key, key, place): _read(of_value, item, f"{place}.{key}") for key, item in value.items()}
    if issubclass(origin, Record) and isinstance(value, dict):
        return _read_record(origin, value, place)
    return _read_scalar(origin, value, place)


def _read_record(kind: Any, data: dict[str, Any], place: str) -> Any:
    types = _types_of(kind)
    for name in data:
        if name not in types:
            raise ValueError(f"{place} has an unknown field {name!r}; it may have {', '.join(types)}")
    fields = {name: _read(types[name], value, f"{place}.{name}") for name, value in data.items()}
    try:
        return kind(**fields)
    except TypeError as error:  # a field that must be there is not
        raise ValueError(f"{place}: {error}") from None


def _read_scalar(kind: Any, value: Any, place: str) -> Any:
    try:
        if isinstance(value, str) and issubclass(kind, dt.date):
            return kind.fromisoformat(value)
        if issubclass(kind, Enum):
            return kind(value)
    except ValueError as error:
        raise ValueError(f"{place}: {error}") from None
    if kind is float and type(value) is int:
        return float(value)
    if type(value) is not kind:
        raise ValueError(f"{place} must be {kind.__name__}, not {value!r}")
    return value


@cache
def _types_of(kind: Any) -> dict[str, Any]:
    return {name: hint for name, hint in get_type_hints(kind).items() if get_origin(hint) is not ClassVar}


@cache
def _model_of(kind: Any) -> Any:
    # Of a model, not of the dataclass: pydantic has other words for unknown fields of a dataclass.
    from pydantic import create_model

    fields_of: dict[str, Any] = {each.name: (_types_of(kind)[each.name], each.default) for each in fields(kind)}
    return create_model(kind.__name__, __config__={"extra": "forbid"}, **fields_of)


def _copied(value: Any) -> Any:
    if isinstance(value, Record):
        copy = object.__new__(type(value))
        copy.__dict__.update({name: _copied(item) for name, item in vars(value).items()})
        return copy
    if isinstance(value, list):
        return [_copied(item) for item in value]
    if isinstance(value, dict):
        return {key: _copied(item) for key, item in value.items()}
    return value


def _dumped(value: Any) -> Any:
    if isinstance(value, Record):
        return value.dump()
    if isinstance(value, list):
        return [_dumped(item) for item in value]
    if isinstance(value, dict):
        return {key: _dumped(item) for key, item in value.items()}
    return value


def _merged(old: dict[str, Any], new: dict[str, Any]) -> dict[str, Any]:
    result = dict(old)
    for key, value in new.items():
        both = isinstance(value, dict) and isinstance(result.get(key), dict)
        result[key] = _merged(result[key], value) if both else value
    return result
