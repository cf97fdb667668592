"""Worker threads for sync functions: bounded, reused, and never waited for at exit.

Python cannot stop a thread. A call that was given up (timeout, client gone) leaves its thread behind; that
thread no longer counts against the bound, so a tool that blocks forever does not starve the others.
"""

from __future__ import annotations

import asyncio
import contextvars
import queue
import threading
from collections.abc import Callable
from contextlib import suppress
from typing import Any

from ...base.errors import Unavailable

MAX_ABANDONED = 256


class Threads:
    """`await threads.run(function)` runs it in a worker thread."""

    def __init__(self, limit: int = 32) -> None:
        self._free = asyncio.Semaphore(limit)
        self._jobs: queue.SimpleQueue[_Job] = queue.SimpleQueue()
        self._idle = 0
        self._abandoned = 0

    async def run(self, function: Callable[[], Any]) -> Any:
        """The function's result, or what it raised. On cancellation the thread is left to itself."""
        if self._abandoned >= MAX_ABANDONED:
            raise Unavailable(
                f"{self._abandoned} earlier calls never came back; end this instance", retry_after=60
            )
        async with self._free:
            job = _Job(function, asyncio.get_running_loop())
            self._jobs.put(job)
            if self._idle > 0:
                self._idle -= 1
            else:
                threading.Thread(target=self._work, name="aenv-worker", daemon=True).start()
            try:
                return await job.done
            except asyncio.CancelledError:
                job.abandoned = True
                self._abandoned += 1
                raise

    def _work(self) -> None:
        while True:
            job = self._jobs.get()
            job.run()
            with suppress(RuntimeError):  # the loop was closed meanwhile: the program is ending
                job.loop.call_soon_threadsafe(self._finished, job)
            del job  # its arguments and result must not live until the next job

    def _finished(self, job: _Job) -> None:
        """On the loop: the thread is free again, and the call that waits learns the outcome."""
        self._idle += 1
        if job.abandoned:
            self._abandoned -= 1
        elif job.error is not None:
            job.done.set_exception(job.error)
        else:
            job.done.set_result(job.result)


class _Job:
    """A function on its way through a thread."""

    def __init__(self, function: Callable[[], Any], loop: asyncio.AbstractEventLoop) -> None:
        self.loop = loop
        self.done: asyncio.Future[Any] = loop.create_future()
        self.result: Any = None
        self.error: BaseException | None = None
        self.abandoned = False
        self._function = function
        self._context = contextvars.copy_context()

    def run(self) -> None:
        try:
            self.result = self._context.run(self._function)
        except StopIteration as error:
            self.error = RuntimeError(f"the function raised StopIteration: {error}")  # no future may hold one
        except BaseException as error:  # boundary: author's code, which may call sys.exit
            self.error = error
