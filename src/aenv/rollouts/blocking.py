"""Agents that are not async: each plays in a thread of its own, with an environment that blocks."""

from __future__ import annotations

import asyncio
import concurrent.futures
import threading
from collections.abc import Callable, Coroutine
from contextlib import suppress
from typing import Any, NoReturn, TypeVar

from ..client.sync import SyncEnvironment
from .capture.endpoint import ModelAccess
from .task_instances import REFUSALS, WatchedEnvironment

T = TypeVar("T")


class BlockingEnvironment(SyncEnvironment):
    """A `SyncEnvironment` over an instance of a running loop. Once closed, its calls fail."""

    def __init__(self, environment: WatchedEnvironment, loop: asyncio.AbstractEventLoop) -> None:
        self.environment: WatchedEnvironment = environment
        self._loop = loop
        self._lock = threading.Lock()
        self._pending: set[concurrent.futures.Future[Any]] = set()
        self._is_closed = False
        self._refused = 0

    @property
    def model(self) -> ModelAccess:
        """As `WatchedEnvironment.model`."""
        return self.environment.model

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        """Drive `work` on the loop of the rollouts, where the connections of the environment are."""
        with self._lock:
            future = None if self._is_closed else asyncio.run_coroutine_threadsafe(work, self._loop)
            if future:
                self._pending.add(future)
        if future is None:
            work.close()
            self._refuse()
        try:
            return future.result()
        finally:
            with self._lock:
                self._pending.discard(future)

    def _refuse(self) -> NoReturn:
        """The rollout is over. The thread of code that goes on after every error stands still in the end."""
        with self._lock:
            self._refused += 1
        if self._refused > REFUSALS:
            threading.Event().wait()
        raise concurrent.futures.CancelledError("the rollout is over")

    def close(self) -> None:
        """End the calls that are under way."""
        with self._lock:
            self._is_closed = True
            pending = list(self._pending)
        for future in pending:
            future.cancel()


async def in_thread(
    function: Callable[[Any, dict[str, Any]], T], env: WatchedEnvironment, task: dict[str, Any]
) -> T:
    """What the function gives. When this is cancelled, the thread goes on until its next call, which fails."""
    loop = asyncio.get_running_loop()
    done: asyncio.Future[T] = loop.create_future()
    blocking = BlockingEnvironment(env, loop)

    def tell(act: Callable[[Any], None], value: Any) -> None:
        with suppress(RuntimeError):  # the loop has ended before the thread
            loop.call_soon_threadsafe(lambda: None if done.done() else act(value))

    def run() -> None:
        try:
            value = function(blocking, task)
        except StopIteration as error:  # which no future takes
            tell(done.set_exception, RuntimeError(f"the agent raised {error!r}"))
        except BaseException as error:
            tell(done.set_exception, error)
        else:
            tell(done.set_result, value)

    threading.Thread(target=run, name="aenv-agent", daemon=True).start()
    try:
        return await done
    finally:
        blocking.close()
