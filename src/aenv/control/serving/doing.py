"""What a long job is at, for the one who waits for it: a line such as "installing requirements: numpy".

Whoever begins a job listens; whatever the job calls says where it is. Lost where nobody listens.
"""

from __future__ import annotations

from collections.abc import Callable
from contextvars import ContextVar

Step = str | Callable[[], str]
"""A line, or what gives it when somebody asks: a position in a queue moves meanwhile."""

_listener: ContextVar[Callable[[Step], None] | None] = ContextVar("doing", default=None)


def listen(listener: Callable[[Step], None]) -> None:
    """Tell `listener` of every step of this task, and of those that it starts."""
    _listener.set(listener)


def at(step: Step) -> None:
    """The job is here now; "" when there is nothing to say."""
    if listener := _listener.get():
        listener(step)
