"""Supervision: tasks of which none ends another, and loops that are started again when they fail.

An `asyncio.TaskGroup` cancels all its tasks when one fails. That is right for the parts of one piece of work. It
is wrong for what stands side by side: an error with one instance must not end the instances of others.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable, Coroutine
from functools import partial
from typing import Any, Self, TypeVar

logger = logging.getLogger("aenv.base.supervision")

T = TypeVar("T")
Failed = Callable[[Exception], None]
"""Told of the error that a task ended with."""

_FIRST_DELAY = 0.1  # seconds before a loop that failed is started again; doubled each time
_LONGEST_DELAY = 30.0


class Tasks:
    """`async with`: tasks that fail alone. At its end it waits for them; left by an error, it cancels them."""

    def __init__(self) -> None:
        self._tasks: set[asyncio.Task[Any]] = set()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, kind: type[BaseException] | None, *_: object) -> None:
        if kind:
            self._cancel()
        try:
            while self._tasks:  # tasks start others
                await asyncio.wait(self._tasks)
        except asyncio.CancelledError:
            self._cancel()
            while self._tasks:
                await asyncio.wait(self._tasks)
            raise

    def create_task(self, work: Coroutine[Any, Any, T], failed: Failed | None = None) -> asyncio.Task[T]:
        """Start it. An error is logged, `failed` is told of it, and those who await the task get it too."""
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(partial(self._ended, failed))
        return task

    def keep(self, what: str, run: Callable[[], Awaitable[None]]) -> asyncio.Task[None]:
        """Start a loop that must not die: see `kept_up`."""
        return self.create_task(kept_up(what, run))

    def _cancel(self) -> None:
        for task in self._tasks:
            task.cancel()

    def _ended(self, failed: Failed | None, task: asyncio.Task[Any]) -> None:
        self._tasks.discard(task)
        error = None if task.cancelled() else task.exception()
        if isinstance(error, Exception):
            logger.error("a task failed", exc_info=error)
            if failed:
                failed(error)


async def to_the_end(work: Coroutine[Any, Any, T] | asyncio.Future[T]) -> T:
    """Await `work` to its end even when cancelled meanwhile; the cancellation goes on afterwards."""
    task = asyncio.ensure_future(work)
    cancelled: asyncio.CancelledError | None = None
    while not task.done():
        try:
            await asyncio.wait({task})
        except asyncio.CancelledError as error:
            cancelled = error
    if cancelled and not task.cancelled():
        task.exception()  # read, so that it is not reported as lost
        raise cancelled
    return task.result()


async def first_of(*waits: Awaitable[Any]) -> asyncio.Future[Any]:
    """The one that ends first, of several the one named first; the others are cancelled, and over on return."""
    tasks = [asyncio.ensure_future(wait) for wait in waits]
    try:
        await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        return next(task for task in tasks if task.done())
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


async def kept_up(what: str, run: Callable[[], Awaitable[None]]) -> None:
    """Return when `run` returns. Each time it fails, log the error, wait a little longer, and start it again."""
    delay = _FIRST_DELAY
    while True:
        began = time.monotonic()
        try:
            return await run()
        except Exception:  # boundary: a loop of the gateway; while it stands still, instances are not looked after
            if time.monotonic() - began > _LONGEST_DELAY:
                delay = _FIRST_DELAY
            logger.exception("%s failed; it starts again in %.1f s", what, delay)
        await asyncio.sleep(delay)
        delay = min(2 * delay, _LONGEST_DELAY)
