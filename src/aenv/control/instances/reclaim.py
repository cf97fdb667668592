"""Reclaim: when memory is short, frozen instances that allow it are ended, the longest frozen first."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Callable

from ...base.wire import timestamp
from ..serving import memory
from .freezing import Freezing
from .supervised import Supervised
from .supervisor import Supervisor

logger = logging.getLogger("aenv.control.instances.reclaim")

_LOOK_AGAIN = 5.0  # seconds; memory may run short before a request has to wait for it


class Reclaim:
    """Keeps `below` bytes available, at the cost of instances with `reclaim` that are frozen."""

    def __init__(
        self,
        freezing: Freezing,
        supervisor: Supervisor,
        below: int,
        available: Callable[[], int] = memory.available_bytes,
    ) -> None:
        self._freezing = freezing
        self._supervisor = supervisor
        self._below = below
        self._available = available
        self._ending = asyncio.Lock()

    async def run(self) -> None:
        """Until cancelled."""
        with memory.pressure() as pressed:
            while True:
                pressed.clear()
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(_LOOK_AGAIN):
                        await pressed.wait()
                await self.relieve()

    async def relieve(self) -> None:
        """Return when memory is not short, or nothing more can be ended for it."""
        if not self._next():  # nearly always; the kernel need not be asked
            return
        async with self._ending:
            # One by one: what an instance had is available when it is gone, and not before.
            while (instance := self._next()) and self._available() < self._below:
                assert instance.frozen_at
                since = timestamp(instance.frozen_at)
                logger.warning("memory is short: ending instance %s, frozen since %s", instance.record.id, since)
                await self._supervisor.end(instance, f"memory was short, and it was frozen since {since}")

    def _next(self) -> Supervised | None:
        frozen = self._freezing.frozen.values()
        return next((one for one in frozen if one.record.reclaim and one.is_live and not one.is_called), None)
