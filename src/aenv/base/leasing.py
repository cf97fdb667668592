"""What a client on the gateway's host and the gateway say to each other of leases: one JSON object a line.

While a client calls an instance by its socket, it holds a lease on it. All leases of a process are held by one
request, `POST /leases`, whose two bodies are these lines:

    client   {"what": "take", "id"}
    gateway  {"what": "granted", "id", "grant"}, or {"what": "refused", "id"}: then calls go through the gateway
    client   {"what": "drop", "id", "calls"}; nothing is said to that
    client   {"what": "why", "id"}
    gateway  {"what": "why", "id", "reason"}: why the instance has ended; empty when it lives

The head of the reply has a key (`wire.LEASES_HEADER`). A client that sends it with the create of an instance is
given a lease on it with the reply to that: its first call need not ask for one.
"""

from __future__ import annotations

from bisect import bisect_left
from dataclasses import asdict, dataclass, field
from typing import Any

from . import mcp
from .errors import InvalidRequest

PATH = "/leases"
MAX_LINE_BYTES = 64 << 10
BOUNDS_MS = tuple(float(2**power) for power in range(20))
"""Up to which durations are counted together; longer ones are the last."""
METHODS = ("GET", "POST")
ENDPOINTS = ("/mcp", "/sse", "/message", "/health")
OTHER = "/other"
RPC_METHODS = frozenset(
    {"tools/call", "tools/list", "initialize", "ping", "server/discover", "notifications/initialized"}
)
_MAX_ROWS = 64
_MOST = 1 << 53  # beyond, a number of JSON is not exact
_Key = tuple[str, str, str, int]


@dataclass(frozen=True)
class Grant:
    """What holds for a lease that was given."""

    quiet: float
    """Seconds without a call after which the client lets go of it."""
    rewards: bool
    """Whether rewards may be asked for by the socket, too: the self-check is the gateway's."""
    max_body_bytes: int
    """What the gateway forwards at most, both ways; by the socket it is no more."""


@dataclass(frozen=True)
class LeaseLine:
    """One line, of either side."""

    what: str
    id: str
    grant: Grant | None = None
    reason: str = ""
    calls: object = None
    """What `CallTally.lines` gave; to be read with `CallTally.read`."""

    def encode(self) -> bytes:
        shown = {"what": self.what, "id": self.id, "calls": self.calls, "reason": self.reason}
        shown["grant"] = asdict(self.grant) if self.grant else None
        return mcp.dumps({name: value for name, value in shown.items() if value}) + b"\n"

    @classmethod
    def read(cls, line: bytes) -> LeaseLine:
        """InvalidRequest when it is not one."""
        try:
            said = mcp.loads(line)
            what, id, reason = said["what"], said["id"], said.get("reason", "")
            grant = Grant(**said["grant"]) if said.get("grant") else None
        except (ValueError, TypeError, KeyError, AttributeError):
            raise InvalidRequest("a line of leases is a JSON object with 'what' and 'id'") from None
        if not all(isinstance(text, str) for text in (what, id, reason)):
            raise InvalidRequest("fields 'what', 'id' and 'reason' of a line of leases must be strings")
        return cls(what, id, grant, reason, said.get("calls"))


class LeaseLines:
    """Puts what comes in pieces together to lines."""

    def __init__(self) -> None:
        self._rest = b""

    def feed(self, piece: bytes) -> list[LeaseLine]:
        """Those that are complete now. InvalidRequest for one that is too long, or not a line of leases."""
        *lines, self._rest = (self._rest + piece).split(b"\n")
        if len(self._rest) > MAX_LINE_BYTES:
            raise InvalidRequest(f"a line of leases has at most {MAX_LINE_BYTES} bytes")
        return [LeaseLine.read(line) for line in lines if line]


@dataclass
class CallRow:
    """Calls that count under the same labels, by how long they took."""

    counts: list[int] = field(default_factory=lambda: [0] * (len(BOUNDS_MS) + 1))
    total_ms: float = 0.0


@dataclass
class CallTally:
    """Calls, as the gateway's metrics count them."""

    rows: dict[_Key, CallRow] = field(default_factory=dict)

    def add(self, method: str, path: str, rpc_method: str, status: int, seconds: float) -> None:
        key = (
            method,
            path if path in ENDPOINTS else OTHER,
            rpc_method if rpc_method in RPC_METHODS else "",
            status,
        )
        row = self.rows.get(key)
        if row is None:
            row = self.rows[key] = CallRow()
        ms = 1e3 * seconds
        row.counts[bisect_left(BOUNDS_MS, ms)] += 1
        row.total_ms += ms

    def lines(self) -> list[list[Any]]:
        """For JSON: a row each, with its counts up to the last that is not 0; no more than are read."""
        rows = list(self.rows.items())[:_MAX_ROWS]
        return [[*key, _trimmed(row.counts), round(row.total_ms, 3)] for key, row in rows]

    @classmethod
    def read(cls, lines: object, seconds: float, most: int) -> CallTally:
        """What a client says of `seconds`, and at most `most` calls. InvalidRequest for what cannot be true.

        The gateway cannot know whether it is true; it knows labels that do not exist, and times that do not fit.
        """
        if not isinstance(lines, list) or len(lines) > _MAX_ROWS:
            raise InvalidRequest(f"field 'calls': must be a list of at most {_MAX_ROWS} rows")
        tally = cls()
        for line in lines:
            key, row = _row(line, 1e3 * seconds)
            tally.rows[key] = row
        if sum(sum(row.counts) for row in tally.rows.values()) > most:
            raise InvalidRequest(f"field 'calls': more than {most} calls within {seconds:.1f} s")
        return tally


def _trimmed(counts: list[int]) -> list[int]:
    last = max((place for place, count in enumerate(counts) if count), default=-1)
    return counts[: last + 1]


def _row(line: object, longest_ms: float) -> tuple[_Key, CallRow]:
    if not isinstance(line, list) or len(line) != 6:
        raise InvalidRequest("field 'calls': a row is method, endpoint, rpc_method, status, counts, total_ms")
    method, endpoint, rpc_method, status, counts, total_ms = line
    is_known = method in METHODS and endpoint in (*ENDPOINTS, OTHER) and rpc_method in ("", *RPC_METHODS)
    if not is_known or type(status) is not int or not (status == 0 or 100 <= status <= 599):
        raise InvalidRequest("field 'calls': a row has a label that no call has")
    is_counts = isinstance(counts, list) and len(counts) <= len(BOUNDS_MS) + 1
    if not is_counts or not all(type(count) is int and 0 <= count <= _MOST for count in counts):
        raise InvalidRequest(f"field 'calls': counts must be at most {len(BOUNDS_MS) + 1} numbers from 0")
    row = CallRow(counts + [0] * (len(BOUNDS_MS) + 1 - len(counts)))
    below, above = (0.0, *BOUNDS_MS), (*BOUNDS_MS, float("inf"))
    if any(count and low > longest_ms for count, low in zip(row.counts, below, strict=True)):
        raise InvalidRequest("field 'calls': a call took longer than the lease")
    # The sum lies between what the counts allow; a client that says another one gets the nearest.
    least = sum(count * low for count, low in zip(row.counts, below, strict=True))
    most = sum(count * min(high, longest_ms) for count, high in zip(row.counts, above, strict=True))
    is_number = type(total_ms) in (int, float) and total_ms == total_ms
    row.total_ms = min(max(total_ms, least), max(least, most)) if is_number else least
    return (method, endpoint, rpc_method, status), row
