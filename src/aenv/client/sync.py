"""`SyncEnvironment`: the same methods, blocking. Works in scripts, threads, and notebooks with a running loop.

Async is written once; this facade drives it on one background loop per process.
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
import os
import threading
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator
from typing import TYPE_CHECKING, Any, Concatenate, ParamSpec, TypeVar

from .environment import Environment

if TYPE_CHECKING:
    from .group import Group

P = ParamSpec("P")
T = TypeVar("T")


class _Background:
    """An event loop in a daemon thread, started when first used."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._loop: asyncio.AbstractEventLoop | None = None

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        """The result of `work`; an interrupt of the caller cancels it."""
        return SyncEnvironment.run_on(self._started(), work)

    def _started(self) -> asyncio.AbstractEventLoop:
        with self._lock:
            if self._loop is None:
                self._loop = asyncio.new_event_loop()
                threading.Thread(target=self._loop.run_forever, name="aenv-sync", daemon=True).start()
            return self._loop


_background = _Background()


def _after_fork() -> None:
    """Threads stay with the parent: a fork needs a loop of its own."""
    global _background
    _background = _Background()


os.register_at_fork(after_in_child=_after_fork)


def _blocking(
    method: Callable[Concatenate[Environment, P], Coroutine[Any, Any, T]],
) -> Callable[Concatenate[SyncEnvironment, P], T]:
    """The method that waits for what `method` of the environment gives."""

    @functools.wraps(method)
    def blocking(self: SyncEnvironment, /, *args: P.args, **kwargs: P.kwargs) -> T:
        # By its name: the environment may be of a class that does more in this method.
        own: Callable[P, Coroutine[Any, Any, T]] = getattr(self.environment, method.__name__)
        return self.run(own(*args, **kwargs))

    return blocking


def _iterating(
    method: Callable[Concatenate[Environment, P], AsyncIterator[T]],
) -> Callable[Concatenate[SyncEnvironment, P], Iterator[T]]:
    """The same for a method that gives one item after another."""

    @functools.wraps(method)
    def iterating(self: SyncEnvironment, /, *args: P.args, **kwargs: P.kwargs) -> Iterator[T]:
        own: Callable[P, AsyncIterator[T]] = getattr(self.environment, method.__name__)
        yield from _each(own(*args, **kwargs), self.run)

    return iterating


class SyncEnvironment:
    """A blocking `Environment`; takes the same arguments.

    with SyncEnvironment("my-env@1.0.0") as env:
        env.call_tool("search_code", {"query": "def main"})
    """

    def __init__(self, env_name: str | Environment, *args: Any, **kwargs: Any) -> None:
        """Takes an environment that is made already, too, and then nothing else: `SyncEnvironment(compose(…))`."""
        if not isinstance(env_name, Environment):
            self.environment = Environment(env_name, *args, **kwargs)
        elif args or kwargs:
            raise TypeError("an environment that is made already takes no further arguments")
        else:
            self.environment = env_name

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        """Drive `work`, which uses `environment`, to its end on the loop that the environment lives on."""
        return _background.run(work)

    @staticmethod
    def run_on(loop: asyncio.AbstractEventLoop, work: Coroutine[Any, Any, T]) -> T:
        """Drive `work` to its end on a loop that another thread runs; an interrupt of this one cancels it."""
        tasks: list[asyncio.Task[Any] | None] = []
        is_given_up = False

        async def driven() -> T:
            if is_given_up:
                work.close()
                raise asyncio.CancelledError
            tasks.append(asyncio.current_task())
            return await work

        def give_up() -> None:
            nonlocal is_given_up
            is_given_up = True
            for task in tasks:
                if task:
                    task.cancel()

        try:
            # Not cancelled by its future: an interrupt may come before this thread has that.
            return asyncio.run_coroutine_threadsafe(driven(), loop).result()
        except BaseException:
            with contextlib.suppress(RuntimeError):  # the loop is closed
                loop.call_soon_threadsafe(give_up)
            raise

    @classmethod
    def create_many(cls, n: int, env_name: str, *args: Any, **kwargs: Any) -> SyncGroup:
        """`n` environments in one request, as a list; used in `with`, it releases them all at the end."""
        return SyncGroup(cls(env_name, *args, **kwargs) for _ in range(n))._create()

    def __enter__(self) -> SyncEnvironment:
        self.initialize()
        return self

    def __exit__(self, *exc: object) -> None:
        self.release()

    @property
    def env_name(self) -> str:
        return self.environment.env_name

    @property
    def instance_id(self) -> str | None:
        return self.environment.instance_id

    @property
    def mcp_url(self) -> str:
        return self.environment.mcp_url

    initialize = _blocking(Environment.initialize)
    release = _blocking(Environment.release)
    destroy = _blocking(Environment.destroy)
    wait_for_ready = _blocking(Environment.wait_for_ready)
    get_env_info = _blocking(Environment.get_env_info)
    renew = _blocking(Environment.renew)
    presign_url = _blocking(Environment.presign_url)
    logs = _iterating(Environment.logs)
    exec = _blocking(Environment.exec)
    exec_stream = _iterating(Environment.exec_stream)
    upload = _blocking(Environment.upload)
    download = _blocking(Environment.download)
    list_files = _blocking(Environment.list_files)
    events = _blocking(Environment.events)
    history = _blocking(Environment.history)
    list_tools = _blocking(Environment.list_tools)
    openai_tools = _blocking(Environment.openai_tools)
    anthropic_tools = _blocking(Environment.anthropic_tools)
    list_anthropic_tools = _blocking(Environment.list_anthropic_tools)
    list_openai_tools = _blocking(Environment.list_openai_tools)
    call_tool = _blocking(Environment.call_tool)
    stream = _iterating(Environment.stream)
    list_functions = _blocking(Environment.list_functions)
    call_function = _blocking(Environment.call_function)
    call_reward = _blocking(Environment.call_reward)
    check_task = _blocking(Environment.check_task)
    check_health = _blocking(Environment.check_health)

    # By hand: types cannot say of a method with free names that it has no other `self`.
    def reset(self, seed: int | None = None, **options: Any) -> Any:
        return self.run(self.environment.reset(seed, **options))


class SyncGroup(list[SyncEnvironment]):
    """Many environments that were made at once."""

    def __enter__(self) -> SyncGroup:
        return self

    def __exit__(self, *exc: object) -> None:
        _background.run(self._group().__aexit__(*exc))

    def _create(self) -> SyncGroup:
        _background.run(self._group().__aenter__())
        return self

    def _group(self) -> Group:
        from .group import Group

        return Group([env.environment for env in self])


def _each(items: AsyncIterator[T], run: Callable[[Coroutine[Any, Any, Any]], Any]) -> Iterator[T]:
    try:
        while (item := run(_next(items))) is not None:
            yield item
    finally:
        run(items.aclose())  # type: ignore[attr-defined]


async def _next(items: AsyncIterator[T]) -> T | None:
    return await anext(items, None)
