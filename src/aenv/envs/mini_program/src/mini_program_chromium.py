"""A page of the project in a real Chromium, where there is one. It gets the project's files and nothing else.

Each check starts Chromium and ends it: so nothing of one page is left for the next.
"""

from __future__ import annotations

import asyncio
import contextlib
import importlib
import importlib.util
import os
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Mapping
from contextlib import asynccontextmanager
from mimetypes import guess_type
from pathlib import Path
from typing import Any, TypeVar
from urllib.parse import quote, unquote, urlsplit

from aenv import ToolError

T = TypeVar("T")

HOST = "app.test"
# Debian's `chromium` in /usr/bin is a script that reads files of /etc which an instance does not have.
_PROGRAMS = (
    *("/usr/lib/chromium/chromium", "/usr/lib/chromium-browser/chromium-browser", "/opt/google/chrome/chrome"),
    *("/usr/bin/chromium", "/usr/bin/chromium-browser", "/usr/bin/google-chrome"),
)
# Where `aenv data pull browser` lays the program and its libraries, below its folder.
_PULLED = "usr/lib/chromium/chromium"
_LIBRARIES = ("usr/lib/*-linux-gnu*", "lib/*-linux-gnu*", "usr/lib/*-linux-gnu*/pulseaudio")
# An instance is the sandbox: inside it no further one can be made, and /dev/shm counts as its disk.
_OPTIONS = (
    *("--no-sandbox", "--disable-dev-shm-usage", "--disable-gpu", "--disable-crash-reporter"),
    *("--disable-breakpad", "--no-first-run", "--disable-extensions"),
)
_START = 15.0  # seconds until Chromium must have started
_LOADING = 8.0
_WHOLE = 40.0
_MOST_LINES = 200
_MOST_TEXT = 500
_WIDER = """() => {
  const width = document.documentElement.clientWidth;
  const named = (one) => one.tagName.toLowerCase() + (one.id ? "#" + one.id : "") +
    [...one.classList].slice(0, 2).map((name) => "." + name).join("");
  const wider = [...document.querySelectorAll("body *")].filter((one) => {
    const box = one.getBoundingClientRect();
    return box.width > 0 && box.right > width + 1;
  });
  const small = [...document.querySelectorAll("button, a[href], input, select, textarea")].filter((one) => {
    const box = one.getBoundingClientRect();
    return box.width > 0 && (box.height < 24 || box.width < 24) && getComputedStyle(one).display !== "inline";
  });
  return {
    page_width: document.documentElement.scrollWidth,
    too_wide: wider.slice(0, 10).map(named),
    too_small: small.slice(0, 10).map(named),
  };
}"""


def program(variables: Mapping[str, str]) -> str | None:
    """The Chromium of this instance, if there is one, and Playwright, which drives it."""
    if importlib.util.find_spec("playwright") is None:
        return None
    chosen = variables.get("BROWSER_CHROMIUM")
    pulled = f"{variables.get('BROWSER_DATA_DIR') or '/data'}/{_PULLED}"
    for path in (chosen,) if chosen else (pulled, *_PROGRAMS):
        if os.access(path, os.X_OK) and Path(path).is_file():
            return path
    return None


class PageCheck:
    """One look at a page of the project."""

    def __init__(self, chromium: str, files: Mapping[str, bytes], path: str) -> None:
        self._chromium = chromium
        self._files = files
        self._path = path
        self._lines: list[dict[str, str]] = []

    def console(self, seconds: float) -> list[dict[str, str]]:
        """What the page says while it loads, and for so many seconds after that."""

        async def listen(page: Any) -> None:
            await asyncio.sleep(seconds)

        _run(self._look([1280], lambda page, _: listen(page)))
        return self._lines

    def widths(self, widths: list[int]) -> list[dict[str, Any]]:
        """How the page fits into windows of these widths."""

        async def measure(page: Any, width: int) -> dict[str, Any]:
            found: dict[str, Any] = await page.evaluate(_WIDER)
            return {"width": width, "fits": found["page_width"] <= width, **found}

        return _run(self._look(widths, measure))

    async def _look(self, widths: list[int], work: Callable[[Any, int], Awaitable[T]]) -> list[T]:
        api: Any = importlib.import_module("playwright.async_api")
        try:
            async with asyncio.timeout(_WHOLE), self._browser(api) as browser:
                context = await browser.new_context(service_workers="block")
                context.set_default_timeout(_LOADING * 1000)
                await context.route("**/*", self._serve)
                return [await self._seen(context, width, work) for width in widths]
        except TimeoutError:
            raise ToolError(f"{self._path!r} kept Chromium busy for {_WHOLE:g} s; a script may not end") from None
        except api.Error as error:
            raise ToolError(f"Chromium: {str(error).splitlines()[0][:_MOST_TEXT]}") from None

    async def _seen(self, context: Any, width: int, work: Callable[[Any, int], Awaitable[T]]) -> T:
        page = await context.new_page()
        await page.set_viewport_size({"width": width, "height": 800})
        page.on("console", lambda said: self._say(said.type, said.text))
        page.on("pageerror", lambda error: self._say("error", str(error)))
        page.on("requestfailed", lambda asked: self._say("error", f"{asked.url}: {asked.failure}"))
        page.on("dialog", lambda dialog: asyncio.ensure_future(dialog.dismiss()))
        await page.goto(f"http://{HOST}/{quote(self._path)}", wait_until="load")
        seen = await work(page, width)
        await page.close()
        return seen

    async def _serve(self, route: Any) -> None:
        parts = urlsplit(route.request.url)
        path = unquote(parts.path).lstrip("/") or "index.html"
        content = self._files.get(path) if parts.hostname == HOST else None
        if parts.hostname != HOST:
            await route.abort("blockedbyclient")
        elif content is not None:
            await route.fulfill(body=content, content_type=guess_type(path)[0] or "application/octet-stream")
        elif path == "favicon.ico":  # browsers ask for it by themselves
            await route.fulfill(status=204)
        else:
            await route.fulfill(status=404, body="there is no such file in the project")

    def _say(self, level: str, text: str) -> None:
        if len(self._lines) < _MOST_LINES:
            self._lines.append({"level": level, "text": text[:_MOST_TEXT]})

    @asynccontextmanager
    async def _browser(self, api: Any) -> AsyncIterator[Any]:
        async with api.async_playwright() as started:
            browser = await started.chromium.launch(
                executable_path=self._chromium,
                args=[*_OPTIONS],
                env=_own_variables(self._chromium),
                timeout=_START * 1000,
            )
            try:
                yield browser
            finally:
                with contextlib.suppress(api.Error):  # it has crashed
                    await browser.close()


def _run(work: Coroutine[Any, Any, T]) -> T:
    """Run it on a loop of its own: not every runtime's loop can start processes."""
    with asyncio.Runner(loop_factory=asyncio.SelectorEventLoop) as runner:
        return runner.run(work)


def _own_variables(chromium: str) -> dict[str, str] | None:
    """For a Chromium that was pulled: where its libraries and fonts are. None for one that is installed."""
    top = chromium.removesuffix(f"/{_PULLED}")
    if top == chromium:
        return None
    folders = [path for pattern in _LIBRARIES for path in sorted(Path(top).glob(pattern))]
    added = {"LD_LIBRARY_PATH": ":".join(map(str, folders)), "FONTCONFIG_FILE": f"{top}/fonts.conf"}
    return {**os.environ, **added}
