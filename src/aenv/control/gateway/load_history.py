"""What a gateway had to do in the last hour, for the charts of those who open its pages now."""

from __future__ import annotations

import asyncio
import time
from collections import deque
from typing import Any

from ..serving.metrics import Metrics

_EVERY = 10.0  # seconds
_KEPT = 360
_FRESH = 1.0  # seconds for which figures are told again: fifty pages ask ten times a second


class LoadHistory:
    """Moments, oldest first: the time in seconds, instances alive, calls and errors so far."""

    def __init__(self, metrics: Metrics) -> None:
        self._metrics = metrics
        self._moments: deque[tuple[float, int, int, int]] = deque(maxlen=_KEPT)
        self._figures: dict[str, Any] = {}
        self._figured_at = -_FRESH

    async def run(self) -> None:
        while True:
            self._moments.append(self._now())
            await asyncio.sleep(_EVERY)

    def moments(self) -> list[tuple[float, int, int, int]]:
        return [*self._moments, self._now()]

    def figures(self) -> dict[str, Any]:
        """What the gateway has done since it started."""
        if (now := time.monotonic()) - self._figured_at >= _FRESH:
            self._figures, self._figured_at = self._metrics.figures(), now
        return self._figures

    def _now(self) -> tuple[float, int, int, int]:
        load = self._metrics.load()
        return round(time.time(), 3), load.alive, load.calls, load.errors
