"""What the judges call: a tool for every shape of answer, and tools that tell on each other.

`block` and `wait_for_state` let a client see that a cancellation reached the tool; `meet` returns only
when several calls run at the same time. None of them waits by the clock.
"""

from __future__ import annotations

import asyncio
import base64
import threading
from collections import defaultdict
from dataclasses import dataclass
from typing import Any, Literal

from aenv import (
    Context,
    register_function,
    register_prompt,
    register_resource,
    register_reward,
    register_tool,
)

PNG = base64.b64decode(
    "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="
)
BLOB = bytes(range(256))

_reached: defaultdict[tuple[str, str], asyncio.Event] = defaultdict(asyncio.Event)
_meetings: dict[str, asyncio.Barrier] = {}
_thread_meetings: dict[str, threading.Barrier] = {}
_lock = threading.Lock()


@dataclass
class Place:
    city: str
    latitude: float
    tags: list[str]


@register_tool
def echo(text: str) -> str:
    """Give the text back."""
    return text


@register_tool(annotations={"readOnlyHint": True})
def add(a: int, b: int = 2, operation: Literal["add", "subtract"] = "add") -> dict[str, int]:
    """Add two numbers.

    Args:
        a: The first number.
        b: The second number.
        operation: What to do with them.
    """
    return {"sum": a + b if operation == "add" else a - b}


@register_tool
def locate(city: str) -> Place:
    """Find a city."""
    return Place(city, 47.4, ["lake"])


@register_tool
def picture() -> bytes:
    """A PNG of one pixel."""
    return PNG


@register_tool
def blob() -> bytes:
    """Bytes that are no picture."""
    return BLOB


@register_tool
def mixed() -> list[Any]:
    """Text around a picture."""
    return ["before", PNG, "after"]


@register_tool
def fail(message: str) -> str:
    """Raise an error with this message."""
    raise ValueError(message)


@register_tool
async def count(to: int, context: Context) -> int:
    """Count, and report every number."""
    for n in range(1, to + 1):
        await context.progress(n, to, f"at {n}")
    return to


@register_tool
async def block(key: str) -> None:
    """Block until cancelled; both ends of it can be waited for."""
    _reached[key, "started"].set()
    try:
        await asyncio.Event().wait()
    finally:
        _reached[key, "cancelled"].set()


@register_tool
async def wait_for_state(key: str, state: Literal["started", "cancelled"]) -> str:
    """Return when `block` with the same key has come this far."""
    await _reached[key, state].wait()
    return state


@register_tool
def big(size: int) -> str:
    """A text of so many characters."""
    return "x" * size


@register_tool
async def meet(key: str, parties: int) -> str:
    """Return when so many calls with the same key are here at once."""
    barrier = _meetings.setdefault(key, asyncio.Barrier(parties))
    await barrier.wait()
    return "met"


@register_tool
def meet_in_threads(key: str, parties: int) -> str:
    """The same, for a function that blocks its thread."""
    with _lock:
        barrier = _thread_meetings.setdefault(key, threading.Barrier(parties))
    barrier.wait(20)
    return "met"


@register_function
def multiply(a: int, b: int) -> int:
    """Multiply two numbers."""
    return a * b


@register_function
def explode() -> None:
    """Raise an error."""
    raise RuntimeError("the function gave up")


@register_reward
def judge_answer(answer: str) -> float:
    """One point for the right answer."""
    return 1.0 if answer == "42" else 0.0


@register_resource("judged://notes")
def notes() -> str:
    """Something to remember."""
    return "remember the milk"


@register_resource("judged://notes/{name}")
def note(name: str) -> str:
    """One of many things to remember."""
    return f"remember {name}"


@register_resource("judged://logo", mime_type="image/png")
def logo() -> bytes:
    """A picture."""
    return PNG


@register_prompt
def review(code: str, tone: str = "kindly") -> str:
    """Ask for a review."""
    return f"Review this {tone}: {code}"
