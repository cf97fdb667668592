"""`SyncEnvironment`: the same methods, blocking. Works in scripts, threads, and notebooks with a running loop.

Async is written once; this facade drives it on one background loop per process.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Coroutine, Iterator
from typing import Any, TypeVar

from .environment import Environment
from .result import Progress, ToolResult
from .session import OnProgress

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
        return _background.run(self.environment.initialize())

    def release(self) -> None:
        _background.run(self.environment.release())

    def destroy(self) -> None:
        self.release()

    def wait_for_ready(self, timeout: float = 300.0) -> None:
        _background.run(self.environment.wait_for_ready(timeout))

    def get_env_info(self) -> dict[str, Any]:
        return _background.run(self.environment.get_env_info())

    def renew(self, ttl: str) -> str:
        return _background.run(self.environment.renew(ttl))

    def presign_url(self, port: int, expiration_time_in_minutes: float = 5) -> str:
        return _background.run(self.environment.presign_url(port, expiration_time_in_minutes))

    def list_tools(self) -> list[dict[str, Any]]:
        return _background.run(self.environment.list_tools())

    def openai_tools(self) -> list[dict[str, Any]]:
        return _background.run(self.environment.openai_tools())

    def anthropic_tools(self) -> list[dict[str, Any]]:
        return _background.run(self.environment.anthropic_tools())

    def list_anthropic_tools(self) -> list[dict[str, Any]]:
        return self.anthropic_tools()

    def list_openai_tools(self) -> list[Any]:
        return _background.run(self.environment.list_openai_tools())

    def call_tool(
        self,
        tool_name: str,
        arguments: dict[str, Any] | None = None,
        timeout: float | None = None,
        on_progress: OnProgress | None = None,
    ) -> ToolResult:
        return _background.run(self.environment.call_tool(tool_name, arguments, timeout, on_progress))

    def stream(
        self, tool_name: str, arguments: dict[str, Any] | None = None, timeout: float | None = None
    ) -> Iterator[Progress | ToolResult]:
        items = self.environment.stream(tool_name, arguments, timeout)
        try:
            while (item := _background.run(_next(items))) is not None:
                yield item
        finally:
            _background.run(items.aclose())  # type: ignore[attr-defined]

    def list_functions(self) -> dict[str, Any]:
        return _background.run(self.environment.list_functions())

    def call_function(
        self, function_name: str, arguments: dict[str, Any] | None = None, timeout: float | None = None
    ) -> Any:
        return _background.run(self.environment.call_function(function_name, arguments, timeout))

    def call_reward(
        self, arguments: dict[str, Any] | None = None, timeout: float | None = None, name: str | None = None
    ) -> Any:
        return _background.run(self.environment.call_reward(arguments, timeout, name))

    def reset(self, seed: int | None = None, **options: Any) -> Any:
        return _background.run(self.environment.reset(seed, **options))

    def check_health(
        self, arguments: dict[str, Any] | None = None, timeout: float | None = None
    ) -> dict[str, Any]:
        return _background.run(self.environment.check_health(arguments, timeout))


async def _next(items: Any) -> Any:
    return await anext(items, None)
