"""The circuit breaker: after five transport failures in a row, calls fail at once for thirty seconds."""

from __future__ import annotations

import time
from collections.abc import Callable

from ..base.errors import UnrecoverableEnvironmentError

THRESHOLD = 5
HALF_OPEN_AFTER = 30.0


class Breaker:
    """Counts transport failures; a tool's own error and a cancellation are none."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self.failures = 0
        self._clock = clock
        self._opened_at = 0.0

    def check(self) -> None:
        """Raise while the breaker is open. After the pause one call may try its luck."""
        if self.failures < THRESHOLD:
            return
        if self._clock() - self._opened_at < HALF_OPEN_AFTER:
            raise UnrecoverableEnvironmentError(f"Circuit breaker open: {self.failures} consecutive failures")
        self._opened_at = self._clock()

    def failed(self) -> None:
        self.failures += 1
        if self.failures >= THRESHOLD:
            self._opened_at = self._clock()

    def succeeded(self) -> None:
        self.failures = 0
