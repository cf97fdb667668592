"""Counts of requests on the data path, kept on the board: exact across workers, of which they outlive each."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from typing import NamedTuple

from ...base.leasing import BOUNDS_MS, ENDPOINTS, OTHER, RPC_METHODS
from .shared_memory import BUCKETS, SERIES, SERIES_BYTES, Board, ColumnMemory

_SERIES_USED, _TIMINGS_USED = 1, 2  # of `totals`


class CallKind(NamedTuple):
    """What a request is counted as; all of it is bounded, whatever clients say."""

    method: str
    endpoint: str
    rpc_method: str


CallSeries = tuple[CallKind, int]
"""Requests of one kind with the same status."""

_REST: CallSeries = (CallKind("", OTHER, ""), 0)


def endpoint_of(path: str) -> str:
    return path if path in ENDPOINTS else OTHER


def bounded_rpc_method(claimed: str) -> str:
    return claimed if claimed in RPC_METHODS else ""


class CallCounts:
    """The counts of one process."""

    def __init__(self, memory: ColumnMemory) -> None:
        self._memory = memory
        used, timings = memory.totals[_SERIES_USED], memory.totals[_TIMINGS_USED]
        # A worker goes on where the one before it in its column was killed.
        self._series = {_series(memory, place): place for place in range(used)}
        self._timings = {_timing(memory, place): place for place in range(timings)}

    def count(self, kind: CallKind, status: int, seconds: float) -> None:
        """A request was answered."""
        memory = self._memory
        series, timing = self._places(kind, status)
        memory.series[series] += 1
        milliseconds = 1e3 * seconds
        memory.timings[timing * BUCKETS + bisect_left(BOUNDS_MS, milliseconds)] += 1
        memory.milliseconds[timing] += milliseconds

    def add(self, kind: CallKind, status: int, counts: Sequence[int], milliseconds: float) -> None:
        """Requests were answered; `counts` has how many for each bucket of timings."""
        memory = self._memory
        series, timing = self._places(kind, status)
        memory.series[series] += sum(counts)
        for bucket, count in enumerate(counts):
            memory.timings[timing * BUCKETS + bucket] += count
        memory.milliseconds[timing] += milliseconds

    def _places(self, kind: CallKind, status: int) -> tuple[int, int]:
        series = self._series.get((kind, status))
        if series is None:
            series = self._new_series((kind, status))
        timing = self._timings.get(kind[:2])
        if timing is None:
            timing = self._new_timing(kind[:2])
        return series, timing

    def _new_series(self, series: CallSeries) -> int:
        place = len(self._series)
        if place >= SERIES:  # statuses are for instances to choose: the rest is counted as one
            return SERIES - 1
        if place == SERIES - 1:
            series = _REST
        name = " ".join([*series[0], str(series[1])]).encode()
        self._memory.series_names[place * SERIES_BYTES : (place + 1) * SERIES_BYTES] = _padded(name)
        self._series[series] = place
        self._memory.totals[_SERIES_USED] = place + 1
        return place

    def _new_timing(self, timing: tuple[str, str]) -> int:
        place = len(self._timings)
        name = " ".join(timing).encode()
        self._memory.timing_names[place * SERIES_BYTES : (place + 1) * SERIES_BYTES] = _padded(name)
        self._timings[timing] = place
        self._memory.totals[_TIMINGS_USED] = place + 1
        return place


class Timing(NamedTuple):
    """How long requests took: how many by bucket, and the milliseconds of all."""

    buckets: list[int]
    milliseconds: float


def summed_series(board: Board) -> dict[CallSeries, int]:
    """How many requests of each kind all processes have answered."""
    sums: dict[CallSeries, int] = {}
    for memory in board.columns:
        for place in range(memory.totals[_SERIES_USED]):
            series = _series(memory, place)
            sums[series] = sums.get(series, 0) + memory.series[place]
    return sums


def summed_timings(board: Board) -> dict[tuple[str, str], Timing]:
    """How long they took, by method and endpoint."""
    sums: dict[tuple[str, str], Timing] = {}
    for memory in board.columns:
        for place in range(memory.totals[_TIMINGS_USED]):
            name = _timing(memory, place)
            buckets, milliseconds = sums.get(name, Timing([0] * BUCKETS, 0.0))
            own = memory.timings[place * BUCKETS : (place + 1) * BUCKETS]
            added = [one + more for one, more in zip(buckets, own, strict=True)]
            sums[name] = Timing(added, milliseconds + memory.milliseconds[place])
    return sums


def _series(memory: ColumnMemory, place: int) -> CallSeries:
    method, endpoint, rpc_method, status = _name(memory.series_names, place).split(" ")
    return CallKind(method, endpoint, rpc_method), int(status)


def _timing(memory: ColumnMemory, place: int) -> tuple[str, str]:
    method, endpoint = _name(memory.timing_names, place).split(" ")
    return method, endpoint


def _name(names: memoryview, place: int) -> str:
    return bytes(names[place * SERIES_BYTES : (place + 1) * SERIES_BYTES]).rstrip(b"\0").decode()


def _padded(name: bytes) -> bytes:
    return name[:SERIES_BYTES].ljust(SERIES_BYTES, b"\0")
