"""Deadlines: wakes when the next one is due, and not before."""

from __future__ import annotations

import asyncio
import heapq
import time
from collections.abc import Callable

Clock = Callable[[], float]


class Sweeper:
    """Calls `check(id)` for every id whose moment has come. What that means is the caller's business."""

    def __init__(self, clock: Clock = time.monotonic) -> None:
        self.now = clock
        self._due: list[tuple[float, str]] = []
        self._changed = asyncio.Event()

    def add(self, when: float, id: str) -> None:
        """Have `id` checked at `when`. It cannot be taken back: an old entry is one check for nothing."""
        heapq.heappush(self._due, (when, id))
        if self._due[0] == (when, id):
            self._changed.set()

    async def run(self, check: Callable[[str], None]) -> None:
        """Until cancelled."""
        while True:
            self._changed.clear()
            while self._due and self._due[0][0] <= self.now():
                check(heapq.heappop(self._due)[1])
            delay = self._due[0][0] - self.now() if self._due else None
            try:
                async with asyncio.timeout(delay):
                    await self._changed.wait()
            except TimeoutError:
                continue
