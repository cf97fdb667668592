"""One instance as its own gateway sees it: its record, its state, and what only this process knows."""

from __future__ import annotations

import asyncio
import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from ...base.models import CreateInstance
from ..board.seats import Seat
from ..serving.accounts import Caller
from .records import Record
from .states import MOVES, IllegalMove, State, Stored

if TYPE_CHECKING:
    from .creation import Creation


@dataclass(eq=False)
class Supervised:
    """One instance from the moment a client asks for it until nothing of it is left."""

    record: Record
    stored: Stored = Stored.NO
    """Kept by `Transitions`, like the state."""
    creation: Creation | None = None
    """The create that is under way here; None once that is over, and where another gateway made the instance."""
    asked: tuple[CreateInstance, Caller] | None = None
    """What it was made for, and by which caller; None where another gateway made it."""
    watcher: asyncio.Task[None] | None = None
    ended: asyncio.Event = field(default_factory=asyncio.Event)
    """Set once nothing of it is left here."""
    waiting: int = 0
    """Requests that wait for its creation; the last to leave takes the creation along."""
    told: int = 0
    """To how many requests it was given as their answer."""
    lost: int = 0
    """How many of these answers have not reached their client."""
    counted: bool = False
    """Whether the metrics know that it lives."""
    due: float = 0.0
    """On the sweeper's clock: when it expires."""
    used_at: float = field(default_factory=time.monotonic)
    """On the sweeper's clock: when it was last called here, or the last call ended."""
    calls: int = 0
    """How many are under way here."""
    calls_made: int = 0
    """How many calls of its children, and of theirs, have counted for its grant."""
    part_ids: dict[str, str] = field(default_factory=dict)
    """The ids of its parts, by their names."""
    seat: Seat | None = None
    """Where data workers find it; what they call is counted there."""
    frozen_at: float | None = None
    """Since when it is frozen, or being frozen, in seconds since the epoch."""
    frost: asyncio.Lock = field(default_factory=asyncio.Lock)
    """Held while it is frozen, thawed or destroyed: the engine does one of them at a time."""
    _state: State = field(init=False)

    def __post_init__(self) -> None:
        self._state = State.of(self.record.status)

    @property
    def state(self) -> State:
        return self._state

    def check_move(self, to: State) -> None:
        """IllegalMove when the table has no such move from here."""
        if to not in MOVES[self._state]:
            raise IllegalMove(self.record.id, self._state, to)

    def move(self, to: State) -> None:
        """For `Transitions` alone, which also writes the record."""
        self.check_move(to)
        self._state = to
        if self.seat and to is not State.RUNNING:
            self.seat.withdraw()  # at once: from now on the record says what became of it

    @property
    def is_called(self) -> bool:
        """Whether a call is under way, here or in a data worker."""
        return self.calls_under_way > 0

    @property
    def calls_under_way(self) -> int:
        """How many calls are under way, here and in data workers."""
        return self.calls + (self.seat.calls if self.seat else 0)

    @property
    def last_used(self) -> float:
        """On the sweeper's clock: when it was last called, or the last call ended, here or in a data worker."""
        return max(self.used_at, self.seat.used_at) if self.seat else self.used_at

    def mark_frozen(self, at: float | None) -> None:
        """It is frozen, or being frozen, since then; None: it runs."""
        self.frozen_at = at
        if self.seat:
            self.seat.mark_frozen(frozen=at is not None)

    @property
    def is_live(self) -> bool:
        return self._state.is_live

    @property
    def is_being_created(self) -> bool:
        """By this gateway; also while it serves already, and this is being recorded."""
        return self._state is State.CREATING and self.creation is not None

    @property
    def delivered(self) -> bool:
        """Whether a client has been told that it runs, as far as is known."""
        return self.told > self.lost
