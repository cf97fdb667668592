"""What every store refuses before it touches anything, and how positions in a list are told to callers."""

from __future__ import annotations

import base64
import binascii
import contextlib
import json
from collections.abc import Mapping
from typing import Any

from pydantic_core import to_json

from ...base.errors import InvalidRequest
from .base import Delete, PermitsLeft, Put

MAX_TOTAL = 2**53 - 1
"""The largest whole number that a double, and so Lua, tells from the next one."""


_ENCODER = json.JSONEncoder(separators=(",", ":"), allow_nan=False)


def check_texts(*texts: str) -> None:
    """Refuse what would sort differently in different stores, or not fit into one."""
    for text in texts:
        try:
            legal = "\0" not in text and text.encode() is not None
        except UnicodeEncodeError:
            legal = False
        if not legal:
            raise InvalidRequest(f"{text[:100]!r} holds a NUL or half a surrogate pair; take another name")


def check_changes(*changes: Put | Delete) -> None:
    """Refuse a write that could not be made in every store."""
    if len({(change.kind, change.key) for change in changes}) < len(changes):
        twice = [change.key for change in changes]
        raise InvalidRequest(f"a write changes each document once; got {twice!r}")
    for change in changes:
        check_texts(change.kind, change.key)
        if isinstance(change, Put):
            check_texts(*change.terms, *change.terms.values(), *change.counts, *change.limits)
            for name, amount in change.counts.items():
                if not 0 <= amount <= MAX_TOTAL:
                    raise InvalidRequest(f"{change.key!r} adds {amount} to {name!r}; it must be 0 to {MAX_TOTAL}")


def check_window(limit: int, offset: int) -> None:
    """Refuse a part of a list that no list can have."""
    for name, number in (("limit", limit), ("offset", offset)):
        if not 0 <= number < MAX_TOTAL:  # one more must fit, too
            raise InvalidRequest(f"{name} {number} of a page must be 0 to {MAX_TOTAL - 1}")


def limits_of(*changes: Put | Delete) -> list[tuple[str, int]]:
    """The totals that a write must hold down: those it names, and that none grows beyond what can be counted."""
    puts = [change for change in changes if isinstance(change, Put)]
    named = [limit for put in puts for limit in put.limits.items()]
    return named + [(name, MAX_TOTAL) for put in puts for name, amount in put.counts.items() if amount]


def dump(key: str, value: Mapping[str, Any]) -> str:
    """A document's value as JSON text. One with half a surrogate pair is ASCII, so that this does no harm."""
    # Several times as fast as the library's, which decides where there may be what only one of them takes.
    with contextlib.suppress(ValueError, RecursionError):
        text = to_json(value, inf_nan_mode="constants").decode()
        if "NaN" not in text and "Infinity" not in text:
            return text
    try:
        return _ENCODER.encode(dict(value))
    except (ValueError, RecursionError) as error:
        raise InvalidRequest(f"the value of {key!r} cannot be said in JSON: {error}") from None


def cursor(place: str, key: str) -> str:
    """Where a page ended, as text that callers hand back."""
    return base64.urlsafe_b64encode(f"{place}\0{key}".encode()).decode()


def position(after: str) -> tuple[str, str]:
    """The place and key that `cursor` was given."""
    try:
        place, key = base64.b64decode(after, altchars=b"-_", validate=True).decode().split("\0")
    except (binascii.Error, ValueError):
        raise InvalidRequest(f"cursor {after[:100]!r} is not one that a page gave") from None
    return place, key


def spent(tokens: float, rate: float, burst: int) -> PermitsLeft:
    """What the bucket says that held `tokens` permits when one was asked for."""
    if tokens >= 1:
        return PermitsLeft(int(tokens - 1), 0.0)
    never = rate <= 0 or burst < 1
    return PermitsLeft(0, float("inf") if never else (1 - tokens) / rate)
