"""Leases: instances that clients on this host call by their sockets, so that no call is seen here.

Each process of a client holds its leases together. A leased instance counts as called: it is neither frozen nor
idle. Not here: the request that holds them (`gateway/lease_routes.py`).
"""

from __future__ import annotations

import asyncio
import logging
import secrets
import time
from collections import Counter
from dataclasses import dataclass, field

from ...base.errors import AEnvError, Conflict, TooManyRequests
from ...base.leasing import CallTally, Grant
from ..serving.accounts import Accounts, Caller
from ..serving.metrics import Metrics
from .instance_access import InstanceAccess, Use

logger = logging.getLogger("aenv.control.instances.leases")

CHECK_EVERY = 20.0  # seconds; accounts are believed for 30 more, so that a revoked one ends its leases within 60
_QUIET = 5.0  # seconds
_MAX_HOLDERS = 1000  # processes of one account that hold leases
_MAX_LEASES = 20_000  # of one process; instances that have ended count until it lets go of them
_CALLS_A_SECOND = 50_000  # more than one process can make
_CALLS_AT_ONCE = 100  # of a lease that was held for no time to speak of
_END_IS_KNOWN = 2.0  # seconds after a connection broke, as on the data path


@dataclass(frozen=True)
class _Lease:
    use: Use
    began: float = field(default_factory=time.monotonic)


class Holding:
    """The leases of one process of a client. A `with`: at its end they all end."""

    def __init__(self, leases: Leases, caller: Caller, *, is_local_socket: bool) -> None:
        self.caller = caller
        self.is_local_socket = is_local_socket
        self.key = secrets.token_urlsafe(16)
        """What creates name it by."""
        self.ended = asyncio.Event()
        """Set when the client has to go through the gateway again."""
        self._leases = leases
        self._held: dict[str, _Lease] = {}

    def __enter__(self) -> Holding:
        return self

    def __exit__(self, *exc: object) -> None:
        self._leases.forget(self)
        self.ended.set()
        while self._held:
            self._held.popitem()[1].use.end()

    async def take(self, id: str) -> Grant:
        """Return when it runs, and will until the lease ends. An error when there can be none."""
        use = await self._leases.instances.lease(id, self.caller)
        if self.ended.is_set() or id in self._held or len(self._held) >= _MAX_LEASES:
            use.end()
            raise Conflict(f"the lease of instance {id!r} is held, or there are too many")
        self._held[id] = _Lease(use)
        return self._grant(use)

    def held(self, id: str) -> Grant | None:
        """The lease that a create was given before; None when it is not held."""
        lease = self._held.get(id)
        return self._grant(lease.use) if lease else None

    def drop(self, id: str, calls: object) -> None:
        """The client lets go, and says what it has called. Nothing happens when it does not hold it.

        InvalidRequest for calls that there cannot have been; the lease has ended all the same.
        """
        lease = self._held.pop(id, None)
        if lease is None:
            return
        lease.use.end()
        seconds = time.monotonic() - lease.began
        self._leases.metrics.told(
            CallTally.read(calls or [], seconds, int(_CALLS_A_SECOND * seconds) + _CALLS_AT_ONCE)
        )

    async def why_it_ended(self, id: str) -> str:
        """The reason, where one that is held has just ended; empty when it lives."""
        lease = self._held.get(id)
        return await lease.use.why_it_ended(_END_IS_KNOWN) if lease else ""

    def _grant(self, use: Use) -> Grant:
        quiet = self._leases.instances.quiet(use, _QUIET)
        return Grant(quiet, not use.self_check, self._leases.max_body_bytes)


class Leases:
    """All that are held at this gateway."""

    def __init__(
        self, instances: InstanceAccess, accounts: Accounts, metrics: Metrics, max_body_bytes: int
    ) -> None:
        self.instances = instances
        self.metrics = metrics
        self.max_body_bytes = max_body_bytes
        self._accounts = accounts
        self._holdings: dict[str, Holding] = {}
        """By their keys."""
        self._by_account: Counter[str | None] = Counter()
        self._is_closed = False

    def hold(self, caller: Caller, *, is_local_socket: bool) -> Holding:
        """For a process that has just connected. TooManyRequests when its account has very many already."""
        if self._by_account[caller.account] >= _MAX_HOLDERS:
            raise TooManyRequests(f"more than {_MAX_HOLDERS} processes of one account hold leases", 1.0)
        holding = Holding(self, caller, is_local_socket=is_local_socket)
        self._holdings[holding.key] = holding
        self._by_account[caller.account] += 1
        if self._is_closed:
            holding.ended.set()
        return holding

    async def offer(self, key: str, caller: Caller, id: str) -> Grant | None:
        """A lease on an instance that the caller has created, held by its request with this key.

        None when there can be none: the client asks for one at its first call, and hears why not.
        """
        holding = self._holdings.get(key)
        if holding is None or holding.caller.account != caller.account:
            return None
        try:
            return holding.held(id) or await holding.take(id)
        except AEnvError:
            return None

    def forget(self, holding: Holding) -> None:
        """Its client has gone."""
        if self._holdings.pop(holding.key, None):
            self._by_account[holding.caller.account] -= 1

    def close(self) -> None:
        """The gateway stops."""
        self._is_closed = True
        for holding in self._holdings.values():
            holding.ended.set()

    async def run(self) -> None:
        """Until cancelled."""
        while True:
            await asyncio.sleep(CHECK_EVERY)
            await self.check()

    async def check(self) -> None:
        """End what is held for accounts that may not act any more."""
        for holding in list(self._holdings.values()):
            if not await self._may_hold(holding):
                logger.info("the leases of a client ended: its account may not call instances any more")
                holding.ended.set()

    async def _may_hold(self, holding: Holding) -> bool:
        if account := holding.caller.account:
            return await self._accounts.may_act(account)
        return holding.is_local_socket or not await self._accounts.are_needed()
