"""A plain model of what should become of instances: no task, no lock, and nothing happens by itself."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field

from aenv.base.errors import Conflict, StartFailed, TooManyRequests, Unavailable
from aenv.control.instances.records import Record
from tests.instance_world import World

IDS = [f"echo-{letter * 26}" for letter in "ab"]
KEYS = ["once"]
MOST = 2
TTL = 600.0


@dataclass(eq=False)
class Attempt:
    """One instance in the model, from its first request on."""

    id: str
    key: str | None
    label: str
    running: bool = False
    expires: float = 0.0
    waiting: int = 0
    told: int = 0
    lost: int = 0


@dataclass
class Row:
    """What the store holds of an attempt."""

    attempt: Attempt
    status: str = "Creating"
    ended: float = 0.0
    begins_again: bool = False

    @property
    def live(self) -> bool:
        return self.status in ("Creating", "Running")


@dataclass(eq=False)
class Asked:
    """A request to create, and what is to come of it; None while it shall wait."""

    task: asyncio.Task[Record]
    attempt: Attempt | None = None
    expected: str | type[Exception] | None = None


@dataclass
class Model:
    """What should be. Plain: no task, no lock, nothing happens by itself."""

    world: World
    has_quota: bool
    live: dict[str, Attempt] = field(default_factory=dict)
    rows: dict[str, Row] = field(default_factory=dict)
    keys: dict[str, str] = field(default_factory=dict)
    running: set[str] = field(default_factory=set)
    """What the engine runs; also what it could not destroy."""
    unsaved: list[Callable[[], bool]] = field(default_factory=list)
    asked: list[Asked] = field(default_factory=list)
    ids: set[str] = field(default_factory=lambda: set(IDS))
    cut_off: bool = False
    destroy_fails: bool = False
    """Both as in the world, used up at the model's own pace."""

    # The store

    def written(self) -> bool:
        """A write that the store makes; whether its answer arrives."""
        lost, self.cut_off = self.cut_off, False
        return not lost

    def tell(self, work: Callable[[], bool]) -> bool:
        """Tell the store of an end, or remember it. Whether that was possible."""
        done = not self.world.store_is_down and work()
        if not done:
            self.unsaved.append(work)
        return done

    def save_end(self, attempt: Attempt, status: str) -> bool:
        row = self.rows.get(attempt.id)
        if row is None or row.attempt is not attempt or not row.live:
            return True
        row.status, row.ended = status, self.world.now
        return self.written()

    def forget(self, attempt: Attempt) -> bool:
        row = self.rows.get(attempt.id)
        if row is None or row.attempt is not attempt:
            return True
        self.remove(row)
        return self.written()

    def remove(self, row: Row) -> None:
        del self.rows[row.attempt.id]
        self.keys = {key: id for key, id in self.keys.items() if id != row.attempt.id}

    def save_rest(self) -> None:
        rest, self.unsaved = self.unsaved, []
        for work in rest:
            assert work()

    # The engine

    def destroy(self, id: str) -> None:
        if self.destroy_fails:
            self.destroy_fails = False
        else:
            self.running.discard(id)

    # Moves

    def of(self, name: str) -> Attempt | None:
        if name in KEYS:
            return next((one for one in self.live.values() if one.key == name), None)
        return self.live.get(name)

    def answer(self, attempt: Attempt, outcome: str | type[Exception]) -> None:
        for one in self.asked:
            if one.attempt is attempt and one.expected is None:
                one.expected = outcome
                attempt.waiting -= 1
                attempt.told += outcome == attempt.id

    def undo(self, attempt: Attempt, outcome: type[Exception] = Conflict, *, runs: bool = False) -> bool:
        """As if it had never been asked for; whether the store could be told."""
        if self.live.pop(attempt.id, None) is None:
            return True
        if runs or attempt.running:
            self.running.add(attempt.id)
            self.destroy(attempt.id)
        self.answer(attempt, outcome)
        return self.tell(lambda: self.forget(attempt))

    def end(self, attempt: Attempt, status: str) -> bool:
        """It ran, and ends."""
        del self.live[attempt.id]
        self.destroy(attempt.id)
        return self.tell(lambda: self.save_end(attempt, status))

    def run(self, attempt: Attempt) -> None:
        """The engine has it ready; what becomes of it depends on the store."""
        row = self.rows.get(attempt.id)
        if not self.world.store_is_down:
            if row is None:
                row = self.rows[attempt.id] = Row(attempt)
                if attempt.key:
                    self.keys[attempt.key] = attempt.id
            row.status, attempt.expires = "Running", self.world.now + TTL
            if self.written():
                attempt.running = True
                self.running.add(attempt.id)
                self.answer(attempt, attempt.id)
                return
        self.undo(attempt, Unavailable, runs=True)

    def create(self, asked: Asked, name: str, id: str, label: str) -> None:
        """A first request for `name`, which is not live; `id` is the one that its instance gets."""
        key = name if name in KEYS else None
        attempt = asked.attempt = Attempt(id, key, label, waiting=1)
        self.live[id] = attempt
        if self.world.store_is_down:
            self.undo(attempt, Unavailable, runs=self.world.at_once and not self.has_quota)
        elif id in self.rows or key in self.keys:
            if self.has_quota or not self.world.at_once:
                pass  # the engine is not asked, or cancelled
            else:
                self.destroy(id)
            del self.live[id]
            self.save_rest()
            self.repeat(asked, attempt, name)
        elif self.has_quota and sum(row.live for row in self.rows.values()) >= MOST:
            del self.live[id]
            self.answer(attempt, TooManyRequests)
        elif self.world.at_once and not self.has_quota:
            self.run(attempt)
        else:
            self.rows[id] = Row(attempt)
            if key:
                self.keys[key] = id
            if not self.written():
                self.undo(attempt, Unavailable, runs=self.world.stubborn and not self.has_quota)
            elif self.world.at_once:
                self.run(attempt)

    def repeat(self, asked: Asked, attempt: Attempt, name: str) -> None:
        """The store has had the id or the key before."""
        row = self.rows.get(self.keys.get(name, name))
        if row and row.attempt.label != attempt.label:
            return self.answer(attempt, Conflict)
        if row and not row.begins_again:
            never_ran = row.status == "Failed" and not row.attempt.expires
            return self.answer(attempt, StartFailed if never_ran else Conflict)
        if row:
            self.remove(row)
        self.keys.pop(name, None)
        asked.attempt = None
        return self.create(asked, name, attempt.id, attempt.label)
