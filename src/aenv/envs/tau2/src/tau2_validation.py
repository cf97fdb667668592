"""Building records: pydantic's lax rules, and its messages as the benchmark's version of it words them.

Records are plain dataclasses. pydantic is loaded when the first one is built, which many episodes never do.
"""

from __future__ import annotations

import re
from typing import Any, TypeVar

T = TypeVar("T")

_VERSION = re.compile(r"(?<=https://errors\.pydantic\.dev/)[0-9.]+(?=/v/)")
_REFERENCE = "2.14"
_adapters: dict[Any, Any] = {}


def built(kind: type[T], data: dict[str, Any]) -> T:
    """A record of `data`. ValueError names each bad field."""
    from pydantic import ValidationError

    try:
        record: T = adapter(kind).validate_python(data)
    except ValidationError as error:
        raise ValueError(_VERSION.sub(_REFERENCE, str(error))) from None
    return record


def dumped(record: Any) -> dict[str, Any]:
    """A record as nested dicts, all fields in the order of declaration."""
    data: dict[str, Any] = adapter(type(record)).dump_python(record)
    return data


def converted(kind: type[T], given: Any) -> Any:
    """A list argument as records; one that holds anything but objects is left as it is."""
    if all(isinstance(item, dict) for item in given):
        return [built(kind, item) for item in given]
    return given


def adapter(kind: Any) -> Any:
    """pydantic's adapter of a kind of records; made once, and worth making ahead."""
    if kind not in _adapters:
        from pydantic import TypeAdapter

        _adapters[kind] = TypeAdapter(kind)
    return _adapters[kind]
