"""States: where an instance is in its life, and which moves lead on from there.

Only `transitions.py` makes moves. The states are those of the gateway that supervises the instance; what clients
and the store see of them is the `EnvStatus` of its record.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum

from ...base.wire import EnvStatus


class State(Enum):
    """Where an instance is in its life."""

    CREATING = "creating"
    """Asked for: it waits for room, the engine makes it, or it is being recorded as running."""
    RUNNING = "running"
    """It serves, and the store knows."""
    ENDING = "ending"
    """It gets no more calls. Once the engine has destroyed it, the store is told why it ended."""
    UNDOING = "undoing"
    """It gets no more calls. Once the engine has destroyed it, the store forgets that it was asked for."""
    ENDED = "ended"
    """Nothing of it runs."""
    RELEASED = "released"
    """It runs on, for the next gateway."""

    @property
    def is_live(self) -> bool:
        return self in (State.CREATING, State.RUNNING)

    @classmethod
    def of(cls, status: EnvStatus) -> State:
        """The state of an instance of which only the record is known."""
        return _OF_RECORDS.get(status, cls.ENDED)


_OF_RECORDS = {EnvStatus.CREATING: State.CREATING, EnvStatus.RUNNING: State.RUNNING}

MOVES: Mapping[State, frozenset[State]] = {
    State.CREATING: frozenset({State.RUNNING, State.ENDING, State.UNDOING}),
    State.RUNNING: frozenset({State.ENDING, State.UNDOING, State.RELEASED}),
    State.ENDING: frozenset({State.ENDED}),
    State.UNDOING: frozenset({State.ENDED}),
    State.ENDED: frozenset(),
    State.RELEASED: frozenset(),
}


class IllegalMove(Exception):
    """A move that the table does not have: a mistake of ours, never of a caller."""

    def __init__(self, id: str, before: State, after: State) -> None:
        super().__init__(f"instance {id!r} cannot go from {before.value} to {after.value}")


class Stored(Enum):
    """Whether the store has the record of an instance."""

    NO = "no"
    PERHAPS = "perhaps"
    """A write has begun, and its answer is not known: it may be under way, or was cut off."""
    YES = "yes"
