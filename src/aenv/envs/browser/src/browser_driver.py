"""Chromium, driven through Playwright: a window, begun at the first call that needs it.

Not here: what agents may call (`browser.py`), and what is done in the window (`browser_window.py`).
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import threading
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from importlib.util import find_spec
from pathlib import Path
from typing import Any, TypeVar

from browser_page import View, new_context, plain, playwright
from browser_site import HOST
from browser_window import Window

from aenv import NotJudged, ToolError

logger = logging.getLogger(__name__)

T = TypeVar("T")

# Debian's `chromium` in /usr/bin is a script that reads files of /etc which an instance does not have.
_PROGRAMS = (
    *("/usr/lib/chromium/chromium", "/usr/lib/chromium-browser/chromium-browser", "/opt/google/chrome/chrome"),
    *("/usr/bin/chromium", "/usr/bin/chromium-browser", "/usr/bin/google-chrome"),
)
# Where `aenv data pull browser` lays the program and its libraries, below its folder. libpulse names the last of
# them by the path that it has where it is installed.
_PULLED = "usr/lib/chromium/chromium"
_LIBRARIES = ("usr/lib/*-linux-gnu*", "lib/*-linux-gnu*", "usr/lib/*-linux-gnu*/pulseaudio")
# An instance is the sandbox: inside it no further one can be made, and /dev/shm counts as its disk.
_OPTIONS = (
    *("--no-sandbox", "--disable-dev-shm-usage", "--disable-gpu", "--disable-crash-reporter"),
    *("--disable-breakpad", "--no-first-run", "--disable-extensions"),
)
_START = 15.0  # seconds until Chromium must have started


class Browser:
    """The browser of an instance. Calls are made one after the other."""

    def __init__(self, port: int, variables: Mapping[str, str]) -> None:
        self._port = port
        self._variables = variables
        self._turn = asyncio.Lock()
        self._thread: _Thread | None = None
        self._program: Any = None
        self._window: Window | None = None
        self._unready: NotJudged | None = None
        self._stack = AsyncExitStack()

    async def act(self, work: Callable[[View], Awaitable[dict[str, Any]]]) -> dict[str, Any]:
        """Do something on the page. ToolError, with a reason for the agent, when it fails."""
        return await self.do(lambda window: window.act(work))

    async def look(self, work: Callable[[View], Awaitable[T]]) -> T:
        """What is seen of the page. ToolError as above."""
        return await self.do(lambda window: window.look(work))

    @property
    def is_busy(self) -> bool:
        return self._turn.locked()

    async def glance(self) -> bytes | None:
        """What the window shows, for a person; None where there is no window, or a call is under way."""
        if self._window is None or self.is_busy:
            return None
        return await self.look(lambda view: view.picture())

    async def do(self, work: Callable[[Window], Awaitable[T]]) -> T:
        """What `work` makes of the window. ToolError as above."""
        async with self._turn:
            self._thread = self._thread or _Thread()
            return await self._thread.run(self._do(work))

    def check(self) -> None:
        """NotJudged, with what to do, where no page can be shown; a browser that has not begun is looked for."""
        if self._unready:
            raise self._unready
        if self._program is None:
            if find_spec("playwright") is None:  # not imported for this: that takes longer than an empty episode
                playwright()
            _program(self._variables)

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

    async def _do(self, work: Callable[[Window], Awaitable[T]]) -> T:
        failed = playwright().Error
        try:
            if self._program is None or not self._program.is_connected():
                await self._end()
                await self._begin()
            self._window = self._window or Window(await new_context(self._program))
            await self._window.open()
            return await work(self._window)
        except failed as error:
            raise ToolError(plain(str(error))) from None

    async def _begin(self) -> None:
        self._unready = None
        try:
            self._program = await self._stack.enter_async_context(_launched(self._port, self._variables))
        except NotJudged as error:
            self._unready = error
            raise

    async def _leave(self) -> None:
        window, self._window = self._window, None
        if window:
            with contextlib.suppress(playwright().Error):  # Chromium has ended
                await window.close()

    async def _end(self) -> None:
        self._window = self._program = None
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
    own = _own_variables(program)
    async with playwright().async_playwright() as started:
        # The site has a name, so that its addresses are the same in every instance.
        options = [*_OPTIONS, f"--host-resolver-rules=MAP {HOST}:80 127.0.0.1:{port}"]
        try:
            browser = await started.chromium.launch(
                executable_path=program, args=options, env=own, proxy=_proxy(), timeout=_START * 1000
            )
        except playwright().Error as error:
            raise NotJudged("not_ready", f"{program!r} does not start: {plain(str(error))}") from None
        try:
            yield browser
        finally:
            await browser.close()


def _program(variables: Mapping[str, str]) -> str:
    chosen = variables.get("BROWSER_CHROMIUM")
    pulled = f"{variables.get('BROWSER_DATA_DIR') or '/data'}/{_PULLED}"
    for path in (chosen,) if chosen else (pulled, *_PROGRAMS):
        if os.access(path, os.X_OK) and Path(path).is_file():
            return path
    if chosen:
        raise NotJudged("not_ready", f"BROWSER_CHROMIUM is {chosen!r}, and there is no such program")
    raise NotJudged("not_ready", "no Chromium; run 'aenv data pull browser'")


def _own_variables(program: str) -> dict[str, str] | None:
    """For a Chromium that was pulled: where its libraries and fonts are. None for one that is installed."""
    top = program.removesuffix(f"/{_PULLED}")
    if top == program:
        return None
    folders = [path for pattern in _LIBRARIES for path in sorted(Path(top).glob(pattern))]
    added = {"LD_LIBRARY_PATH": ":".join(map(str, folders)), "FONTCONFIG_FILE": f"{top}/fonts.conf"}
    return {**os.environ, **added}


def _proxy() -> dict[str, str] | None:
    """The instance's way out, where it has one; the site needs none."""
    server = os.environ.get("HTTPS_PROXY") or os.environ.get("HTTP_PROXY")
    return {"server": server, "bypass": HOST} if server else None
