"""An agent that computes for ever and never awaits holds the event loop, and all other rollouts with it.

No timeout of asyncio fires then. A thread sees that the loop stands still, and raises in the code that holds it.
The time in which the loop stood still, or the whole process was stopped, does not count against the others.
"""

from __future__ import annotations

import asyncio
import ctypes
import threading
import time
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager, suppress
from contextvars import ContextVar
from typing import Any
from weakref import WeakKeyDictionary

_LOOK_EVERY = 0.5  # seconds
GRACE = 5.0  # seconds that what is cancelled has to end


class LoopHeld(BaseException):
    """The event loop stood still for longer than one stage of a rollout may take.

    Not an `Exception`: the code that it is raised in may go on after every one of those.
    """


class _LostTime:
    """Seconds in which an agent held a loop, or its process was stopped. Used in the loop's thread."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self.holder: asyncio.Task[Any] | None = None
        """The task that was seen to hold the loop since it last moved."""
        self._loop = loop
        self._seconds = 0.0
        self._by: WeakKeyDictionary[asyncio.Task[Any], float] = WeakKeyDictionary()
        self._moved, self._computed = loop.time(), time.process_time()
        self._next = loop.call_later(_LOOK_EVERY, self._move)

    def for_others_than(self, task: asyncio.Task[Any] | None) -> float:
        """What was lost until now and is not the doing of `task`."""
        self._count()
        return self._seconds - (self._by.get(task, 0.0) if task else 0.0)

    def watch(self, task: asyncio.Task[Any]) -> None:
        """Count what this task takes from the others."""
        self._by[task] = 0.0

    def is_watched(self, task: asyncio.Task[Any]) -> bool:
        return task in self._by

    def stop(self) -> None:
        self._next.cancel()

    def _move(self) -> None:
        self._count()
        self._next = self._loop.call_later(_LOOK_EVERY, self._move)

    def _count(self) -> None:
        now, computed = self._loop.time(), time.process_time()
        late, busy = now - self._moved - _LOOK_EVERY, computed - self._computed
        self._moved, self._computed = now, computed
        holder, self.holder = self.holder, None
        if late <= _LOOK_EVERY:
            return
        if holder and holder in self._by:
            self._by[holder] += late
            self._seconds += late
        elif holder is None and busy < late / 2:  # it did not even compute: it was stopped
            self._seconds += late
        # Otherwise it is not known whose time it was, and an agent might get more of it for ever.


_lost: ContextVar[_LostTime | None] = ContextVar("_lost", default=None)


def watch(task: asyncio.Task[Any]) -> None:
    """Let the time for which this task holds the loop count against no other."""
    if lost := _lost.get():
        lost.watch(task)


def abandon(task: asyncio.Task[Any]) -> None:
    """Let neither the end of the loop nor that of the interpreter wait for a task that may never end."""
    asyncio._unregister_task(task)  # `asyncio.run` waits for all that it knows
    task.add_done_callback(lambda ended: ended.cancelled() or ended.exception())  # seen, whatever it is
    # A task that is freed closes its coroutine, which may go on at that, too.
    ctypes.pythonapi.Py_IncRef(ctypes.py_object(task))


async def end_others() -> None:
    """End all other tasks of this loop: what agents have left running. It does not wait long for any."""
    others = asyncio.all_tasks() - {asyncio.current_task()}
    for task in others:
        task.cancel()
    if others:
        for task in (await asyncio.wait(others, timeout=GRACE))[1]:
            abandon(task)


@asynccontextmanager
async def limited(
    limit: float | None, playing: Callable[[], asyncio.Task[Any] | None]
) -> AsyncIterator[asyncio.Timeout]:
    """As `asyncio.timeout`, without the time for which others than the `playing` task held the loop."""
    loop, lost = asyncio.get_running_loop(), _lost.get()
    began = loop.time()
    before = lost.for_others_than(None) if lost else 0.0
    async with asyncio.timeout(None) as timeout:
        if limit is None:
            yield timeout
            return

        handle: asyncio.TimerHandle

        def due() -> None:
            nonlocal handle
            more = lost.for_others_than(playing()) - before if lost else 0.0
            left = limit + max(more, 0.0) - (loop.time() - began)
            if left > 0:
                handle = loop.call_later(left, due)
            else:
                timeout.reschedule(loop.time())

        handle = loop.call_later(limit, due)
        try:
            yield timeout
        finally:
            handle.cancel()


@contextmanager
def noticed(limit: float, *, watched_only: bool = False) -> Iterator[None]:
    """In the block LoopHeld is raised in code of this thread that holds the running loop for `limit` seconds.

    `watched_only` leaves other tasks alone than those that `watch` was told of: the loop is the caller's then.
    """
    loop, holder = asyncio.get_running_loop(), threading.get_ident()
    ran = [0.0]  # seconds, without those in which the watcher itself stood still: the process was stopped
    beats = [0.0]
    over = threading.Event()
    lost = _LostTime(loop)

    def beat() -> None:
        beats[0] = ran[0]

    def watch() -> None:
        looked, computed = time.monotonic(), time.process_time()
        while not over.wait(_LOOK_EVERY):
            now, used = time.monotonic(), time.process_time()
            gap, busy = now - looked, used - computed
            looked, computed = now, used
            # A long gap in which nothing was computed: the process was stopped, and no task is to blame for it.
            if gap <= 2 * _LOOK_EVERY or busy >= gap / 2:
                ran[0] += min(gap, 2 * _LOOK_EVERY)
            still, task = ran[0] - beats[0], asyncio.current_task(loop)
            if still > 1.5 * _LOOK_EVERY:
                lost.holder = task or lost.holder
            if still > limit + _LOOK_EVERY and task and (lost.is_watched(task) or not watched_only):
                # Again at each look, for code that catches even this.
                ctypes.pythonapi.PyThreadState_SetAsyncExc(ctypes.c_ulong(holder), ctypes.py_object(LoopHeld))
            with suppress(RuntimeError):  # the loop has just been closed
                loop.call_soon_threadsafe(beat)

    watcher = threading.Thread(target=watch, name="aenv-held-loop", daemon=True)
    watcher.start()
    token = _lost.set(lost)
    try:
        yield
    finally:
        _lost.reset(token)
        lost.stop()
        over.set()
        watcher.join()
        ctypes.pythonapi.PyThreadState_SetAsyncExc(ctypes.c_ulong(holder), None)  # what was not raised yet
