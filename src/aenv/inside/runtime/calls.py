"""Calling the author's code: validation, injection, threads, time limit, and what can go wrong.

Whatever the function does (raise, call sys.exit, block, return nonsense), the caller gets a typed answer and
the server goes on.
"""

from __future__ import annotations

import asyncio
import logging
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

from ...base import masks, mcp
from ...base.errors import AEnvError, ToolTimeoutError
from ..author.inject import Context, Resources
from ..author.registry import Definition
from ..author.threads import Threads

logger = logging.getLogger("aenv.inside.runtime.calls")

ReportProgress = Callable[[float, float | None, str | None], None]
DEFAULT_TIMEOUT = 3600.0


def on_loop(send: Callable[[float, float | None, str | None], None]) -> ReportProgress:
    """`send`, callable from any thread and run on the loop, in the order of the reports."""
    loop = asyncio.get_running_loop()
    home = threading.get_ident()

    def report(progress: float, total: float | None, message: str | None) -> None:
        if threading.get_ident() == home:
            send(progress, total, message)  # at once: a tool that never waits would be done before the loop turns
        else:
            loop.call_soon_threadsafe(send, progress, total, message)

    return report


def reporter(meta: Any, tell: Callable[[dict[str, Any]], None]) -> ReportProgress | None:
    """Hands the notifications of progress to `tell`; None when the `_meta` of a request did not ask for them."""
    token = meta.get("progressToken") if isinstance(meta, dict) else None
    if not isinstance(token, str | int):
        return None

    def send(progress: float, total: float | None, message: str | None) -> None:
        tell(mcp.notification("notifications/progress", mcp.progress(token, progress, total, message)))

    return on_loop(send)


def is_cancelled() -> bool:
    """Whether this task itself is to end, and not something that it waits for."""
    task = asyncio.current_task()
    return task is not None and task.cancelling() > 0


class CallFailed(AEnvError):
    """The author's function raised; the message is what it said."""

    code = "call_failed"


class Calls:
    """Runs registered functions for one instance; `async with` closes its resources."""

    def __init__(self, context: Context, *, timeout: float | None = None, threads: int = 32) -> None:
        self.context = context
        self.masks = masks.of(context.variables)
        """What hides the values of secret variables in answers, and in the history."""
        self.last_active = time.time()
        self._timeout = timeout or DEFAULT_TIMEOUT
        self._threads = Threads(threads)
        # Health checks have threads of their own: tools that use up all of theirs must not make it silent.
        self._health_threads = Threads(2)
        self._resources = Resources(self._threads.run)
        self._starting: set[asyncio.Task[None]] = set()
        self._starts: Mapping[str, Callable[..., Any]] = {}
        self.after: Callable[[], None] = _nothing
        """Called when a call has ended."""

    def begin(self, context: Context, timeout: float | None) -> None:
        """Whose calls they are, where that was not known before."""
        self.context = context
        self.masks = masks.of(context.variables)
        self.last_active = time.time()
        self._timeout = timeout or DEFAULT_TIMEOUT

    def start(self, functions: Mapping[str, Callable[..., Any]]) -> None:
        """Begin the start functions of the environment, and go on."""
        self._starts = functions
        for name, function in functions.items():
            task = asyncio.create_task(self._start(name, function))
            self._starting.add(task)
            task.add_done_callback(self._starting.discard)

    async def _start(self, name: str, function: Callable[..., Any]) -> None:
        try:
            await self._resources.make(function, self.context)
        except Exception as error:  # boundary: author's code
            logger.warning("start function %s failed: %s", name, _said(error), exc_info=True)

    @property
    def failed_starts(self) -> dict[str, str]:
        """Why start functions have failed, by their names; without those that a call has made good since."""
        errors = {name: self._resources.failure(function) for name, function in self._starts.items()}
        return {name: _said(error) for name, error in errors.items() if error}

    async def rehearse(self) -> None:
        """Have a worker thread ready."""
        await self._threads.run(_nothing)

    async def __aenter__(self) -> Calls:
        return self

    async def __aexit__(self, *exc: object) -> None:
        for task in self._starting:
            task.cancel()
        await asyncio.gather(*self._starting, return_exceptions=True)
        await self._resources.__aexit__(*exc)

    async def run(
        self,
        definition: Definition,
        arguments: Mapping[str, Any],
        *,
        report: ReportProgress | None = None,
        timeout: float | None = None,
    ) -> Any:
        """What the function returns. InvalidRequest for bad arguments, CallFailed, ToolTimeoutError."""
        self.last_active = time.time()
        return await self._limited(definition, arguments, self._threads, report, timeout or self._timeout)

    async def check_health(self, definition: Definition, arguments: Mapping[str, Any]) -> Any:
        """A health check's answer; not counted as activity."""
        return await self._limited(definition, arguments, self._health_threads, None, self._timeout)

    async def _limited(
        self,
        definition: Definition,
        arguments: Mapping[str, Any],
        threads: Threads,
        report: ReportProgress | None,
        timeout: float,
    ) -> Any:
        valid = definition.signature.validate(arguments)
        try:
            async with asyncio.timeout(timeout):
                return await self._call(definition, valid, threads, report)
        except TimeoutError:
            raise ToolTimeoutError(
                f"{definition.name!r} did not finish within {timeout:g} s", definition.name, timeout
            ) from None
        finally:
            self.after()

    async def _call(
        self, definition: Definition, valid: dict[str, Any], threads: Threads, report: ReportProgress | None
    ) -> Any:
        signature = definition.signature
        if not signature.injected:
            return await self._invoke(definition, valid, threads)
        context = replace(self.context, report=report) if report else self.context
        try:
            async with self._resources.injected(signature.injected, context) as injected:
                return await self._invoke(definition, {**valid, **injected}, threads)
        except AEnvError:
            raise
        except asyncio.CancelledError:
            if is_cancelled():
                raise
            raise CallFailed(f"what {definition.name!r} depends on was cancelled") from None
        except Exception as error:  # boundary: author's code, which makes and closes resources
            logger.debug("a resource of %s raised", definition.name, exc_info=True)
            raise CallFailed(f"cannot make what {definition.name!r} depends on: {_said(error)}") from error

    async def _invoke(self, definition: Definition, arguments: dict[str, Any], threads: Threads) -> Any:
        function = definition.function
        try:
            if definition.signature.is_async:
                return await function(**arguments)
            return await threads.run(lambda: function(**arguments))
        except asyncio.CancelledError:
            if is_cancelled():
                raise
            raise CallFailed(f"{definition.name!r} cancelled itself") from None
        except SystemExit as exit:
            raise CallFailed(f"{definition.name!r} called sys.exit({exit.code!r})") from None
        except AEnvError:
            raise
        except BaseException as error:  # boundary: author's code; KeyboardInterrupt would end the server
            logger.debug("%s raised", definition.name, exc_info=True)
            raise CallFailed(_said(error)) from error


def _nothing() -> None:
    pass


def _said(error: BaseException) -> str:
    """What an exception says, as text that can be sent."""
    text = str(error) or type(error).__name__
    return text.encode("utf-8", "backslashreplace").decode()
