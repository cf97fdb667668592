"""Writes that wait a moment for others, to be made in one transaction: a commit costs more than a write."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from contextvars import Context
from dataclasses import dataclass

from .base import Delete, Put

_WAIT = 0.008  # seconds


@dataclass(frozen=True, eq=False)
class GatheredWrite:
    """One write; none of its changes is made where it was given up before its turn."""

    changes: Sequence[Put | Delete]
    values: Sequence[str]
    """Those of the documents, as JSON."""
    done: asyncio.Future[None]


WriteAll = Callable[[Sequence[GatheredWrite]], Awaitable[Sequence[Exception | None]]]


class GatheredWrites:
    """Gathers writes for some milliseconds, and makes them together."""

    def __init__(self, write_all: WriteAll) -> None:
        """`write_all` makes each or tells why not; what it raises holds for all."""
        self._write_all = write_all
        self._waiting: list[GatheredWrite] = []
        self._timer: asyncio.TimerHandle | None = None
        self._tasks: set[asyncio.Task[None]] = set()

    async def add(self, changes: Sequence[Put | Delete], values: Sequence[str]) -> None:
        """Return when it is written. Stale and LimitReached say why it is not."""
        loop = asyncio.get_running_loop()
        write = GatheredWrite(changes, values, loop.create_future())
        self._waiting.append(write)
        if self._timer is None:
            # In a context of its own: the timeout of one request is not that of the others.
            self._timer = loop.call_later(_WAIT, self._begin, context=Context())
        await write.done

    async def close(self) -> None:
        """Return when nothing waits any more."""
        if self._timer:
            self._timer.cancel()
            self._begin()
        await asyncio.gather(*self._tasks)

    def _begin(self) -> None:
        self._timer = None
        writes = [write for write in self._waiting if not write.done.done()]
        self._waiting.clear()
        if writes:
            task = asyncio.get_running_loop().create_task(self._write(writes))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

    async def _write(self, writes: Sequence[GatheredWrite]) -> None:
        try:
            outcomes = await self._write_all(writes)
        except Exception as error:  # boundary: the store; those who wait are told
            outcomes = [error] * len(writes)
        for write, outcome in zip(writes, outcomes, strict=True):
            if write.done.done():  # given up while it was made
                continue
            if outcome is None:
                write.done.set_result(None)
            else:
                write.done.set_exception(outcome)
