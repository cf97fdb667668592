"""JSON of others: what is nested too deep is refused, and what JSON does not have is not written."""

from __future__ import annotations

import json
import math
from typing import Any

MAX_DEPTH = 200


def loads(text: str | bytes) -> Any:
    """The value of a text. ValueError where it is not JSON, or nested deeper than MAX_DEPTH."""
    try:
        value = json.loads(text)
    except RecursionError:
        raise ValueError(f"it is nested deeper than {MAX_DEPTH} levels") from None
    if _may_be_deep(text) and _is_deep(value):
        raise ValueError(f"it is nested deeper than {MAX_DEPTH} levels")
    return value


def dumps(value: Any) -> str:
    """As JSON, whatever it is: numbers that JSON does not have become texts, and what is too deep its type."""
    try:
        text = _dumped(value)
    except (ValueError, RecursionError):
        return _dumped(_plain(value, MAX_DEPTH))
    return _dumped(_plain(value, MAX_DEPTH)) if _may_be_deep(text) and _is_deep(value) else text


def _dumped(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"), default=str, allow_nan=False)


def _may_be_deep(text: str | bytes) -> bool:
    """Quick, since every line is asked: each level has a bracket."""
    if isinstance(text, bytes):
        return text.count(b"[") + text.count(b"{") > MAX_DEPTH
    return text.count("[") + text.count("{") > MAX_DEPTH


def _is_deep(value: Any) -> bool:
    level = [value] if isinstance(value, dict | list | tuple) else []
    for _ in range(MAX_DEPTH):
        inner = (one.values() if isinstance(one, dict) else one for one in level)
        level = [one for values in inner for one in values if isinstance(one, dict | list | tuple)]
        if not level:
            return False
    return True


def _plain(value: Any, levels: int) -> Any:
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)
    if not isinstance(value, dict | list | tuple):
        return value
    if not levels:
        return f"a {type(value).__name__}, nested too deep to be kept"
    if isinstance(value, dict):
        return {str(name): _plain(one, levels - 1) for name, one in value.items()}
    return [_plain(one, levels - 1) for one in value]
