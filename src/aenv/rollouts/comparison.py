"""Answers of two runs, compared without what is different every time."""

from __future__ import annotations

import re
from typing import Any

# Differ from run to run, and mean nothing.
_TIMES = re.compile(r"\b\d+(\.\d+)? ?(s|ms|sec|secs|seconds)\b")
_VOLATILE = {
    "seconds",
    "elapsed",
    "duration",
    "duration_ms",
    "started_at",
    "finished_at",
    "timestamp",
    "time",
    "at",
}


def stable(value: Any) -> Any:
    """The value without what is different every time."""
    if isinstance(value, dict):
        return {key: stable(one) for key, one in value.items() if key not in _VOLATILE}
    if isinstance(value, str):
        return _TIMES.sub("…", value)
    return [stable(one) for one in value] if isinstance(value, list) else value


def first_difference(one: Any, other: Any) -> str:
    """Where two values differ, in words."""
    if isinstance(one, list) and isinstance(other, list) and len(one) == len(other):
        for left, right in zip(one, other, strict=True):
            if left != right:
                return first_difference(left, right)
    if isinstance(one, dict) and isinstance(other, dict) and set(one) == set(other):
        for key in one:
            if one[key] != other[key]:
                return f"{key}: {first_difference(one[key], other[key])}"
    return f"{str(one)[:80]!r} and then {str(other)[:80]!r}"
