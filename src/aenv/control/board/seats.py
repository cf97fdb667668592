"""Seats: where data workers find the instances that run here, and what the owner learns of their calls.

The owner gives each instance a seat when it runs, and takes it back when it ends. A worker that finds no seat for
an instance passes the request on to the owner, so a seat that is missing costs time and nothing else.

Why no call waits for a frozen instance: a worker counts its call, then looks for the mark; the owner marks,
freezes, then looks at the counts once more, and thaws when there are any.
"""

from __future__ import annotations

import struct
import zlib
from dataclasses import dataclass

from .shared_memory import SEAT_BYTES, SEATS, Board

_NEAR = 32  # seats that one id may have, from the one that its hash names
_COUNT_BITS = 16
_MOST = (1 << _COUNT_BITS) - 1
_FIXED = struct.Struct("<I??BB")


class Seat:
    """The seat of one instance, as the owner sees it."""

    def __init__(self, board: Board, number: int, generation: int) -> None:
        self._board = board
        self._number = number
        self._generation = generation

    def withdraw(self) -> None:
        """Workers begin no more calls of it."""
        if self._board.generations[self._number] == self._generation:
            self._board.generations[self._number] = 0

    def restore(self) -> None:
        """Undo `withdraw`, at once: later the seat may be another's."""
        self._board.generations[self._number] = self._generation

    def mark_frozen(self, *, frozen: bool) -> None:
        if self._board.generations[self._number] == self._generation:  # else it is another's by now
            self._board.frozen[self._number] = int(frozen)

    @property
    def calls(self) -> int:
        """How many calls are under way in the workers."""
        words = (column.calls[self._number] for column in self._board.columns)
        return sum(word & _MOST for word in words if word >> _COUNT_BITS == self._generation)

    @property
    def used_at(self) -> float:
        """When a worker last began or ended a call."""
        used: float = max(column.used[self._number] for column in self._board.columns)
        return used


class Seats:
    """All seats, as the owner gives them."""

    def __init__(self, board: Board, *, demand_tokens: bool = False) -> None:
        """`demand_tokens`: no instance is opened by its id alone."""
        self._board = board
        self._demand_tokens = demand_tokens
        self._generation = 0

    def give(self, id: str, socket: str | None, *, demands_token: bool, self_check: bool) -> Seat | None:
        """A seat for an instance at `socket`; None where there is none for it, and the owner serves it."""
        demands_token |= self._demand_tokens
        content = _content(id, socket or "", demands_token=demands_token, self_check=self_check)
        if not socket or len(content) > SEAT_BYTES:
            return None
        board = self._board
        for number in _near(id):
            if board.generations[number] == 0:
                self._generation += 1
                board.frozen[number] = 0
                board.seats[number * SEAT_BYTES : number * SEAT_BYTES + len(content)] = content
                board.generations[number] = self._generation  # last: now workers see it
                return Seat(board, number, self._generation)
        return None


@dataclass(slots=True)
class Seated:
    """An instance with a seat, as a worker sees it."""

    number: int
    generation: int
    socket: str
    demands_token: bool
    self_check: bool


class SeatColumn:
    """What one worker knows and says of the instances: it finds them, and counts its calls of them."""

    def __init__(self, board: Board, column: int) -> None:
        self._board = board
        self._generations = board.generations
        self._frozen = board.frozen
        self._calls = board.columns[column].calls
        self._used = board.columns[column].used
        self._known: dict[str, Seated] = {}

    def find(self, id: str) -> Seated | None:
        """The instance with this id, if it has a seat."""
        known = self._known.get(id)
        if known and self._generations[known.number] == known.generation:
            return known
        found = next((seated for number in _near(id) if (seated := self._read(number, id))), None)
        if found is None:
            self._known.pop(id, None)
        else:
            if len(self._known) >= SEATS:
                self._known.clear()
            self._known[id] = found
        return found

    def begin(self, seated: Seated, now: float) -> bool:
        """Count a call that begins; False, and nothing is counted, where the owner must begin it."""
        number, generation = seated.number, seated.generation
        word = self._calls[number]
        if word >> _COUNT_BITS != generation:  # of the instance that had the seat before
            word = generation << _COUNT_BITS
        if self._generations[number] != generation or word & _MOST == _MOST:
            return False
        self._calls[number] = word + 1
        self._used[number] = now
        # Looked at again, after it was counted: see above.
        if self._frozen[number] or self._generations[number] != generation:
            self.end(seated, now)
            return False
        return True

    def end(self, seated: Seated, now: float) -> None:
        """A call that was counted is over."""
        # The word may be another instance's by now, which has taken the seat.
        if self._calls[seated.number] >> _COUNT_BITS == seated.generation:
            self._calls[seated.number] -= 1
            self._used[seated.number] = now

    def _read(self, number: int, id: str) -> Seated | None:
        generation = self._generations[number]
        if not generation:
            return None
        content = bytes(self._board.seats[number * SEAT_BYTES : (number + 1) * SEAT_BYTES])
        digest, demands_token, self_check, id_length, socket_length = _FIXED.unpack_from(content)
        begin, middle = _FIXED.size, _FIXED.size + id_length
        end = middle + socket_length
        if content[begin:middle] != id.encode("latin-1", "replace") or zlib.crc32(content[4:end]) != digest:
            return None  # another's, or just being written
        if self._generations[number] != generation:
            return None
        return Seated(number, generation, content[middle:end].decode(), demands_token, self_check)


def _near(id: str) -> list[int]:
    first = zlib.crc32(id.encode("latin-1", "replace"))
    return [(first + step) % SEATS for step in range(_NEAR)]


def _content(id: str, socket: str, *, demands_token: bool, self_check: bool) -> bytes:
    names = id.encode("latin-1", "replace"), socket.encode()
    if any(len(name) > 255 for name in names):
        return bytes(SEAT_BYTES + 1)
    content = _FIXED.pack(0, demands_token, self_check, *map(len, names)) + b"".join(names)
    return struct.pack("<I", zlib.crc32(content[4:])) + content[4:]
