"""How long one request waits for the store in all, however often it asks.

Only waiting counts. A request may take an hour and a thousand quick answers; it is over when the answers are late.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass

_NOTICED = 0.25  # seconds; an answer that comes sooner was not waited for


@dataclass
class _StoreTime:
    left: float
    is_over: bool = False
    """Whether the request was answered: what goes on after it has a time of its own."""


_current: ContextVar[_StoreTime | None] = ContextVar("store_time", default=None)


@contextmanager
def at_most(seconds: float) -> Iterator[None]:
    """All that is asked inside, also by tasks that are begun there, waits for so long together."""
    time_left = _StoreTime(seconds)
    token = _current.set(time_left)
    try:
        yield
    finally:
        time_left.is_over = True
        _current.reset(token)


@contextmanager
def waiting(timeout: float) -> Iterator[float]:
    """Around one question: for how many seconds it may wait, `timeout` unless less is set."""
    time_left = _current.get()
    if time_left is None or time_left.is_over:
        yield timeout
        return
    began = time.monotonic()
    try:
        yield min(timeout, max(0.0, time_left.left))
    finally:
        took = time.monotonic() - began
        if took > _NOTICED:
            time_left.left -= took
