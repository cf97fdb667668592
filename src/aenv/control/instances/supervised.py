"""One instance as the gateway that looks after it sees it: its record, and what only this process knows."""

from __future__ import annotations

import asyncio
import time
from dataclasses import dataclass, field

from ...base.models import CreateInstance
from ..serving.accounts import Caller
from ..serving.doing import Step
from .records import Record


@dataclass(eq=False)
class Supervised:
    """One instance from the moment somebody asks for it until nothing of it is left."""

    record: Record
    creation: asyncio.Task[None] | None = None
    watcher: asyncio.Task[None] | None = None
    ended: asyncio.Event = field(default_factory=asyncio.Event)
    """Set once nothing of it is left."""
    asked: tuple[CreateInstance, Caller] | None = None
    """What it was made for, and by whom; None where another gateway made it."""
    waiting: int = 0
    """Requests that wait for its creation; the last to leave takes the creation along."""
    told: int = 0
    """To how many requests it was given as their answer."""
    lost: int = 0
    """How many of these answers have not reached their client."""
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

    doing: Step = ""
    """What its creation is at."""

    def step(self) -> str:
        """The same, in words for whoever waits for it."""
        return self.doing if isinstance(self.doing, str) else self.doing()

    @property
    def delivered(self) -> bool:
        """Whether a client has been told that it runs, as far as anybody knows."""
        return self.told > self.lost

    @property
    def is_live(self) -> bool:
        return self.record.is_live

    @property
    def is_being_created(self) -> bool:
        """Also while it runs already, and this is being recorded."""
        return self.creation is not None and not self.creation.done()
