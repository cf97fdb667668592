"""The forwarder: what all connections of a data port in one process share.

A call of an instance that has a seat on the board goes straight to its socket. Everything else goes to the owner
process, whose `Proxy` answers: errors, services, ports, pages, rewards with a self-check, frozen instances.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Coroutine
from dataclasses import dataclass
from functools import partial
from typing import Any, TypeVar

from ....base import sockets
from ....base.supervision import Tasks
from ....base.wire import TOKEN_HEADER
from ...board.account_marks import AccountMarks
from ...board.call_counts import CallCounts
from ...board.seats import SeatColumn, Seated
from ...board.shared_memory import Board
from ..data_request import DataRules
from ..tokens import Tokens
from .data_connection import DataConnection
from .reply_heads import KnownReplies
from .request_heads import ForwardedCall, KnownHeads
from .upstream import UpstreamConnection

P = TypeVar("P", bound=asyncio.Protocol)

_MAX_IDLE = 128  # connections to one instance
_IDLE_TIMEOUT = 60.0  # seconds after which one that was not used is closed
_STOP_GRACE = 5.0


@dataclass(frozen=True)
class OwnerAccess:
    """How the owner process is asked."""

    socket: str
    """Of its listener for what workers pass on."""
    secret: str
    """The first part of paths that only workers ask for."""

    def why_broken(self, call: ForwardedCall) -> bytes:
        """A request for the reply to a call whose instance has ended the connection."""
        method = "HEAD" if call.method == "HEAD" else "GET"  # whether a body follows the head of its reply
        line = f"{method} /{self.secret}/{call.instance} HTTP/1.1\r\nhost: localhost\r\n\r\n"
        return line.encode("latin-1", "replace")


class Forwarder:
    """`async with`: leaving it lets what is being answered take a moment more, then closes all connections."""

    def __init__(self, board: Board, column: int, tokens: Tokens, rules: DataRules, owner: OwnerAccess) -> None:
        self.rules = rules
        self.tokens = tokens
        self.owner = owner
        self.heads = KnownHeads()
        self.counts = CallCounts(board.columns[column])
        self.loop = asyncio.get_running_loop()
        self.connections: set[DataConnection] = set()
        self.is_stopping = False
        self._board = board
        self._totals = board.columns[column].totals
        self._others = [memory.totals for memory in board.columns[1:]]
        self._seats = SeatColumn(board, column)
        self._marks = AccountMarks(board)
        self._replies = KnownReplies()
        self._idle: dict[str, list[UpstreamConnection]] = {}
        """Those that wait for a request, the one that was used last at the end, which is taken first."""
        self._sweep: asyncio.TimerHandle | None = None
        self._tasks = Tasks()
        self._changed = asyncio.Event()

    async def __aenter__(self) -> Forwarder:
        await self._tasks.__aenter__()
        return self

    async def __aexit__(self, *exc: object) -> None:
        self.is_stopping = True
        for connection in list(self.connections):
            connection.shut_down()
        try:
            async with asyncio.timeout(_STOP_GRACE):
                while self.connections:
                    self._changed.clear()
                    await self._changed.wait()
        except TimeoutError:
            for connection in list(self.connections):
                connection.abort()
        if self._sweep:
            self._sweep.cancel()
        self._let_go(time.monotonic())
        await asyncio.sleep(0)  # one turn of the loop, so that the transports are closed when we return
        await self._tasks.__aexit__(None, None, None)

    def connection(self) -> DataConnection:
        return DataConnection(self)

    def opened(self, connection: DataConnection) -> None:
        self.connections.add(connection)
        self._totals[0] = len(self.connections)

    def closed(self, connection: DataConnection) -> None:
        self.connections.discard(connection)
        self._totals[0] = len(self.connections)
        self._changed.set()

    @property
    def has_most(self) -> bool:
        """Whether another process has fewer connections than this one."""
        return any(totals[0] < self._totals[0] for totals in self._others)

    # Instances

    def admit(self, call: ForwardedCall, now: float) -> Seated | None:
        """The instance, with this call counted; None when the owner must answer."""
        if not call.instance:
            return None
        seated = self._seats.find(call.instance)
        if seated is None or (seated.self_check and call.is_reward):
            return None
        claim = call.claim
        if claim is None or claim.is_over:
            if seated.demands_token:
                return None
        elif claim.account and not self._marks.has(claim.account, now):
            return None
        return seated if self._seats.begin(seated, now) else None

    def release(self, seated: Seated) -> None:
        """A call that was admitted is over."""
        self._seats.end(seated, time.monotonic())

    def fresh_token(self, call: ForwardedCall) -> bytes:
        """The line of a reply that brings a new token, when it is time; else empty."""
        claim = call.claim
        if claim is None or not claim.is_stale or claim.is_over:
            return b""
        return f"{TOKEN_HEADER.lower()}: {self.tokens.sign(claim.instance, claim.account)}\r\n".encode()

    def known_tokens(self) -> Tokens:
        """What tokens are checked with: the key is on the board when the store has told it."""
        if not self.tokens.key:
            self.tokens.key = self._board.key
        return self.tokens

    # Connections to instances and the owner

    def take(self, path: str) -> UpstreamConnection | None:
        """One that waits for a request."""
        idle = self._idle.get(path)
        while idle:
            upstream = idle.pop()
            if not upstream.is_stale():
                return upstream
            upstream.abandon()
        return None

    def connect(self, path: str, then: Callable[[UpstreamConnection | None], None]) -> None:
        """A new connection for `then`; None when there can be none."""
        replies = None if path == self.owner.socket else self._replies
        make = partial(UpstreamConnection, path, replies, self._give_back)

        async def connecting() -> None:
            then(await self._connected(make, path))

        self.start(connecting())

    async def pipe(self, make: Callable[[], asyncio.Protocol]) -> bool:
        """Connect a protocol to the owner; False when it does not answer."""
        return await self._connected(make, self.owner.socket) is not None

    def start(self, work: Coroutine[Any, Any, None]) -> None:
        self._tasks.create_task(work)

    async def _connected(self, make: Callable[[], P], path: str) -> P | None:
        try:
            connection = sockets.connect_unix(path)
        except OSError:
            return None
        try:
            return (await self.loop.create_unix_connection(make, sock=connection))[1]
        except OSError:
            connection.close()
            return None

    def _give_back(self, upstream: UpstreamConnection) -> None:
        idle = self._idle.setdefault(upstream.path, [])
        if upstream.is_closed:
            if upstream in idle:
                idle.remove(upstream)
        elif len(idle) < _MAX_IDLE and not self.is_stopping:
            upstream.idle_since = time.monotonic()
            idle.append(upstream)
            if self._sweep is None:
                self._sweep = self.loop.call_later(_IDLE_TIMEOUT, self._look_for_unused)
        else:
            upstream.abandon()
        if not idle:
            self._idle.pop(upstream.path, None)  # any number of instances comes and goes

    def _look_for_unused(self) -> None:
        self._let_go(time.monotonic() - _IDLE_TIMEOUT)
        # No timer where nothing waits: an idle process does nothing.
        self._sweep = self.loop.call_later(_IDLE_TIMEOUT, self._look_for_unused) if self._idle else None

    def _let_go(self, before: float) -> None:
        """Close the connections that were last used before a moment."""
        for path, idle in list(self._idle.items()):
            unused = [upstream for upstream in idle if upstream.idle_since <= before]
            self._idle[path] = idle = idle[len(unused) :]
            if not idle:
                del self._idle[path]
            for upstream in unused:
                upstream.abandon()
