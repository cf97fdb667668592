"""Chromium, driven through Playwright: one page, begun at the first call that needs it.

Not here: what agents may call (`browser.py`), and what is done on the page (`browser_page.py`).
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import threading
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any, TypeVar

from browser_page import View, new_context, opened, plain, playwright
from browser_site import HOST

from aenv import ToolError

logger = logging.getLogger(__name__)

T = TypeVar("T")

# Debian's `chromium` in /usr/bin is a script that reads files of /etc which an instance does not have.
_PROGRAMS = (
    *("/usr/lib/chromium/chromium", "/usr/lib/chromium-browser/chromium-browser", "/opt/google/chrome/chrome"),
    *("/usr/bin/chromium", "/usr/bin/chromium-browser", "/usr/bin/google-chrome"),
)
# An instance is the sandbox: inside it no further one can be made, and /dev/shm counts as its disk.
_OPTIONS = (
    *("--no-sandbox", "--disable-dev-shm-usage", "--disable-gpu", "--disable-crash-reporter"),
    *("--disable-breakpad", "--no-first-run", "--disable-extensions"),
)
_START = 15.0  # seconds until Chromium must have started
_CALL = 25.0  # more than a page may take by its own limits: what takes longer does not come back


class Browser:
    """The browser of an instance. Calls are made one after the other."""

    def __init__(self, port: int, variables: Mapping[str, str]) -> None:
        self._port = port
        self._variables = variables
        self._turn = asyncio.Lock()
        self._thread: _Thread | None = None
        self._program: Any = None
        self._view: View | None = None
        self._stack = AsyncExitStack()

    async def do(self, work: Callable[[View], Awaitable[T]]) -> T:
        """What `work` makes of the page. ToolError, with a reason for the agent, when it fails."""
        async with self._turn:
            self._thread = self._thread or _Thread()
            return await self._thread.run(self._do(work))

    async def forget(self) -> None:
        """Close the page; the next call begins with the site's first one, and without cookies."""
        async with self._turn:
            if self._thread:
                await self._thread.run(self._leave())

    async def close(self) -> None:
        """End Chromium. The next call would begin a new one."""
        async with self._turn:
            if self._thread:
                await self._thread.run(self._end())
                self._thread.stop()
                self._thread = None

    async def _do(self, work: Callable[[View], Awaitable[T]]) -> T:
        failed = playwright().Error
        try:
            if self._program is None or not self._program.is_connected():
                await self._end()
                self._program = await self._stack.enter_async_context(_launched(self._port, self._variables))
            if self._view is None:
                self._view = await opened(await new_context(self._program))
            elif not self._view.is_alive:
                self._view = await opened(await self._view.left())
        except failed as error:
            raise ToolError(plain(str(error))) from None
        try:
            async with asyncio.timeout(_CALL):
                return await work(self._view)
        except (failed, TimeoutError) as error:
            raise ToolError(await self._view.excuse(error)) from None

    async def _leave(self) -> None:
        view, self._view = self._view, None
        if view:
            with contextlib.suppress(playwright().Error):  # Chromium has ended
                await view.close()

    async def _end(self) -> None:
        self._view = self._program = None
        stack, self._stack = self._stack, AsyncExitStack()
        try:
            await stack.aclose()
        except Exception as error:  # boundary: Playwright, whose processes may have been killed
            logger.warning("the browser did not end in order: %s", plain(str(error)))


class _Thread:
    """A loop of its own, in a thread: it starts processes, which not every runtime's loop can, and a page that
    has much to tell does not hold up other calls.
    """

    def __init__(self) -> None:
        self._loop = asyncio.SelectorEventLoop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="browser", daemon=True)
        self._thread.start()

    async def run(self, work: Coroutine[Any, Any, T]) -> T:
        return await asyncio.wrap_future(asyncio.run_coroutine_threadsafe(work, self._loop))

    def stop(self) -> None:
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()


@asynccontextmanager
async def _launched(port: int, variables: Mapping[str, str]) -> AsyncIterator[Any]:
    """A Chromium that runs; ended at the end."""
    program = _program(variables)
    async with playwright().async_playwright() as started:
        # The site has a name, so that its addresses are the same in every instance.
        options = [*_OPTIONS, f"--host-resolver-rules=MAP {HOST}:80 127.0.0.1:{port}"]
        try:
            browser = await started.chromium.launch(
                executable_path=program, args=options, proxy=_proxy(), timeout=_START * 1000
            )
        except playwright().Error as error:
            raise ToolError(f"{program!r} does not start: {plain(str(error))}") from None
        try:
            yield browser
        finally:
            await browser.close()


def _program(variables: Mapping[str, str]) -> str:
    chosen = variables.get("BROWSER_CHROMIUM")
    for path in (chosen,) if chosen else _PROGRAMS:
        if os.access(path, os.X_OK) and Path(path).is_file():
            return path
    if chosen:
        raise ToolError(f"BROWSER_CHROMIUM is {chosen!r}, and there is no such program")
    raise ToolError("Chromium is not installed where instances run; run: apt-get install -y chromium")


def _proxy() -> dict[str, str] | None:
    """The instance's way out, where it has one; the site needs none."""
    server = os.environ.get("HTTPS_PROXY") or os.environ.get("HTTP_PROXY")
    return {"server": server, "bypass": HOST} if server else None
