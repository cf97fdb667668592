"""`SyncEnvironment`: the same methods, blocking. Works in scripts, threads, and notebooks with a running loop.

Async is written once; this facade drives it on one background loop per process.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator, Sequence
from typing import TYPE_CHECKING, Any, TypeVar

from .environment import Environment
from .result import Progress, ToolResult
from .session import OnProgress

if TYPE_CHECKING:
    from pathlib import Path

    from .group import Group
    from .remote import Finished, RemoteOutput

T = TypeVar("T")


class _Background:
    """An event loop in a daemon thread, started when first used."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._loop: asyncio.AbstractEventLoop | None = None

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        """The result of `work`; an interrupt of the caller cancels it."""
        future = asyncio.run_coroutine_threadsafe(work, self._started())
        try:
            return future.result()
        except BaseException:
            future.cancel()
            raise

    def _started(self) -> asyncio.AbstractEventLoop:
        with self._lock:
            if self._loop is None:
                self._loop = asyncio.new_event_loop()
                threading.Thread(target=self._loop.run_forever, name="aenv-sync", daemon=True).start()
            return self._loop


_background = _Background()


class SyncEnvironment:
    """A blocking `Environment`; takes the same arguments.

    with SyncEnvironment("my-env@1.0.0") as env:
        env.call_tool("search_code", {"query": "def main"})
    """

    def __init__(self, env_name: str, *args: Any, **kwargs: Any) -> None:
        self.environment = Environment(env_name, *args, **kwargs)

    def _run(self, work: Coroutine[Any, Any, T]) -> T:
        """Drive `work` to its end, on the loop that the environment lives on."""
        return _background.run(work)

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

    def initialize(self) -> bool:
        return self._run(self.environment.initialize())

    def release(self) -> None:
        self._run(self.environment.release())

    def destroy(self) -> None:
        self.release()

    def wait_for_ready(self, timeout: float = 300.0) -> None:
        self._run(self.environment.wait_for_ready(timeout))

    def get_env_info(self) -> dict[str, Any]:
        return self._run(self.environment.get_env_info())

    def renew(self, ttl: str) -> str:
        return self._run(self.environment.renew(ttl))

    def presign_url(self, port: int, expiration_time_in_minutes: float = 5) -> str:
        return self._run(self.environment.presign_url(port, expiration_time_in_minutes))

    def logs(self, follow: bool = False) -> Iterator[str]:
        yield from _each(self.environment.logs(follow), self._run)

    def exec(
        self, command: str | Sequence[str], timeout: float | None = None, stdin: str | bytes = b""
    ) -> Finished:
        return self._run(self.environment.exec(command, timeout, stdin))

    def exec_stream(
        self, command: str | Sequence[str], timeout: float | None = None, stdin: str | bytes = b""
    ) -> Iterator[RemoteOutput]:
        yield from _each(self.environment.exec_stream(command, timeout, stdin), self._run)

    def upload(self, local: str | Path, remote: str) -> int:
        return self._run(self.environment.upload(local, remote))

    def download(self, remote: str, local: str | Path) -> int:
        return self._run(self.environment.download(remote, local))

    def list_files(self, path: str = "") -> list[dict[str, Any]]:
        return self._run(self.environment.list_files(path))

    def events(self) -> list[dict[str, Any]]:
        return self._run(self.environment.events())

    def history(self) -> list[dict[str, Any]]:
        return self._run(self.environment.history())

    def list_tools(self) -> list[dict[str, Any]]:
        return self._run(self.environment.list_tools())

    def openai_tools(self) -> list[dict[str, Any]]:
        return self._run(self.environment.openai_tools())

    def anthropic_tools(self) -> list[dict[str, Any]]:
        return self._run(self.environment.anthropic_tools())

    def list_anthropic_tools(self) -> list[dict[str, Any]]:
        return self.anthropic_tools()

    def list_openai_tools(self) -> list[Any]:
        return self._run(self.environment.list_openai_tools())

    def call_tool(
        self,
        tool_name: str,
        arguments: dict[str, Any] | None = None,
        timeout: float | None = None,
        on_progress: OnProgress | None = None,
    ) -> ToolResult:
        return self._run(self.environment.call_tool(tool_name, arguments, timeout, on_progress))

    def stream(
        self, tool_name: str, arguments: dict[str, Any] | None = None, timeout: float | None = None
    ) -> Iterator[Progress | ToolResult]:
        yield from _each(self.environment.stream(tool_name, arguments, timeout), self._run)

    def list_functions(self) -> dict[str, Any]:
        return self._run(self.environment.list_functions())

    def call_function(
        self, function_name: str, arguments: dict[str, Any] | None = None, timeout: float | None = None
    ) -> Any:
        return self._run(self.environment.call_function(function_name, arguments, timeout))

    def call_reward(
        self, arguments: dict[str, Any] | None = None, timeout: float | None = None, name: str | None = None
    ) -> Any:
        return self._run(self.environment.call_reward(arguments, timeout, name))

    def check_task(self, timeout: float | None = None) -> tuple[str, str] | None:
        return self._run(self.environment.check_task(timeout))

    def reset(self, seed: int | None = None, **options: Any) -> Any:
        return self._run(self.environment.reset(seed, **options))

    def check_health(
        self, arguments: dict[str, Any] | None = None, timeout: float | None = None
    ) -> dict[str, Any]:
        return self._run(self.environment.check_health(arguments, timeout))


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
