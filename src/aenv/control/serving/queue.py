"""The queue for room: who waits when a quota is used up, and who is next.

Fair between owners: they take turns, however many of one's requests wait. Limits hold across gateways, because the
store checks them; the order holds within one gateway.
"""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import Callable, Container, Coroutine
from dataclasses import dataclass, field
from typing import Any

from ...base.errors import TooManyRequests
from ...base.supervision import kept_up
from ..stores.base import LimitReached
from . import job_steps

_LOOK_AGAIN = 0.5  # seconds, only while a request waits: room may appear through another gateway
_RETRY_WITHOUT_HISTORY = 5.0

Attempt = Callable[[], Coroutine[Any, Any, None]]


@dataclass(eq=False)
class _Waiter:
    owner: str
    attempt: Attempt
    blocked_by: LimitReached
    done: asyncio.Future[None] = field(default_factory=lambda: asyncio.get_running_loop().create_future())
    trying: asyncio.Task[None] | None = None

    async def got_in(self) -> bool:
        """Whether the attempt that is under way, if any, succeeds: it cannot be taken back half-way."""
        if self.trying is None:
            return False
        await asyncio.wait({self.trying})
        return not self.trying.cancelled() and self.trying.exception() is None


class Queue:
    """`async with`: the queue moves on inside."""

    def __init__(self) -> None:
        self._waiters: list[_Waiter] = []
        self._room = asyncio.Event()
        self._granted: list[float] = []
        self._turns: Counter[str] = Counter()
        """How often each owner had a turn, while requests waited."""
        self._mover: asyncio.Task[None] | None = None

    async def __aenter__(self) -> Queue:
        self._mover = asyncio.get_running_loop().create_task(kept_up("the queue", self._move_on))
        return self

    async def __aexit__(self, *exc: object) -> None:
        if self._mover:
            self._mover.cancel()
            await asyncio.gather(self._mover, return_exceptions=True)

    @property
    def waiting(self) -> int:
        return len(self._waiters)

    def freed(self) -> None:
        """Something has ended: there may be room."""
        self._room.set()

    async def admit(self, owner: str, limits: Container[str], attempt: Attempt, wait: float) -> None:
        """Run `attempt` until it meets none of its `limits`, for at most `wait` seconds.

        Then TooManyRequests says where it stood. Cancelled, an attempt under way is finished first.
        """
        # What others wait for and this one needs too: no request overtakes them.
        limit = next((waiter.blocked_by for waiter in self._waiters if waiter.blocked_by.name in limits), None)
        if limit is None:
            try:
                return await _whole(attempt())
            except LimitReached as met:
                limit = met
        if not wait:
            raise self._refusal(limit, None) from None
        waiter = _Waiter(owner, attempt, limit)
        self._line_up(waiter)
        self._room.set()
        job_steps.at(
            lambda: f"position {self.position(waiter)} of {self.waiting} in the queue: {waiter.blocked_by}"
        )
        try:
            async with asyncio.timeout(wait):
                await waiter.done
        except TimeoutError:
            if not await waiter.got_in():
                raise self._refusal(waiter.blocked_by, waiter) from None
        except asyncio.CancelledError:
            await waiter.got_in()
            raise
        finally:
            job_steps.at("")
            self._waiters.remove(waiter)

    def _line_up(self, waiter: _Waiter) -> None:
        owners = {other.owner for other in self._waiters}
        if not owners:
            self._turns.clear()
        elif waiter.owner not in owners:
            # A newcomer does not get the turns of the time before it came.
            self._turns[waiter.owner] = max(self._turns[waiter.owner], min(self._turns[owner] for owner in owners))
        self._waiters.append(waiter)

    def position(self, waiter: _Waiter) -> int:
        """1 for the one who is next."""
        return self._in_order().index(waiter) + 1

    async def _move_on(self) -> None:
        while True:
            self._room.clear()
            await self._grant()
            try:
                async with asyncio.timeout(_LOOK_AGAIN if self._waiters else None):
                    await self._room.wait()
            except TimeoutError:
                continue

    async def _grant(self) -> None:
        full: set[str] = set()
        for waiter in self._in_order():
            if waiter.blocked_by.name in full or waiter.done.done():
                continue
            waiter.trying = asyncio.ensure_future(waiter.attempt())
            await asyncio.wait({waiter.trying})
            error = waiter.trying.exception()
            if isinstance(error, LimitReached):
                waiter.blocked_by = error
                full.add(error.name)
                waiter.trying = None
                continue
            if error is None:
                self._granted = [*self._granted[-19:], time.monotonic()]
                self._turns[waiter.owner] += 1
            if not waiter.done.done():
                waiter.done.set_exception(error) if error else waiter.done.set_result(None)

    def _in_order(self) -> list[_Waiter]:
        turn = self._turns.copy()
        ranked: list[tuple[int, int, _Waiter]] = []
        for arrival, waiter in enumerate(self._waiters):
            turn[waiter.owner] += 1
            ranked.append((turn[waiter.owner], arrival, waiter))
        return [waiter for _, _, waiter in sorted(ranked, key=lambda entry: entry[:2])]

    def _refusal(self, limit: LimitReached, waiter: _Waiter | None) -> TooManyRequests:
        position = self.position(waiter) if waiter else len(self._waiters) + 1
        estimate = self._estimate(position)
        hint = "; try again later, or wait for room with 'wait=30s'" if waiter is None else ""
        where = f"position {position} in the queue, about {estimate:.0f} s"
        error = TooManyRequests(f"no room for another instance: {limit}; {where}{hint}", estimate)
        queue = {"position": position, "waiting": len(self._waiters), "estimate_seconds": round(estimate, 1)}
        error.details["queue"] = queue
        return error

    def _estimate(self, position: int) -> float:
        if len(self._granted) < 2:
            return _RETRY_WITHOUT_HISTORY
        return max(1.0, position * (self._granted[-1] - self._granted[0]) / (len(self._granted) - 1))


async def _whole(work: Coroutine[Any, Any, None]) -> None:
    """Finish `work` even when cancelled: the undo must know that it has been done."""
    task = asyncio.ensure_future(work)
    try:
        await asyncio.shield(task)
    except asyncio.CancelledError:
        await asyncio.wait({task})
        raise
