"""What a gateway had to do in the last hour, for the charts of those who open its pages now."""

from __future__ import annotations

import asyncio
import time
from collections import deque
from typing import Any

from ..serving.metrics import Metrics

_EVERY = 10.0  # seconds
_KEPT = 360


class LoadHistory:
    """Moments, oldest first: the time in seconds, instances alive, calls and errors so far."""

    def __init__(self, metrics: Metrics) -> None:
        self._metrics = metrics
        self._moments: deque[tuple[float, int, int, int]] = deque(maxlen=_KEPT)

    async def run(self) -> None:
        while True:
            self._moments.append(self._now())
            await asyncio.sleep(_EVERY)

    def moments(self) -> list[tuple[float, int, int, int]]:
        return [*self._moments, self._now()]

    def figures(self) -> dict[str, Any]:
        """What the gateway has done since it started."""
        return self._metrics.figures()

    def _now(self) -> tuple[float, int, int, int]:
        load = self._metrics.load()
        return round(time.time(), 3), load.alive, load.calls, load.errors
