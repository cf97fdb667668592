"""Deadlines: wakes when the next one is due, and not before."""

from __future__ import annotations

import asyncio
import heapq
import time
from collections.abc import Callable

Clock = Callable[[], float]

_SLACK = 100


class Sweeper:
    """Calls `check(id)` for every id whose moment has come. What that means is the caller's business."""

    def __init__(self, clock: Clock = time.monotonic) -> None:
        self.now = clock
        self._due: list[tuple[float, str]] = []
        """A heap; it may hold moments that do not count any more."""
        self._when: dict[str, float] = {}
        self._changed = asyncio.Event()

    def __contains__(self, id: str) -> bool:
        return id in self._when

    def __len__(self) -> int:
        """How many moments are kept in memory."""
        return len(self._due)

    def add(self, when: float, id: str) -> None:
        """Have `id` checked at `when`, and not at the moment that was said before."""
        self._when[id] = when
        heapq.heappush(self._due, (when, id))
        if self._due[0] == (when, id):
            self._changed.set()
        self._tidy()

    def forget(self, id: str) -> None:
        """Do not check it any more; fine when it was never added."""
        self._when.pop(id, None)
        self._tidy()

    def _tidy(self) -> None:
        # A moment may be a year away, long after what it was for has ended.
        if len(self._due) > 2 * len(self._when) + _SLACK:
            self._due = [(when, id) for id, when in self._when.items()]
            heapq.heapify(self._due)

    async def run(self, check: Callable[[str], None]) -> None:
        """Until cancelled."""
        while True:
            self._changed.clear()
            while self._due and self._due[0][0] <= self.now():
                when, id = heapq.heappop(self._due)
                if self._when.get(id) == when:
                    del self._when[id]
                    check(id)
            delay = self._due[0][0] - self.now() if self._due else None
            try:
                async with asyncio.timeout(delay):
                    await self._changed.wait()
            except TimeoutError:
                continue
