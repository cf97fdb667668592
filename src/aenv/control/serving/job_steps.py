"""What a long job is at, for the one who waits for it: a line such as "installing requirements: numpy".

The code that begins a job listens; what the job calls says where it is. Without a listener it is lost.
"""

from __future__ import annotations

from collections.abc import Callable
from contextvars import ContextVar

JobStep = str | Callable[[], str]
"""A line, or a function that gives it on request: a position in a queue moves meanwhile."""

_listener: ContextVar[Callable[[JobStep], None] | None] = ContextVar("doing", default=None)


def listen(listener: Callable[[JobStep], None]) -> None:
    """Tell `listener` of every step of this task, and of those that it starts."""
    _listener.set(listener)


def at(step: JobStep) -> None:
    """The job is here now; "" when there is nothing to say."""
    if listener := _listener.get():
        listener(step)
