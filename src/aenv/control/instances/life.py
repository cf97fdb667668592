"""One instance as the gateway that looks after it sees it: its record, and what only this process knows."""

from __future__ import annotations

import asyncio
import time
from dataclasses import dataclass, field

from .records import Record


@dataclass(eq=False)
class Life:
    """One instance from the moment somebody asks for it until nothing of it is left."""

    record: Record
    creation: asyncio.Task[None] | None = None
    watcher: asyncio.Task[None] | None = None
    ended: asyncio.Event = field(default_factory=asyncio.Event)
    """Set once nothing of it is left."""
    waiting: int = 0
    """Requests that wait for its creation; the last to leave takes the creation along."""
    delivered: bool = False
    """Whether any client has been told that it runs."""
    abandoned: bool = False
    """Whether it will be gone as if it had never been asked for."""
    error: Exception | None = None
    """Why it could not be created."""
    counted: bool = False
    """Whether the metrics know that it lives."""
    due: float = 0.0
    """On the sweeper's clock: when it expires."""
    used_at: float = field(default_factory=time.monotonic)
    """On the sweeper's clock: when it was last called, or the last call ended."""
    calls: int = 0
    """How many are under way."""
    frozen_at: float | None = None
    """Since when it is frozen, or being frozen, in seconds since the epoch."""
    frost: asyncio.Lock = field(default_factory=asyncio.Lock)
    """Held by who freezes, thaws or destroys it: the engine does one of them at a time."""

    @property
    def is_live(self) -> bool:
        return self.record.is_live

    @property
    def is_being_created(self) -> bool:
        """Also while it runs already, and this is being recorded."""
        return self.creation is not None and not self.creation.done()
