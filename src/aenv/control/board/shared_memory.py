"""The board: anonymous memory that the owner process of a gateway and its data workers share.

It has a part that the owner alone writes, and a column for each process, which that process alone writes (and the
owner once the process is dead). So no lock is needed. Column 0 is the owner's own.
"""

from __future__ import annotations

import mmap
import os
import secrets
from dataclasses import dataclass

SEATS = 1 << 15
SEAT_BYTES = 256
ACCOUNTS = 1 << 12
ACCOUNT_BYTES = 16
SERIES = 1024
SERIES_BYTES = 64
TIMINGS = 256  # more than the parser knows methods, times the endpoints
BUCKETS = 21

_WORD = 8
_HEADER_BYTES = 4096
_KEY = slice(64, 96)
_SECRET = slice(96, 112)


@dataclass(frozen=True)
class ColumnMemory:
    """The part of one process, as arrays."""

    calls: memoryview
    """By seat: the generation of its instance and how many calls are under way, in one word."""
    used: memoryview[float]
    """By seat: when a call last began or ended, on the clock of `time.monotonic`."""
    totals: memoryview
    """How many connections are open, series and timings are in use."""
    series_names: memoryview
    series: memoryview
    timing_names: memoryview
    timings: memoryview
    """Counts by bucket, `BUCKETS` words for each."""
    milliseconds: memoryview[float]


class Board:
    """The memory, made by the owner or opened by its descriptor. Pages that are not used take no memory."""

    def __init__(self, columns: int, fd: int | None = None) -> None:
        owned = SEATS * (2 * _WORD + SEAT_BYTES) + ACCOUNTS * (ACCOUNT_BYTES + _WORD) + _HEADER_BYTES
        size = owned + columns * _column_bytes()
        is_new = fd is None
        self.fd = os.memfd_create("aenv-board") if fd is None else fd
        if is_new:
            os.ftruncate(self.fd, size)
        self._memory = memoryview(mmap.mmap(self.fd, size))
        self._next = 0
        self._header = self._take(_HEADER_BYTES)
        self.generations = self._take(SEATS * _WORD).cast("Q")
        """By seat: which instance has it, counted from 1; 0 when it is free."""
        self.frozen = self._take(SEATS * _WORD).cast("Q")
        self.seats = self._take(SEATS * SEAT_BYTES)
        self.account_ids = self._take(ACCOUNTS * ACCOUNT_BYTES)
        self.accounts_until = self._take(ACCOUNTS * _WORD).cast("d")
        self.columns = [self._column() for _ in range(columns)]
        if is_new:
            self._header[_SECRET] = secrets.token_bytes(16)

    def close(self) -> None:
        """The memory itself goes with the last array on it."""
        os.close(self.fd)

    @property
    def key(self) -> bytes:
        """What instance tokens are signed with; empty until the store has told it."""
        key = bytes(self._header[_KEY])
        return key if any(key) else b""

    @key.setter
    def key(self, key: bytes) -> None:
        self._header[_KEY] = key

    @property
    def secret(self) -> str:
        """What the owner knows requests of its workers by, as opposed to those that they pass on."""
        return bytes(self._header[_SECRET]).hex()

    def clear(self, column: int) -> None:
        """Its process is dead: none of its calls and connections is left. What it counted stays."""
        memory = self.columns[column]
        memory.calls.cast("B")[:] = bytes(SEATS * _WORD)
        memory.totals[0] = 0

    def _take(self, size: int) -> memoryview:
        first, self._next = self._next, self._next + size
        return self._memory[first : self._next]

    def _column(self) -> ColumnMemory:
        return ColumnMemory(
            self._take(SEATS * _WORD).cast("Q"),
            self._take(SEATS * _WORD).cast("d"),
            self._take(8 * _WORD).cast("Q"),
            self._take(SERIES * SERIES_BYTES),
            self._take(SERIES * _WORD).cast("Q"),
            self._take(TIMINGS * SERIES_BYTES),
            self._take(TIMINGS * BUCKETS * _WORD).cast("Q"),
            self._take(TIMINGS * _WORD).cast("d"),
        )


def _column_bytes() -> int:
    by_seat = 2 * SEATS * _WORD
    by_name = SERIES * (SERIES_BYTES + _WORD) + TIMINGS * (SERIES_BYTES + (BUCKETS + 1) * _WORD)
    return by_seat + 8 * _WORD + by_name
