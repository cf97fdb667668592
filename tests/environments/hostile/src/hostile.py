"""Tools that do everything a tool should not do, and one that behaves."""

from __future__ import annotations

import asyncio
import sys
import threading
from typing import Any

from aenv import register_function, register_reward, register_tool

MEGABYTE = 1_000_000

_started = asyncio.Event()
_stopped = asyncio.Event()


@register_tool
def echo(text: str) -> str:
    """Give the text back."""
    return text


@register_tool
def raises() -> None:
    raise ValueError("the disk is on fire")


@register_tool
def raises_without_a_message() -> None:
    raise ZeroDivisionError


@register_tool
def prints() -> str:
    print("a line that is not JSON")
    print("another one", file=sys.stderr)
    return "printed"


@register_tool
def exits() -> None:
    sys.exit(3)


@register_tool
async def exits_from_a_coroutine() -> None:
    sys.exit(3)


@register_tool
def interrupts() -> None:
    raise KeyboardInterrupt


@register_tool
async def interrupts_from_a_coroutine() -> None:
    raise KeyboardInterrupt


@register_tool
def stops_iterating() -> None:
    raise StopIteration


@register_tool
async def cancels_itself() -> None:
    raise asyncio.CancelledError


@register_tool
def recurses() -> Any:
    return recurses()


@register_tool(timeout=0.1)
def blocks_a_thread() -> None:
    threading.Event().wait()


@register_tool(timeout=0.1)
async def blocks() -> None:
    await asyncio.Event().wait()


@register_tool
async def waits_for_its_caller() -> None:
    """Block until cancelled, and let `wait_until` know."""
    _started.set()
    try:
        await asyncio.Event().wait()
    finally:
        _stopped.set()


@register_tool
async def wait_until(what: str) -> str:
    """Return when `waits_for_its_caller` has started, or was stopped."""
    await {"started": _started, "stopped": _stopped}[what].wait()
    return what


@register_tool
def returns_an_object() -> Any:
    return object()


@register_tool
def returns_itself() -> Any:
    circle: list[Any] = []
    circle.append(circle)
    return circle


@register_tool
def returns_a_lone_surrogate() -> str:
    return "\ud800"


@register_tool
def returns_not_a_number() -> Any:
    return {"values": [float("nan"), float("inf")]}


@register_tool
def returns_the_wrong_type() -> dict[str, int]:
    return {"count": "many"}  # type: ignore[dict-item]


@register_tool
def returns_megabytes(count: int) -> str:
    return "x" * count * MEGABYTE


@register_function
def multiply(a: int, b: int = 2) -> int:
    """Multiply two numbers."""
    return a * b


@register_function
def function_raises() -> None:
    raise ValueError("the disk is on fire")


@register_function
def function_exits() -> None:
    sys.exit(3)


@register_function(timeout=0.1)
def function_blocks() -> None:
    threading.Event().wait()


@register_function
def function_returns_an_object() -> Any:
    return object()


@register_reward
def judge_answer(answer: str) -> float:
    """One point for the right answer."""
    return 1.0 if answer == "42" else 0.0
