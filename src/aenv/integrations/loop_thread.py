"""An event loop in a thread of its own, for frameworks that call from code without async.

Started when it is first used, and once in each process: a forked worker starts its own.
"""

from __future__ import annotations

import asyncio
import os
import threading
from collections.abc import Coroutine
from typing import Any, TypeVar

T = TypeVar("T")


class LoopThread:
    """Runs coroutines for callers that block."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._pid = 0

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        """The result of `work`; an interrupt of the caller cancels it."""
        future = asyncio.run_coroutine_threadsafe(work, self._running())
        try:
            return future.result()
        except BaseException:
            future.cancel()
            raise

    async def within(self, work: Coroutine[Any, Any, T]) -> T:
        """The same for a caller on another event loop, which goes on meanwhile."""
        return await asyncio.wrap_future(asyncio.run_coroutine_threadsafe(work, self._running()))

    def _running(self) -> asyncio.AbstractEventLoop:
        with self._lock:
            # After a fork the thread is not there, although the object is.
            if self._loop is None or self._pid != os.getpid():
                self._loop, self._pid = asyncio.new_event_loop(), os.getpid()
                threading.Thread(target=self._loop.run_forever, name="aenv-integration", daemon=True).start()
            return self._loop


LOOP = LoopThread()
