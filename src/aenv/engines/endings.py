"""The instances of an engine that are being ended."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any


class Endings:
    """One task for each of them, shared by all who want it gone, and not theirs to cancel half-way."""

    def __init__(self) -> None:
        self._tasks: dict[str, asyncio.Task[None]] = {}

    def __contains__(self, id: object) -> bool:
        return id in self._tasks

    async def end(self, id: str, clear: Callable[[], Coroutine[Any, Any, None]]) -> None:
        """Return when `clear` has ended the instance; it is not called while an earlier one is under way."""
        task = self._tasks.get(id)
        if task is None:
            task = self._tasks[id] = asyncio.create_task(clear())
            task.add_done_callback(lambda _: self._tasks.pop(id))
        await asyncio.shield(task)
