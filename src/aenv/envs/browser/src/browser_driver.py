"""Chromium, driven through Playwright: one page, begun at the first call that needs it.

Not here: what agents may call (`browser.py`), and the accessibility tree as text (`browser_tree.py`).
"""

from __future__ import annotations

import asyncio
import contextlib
import importlib
import logging
import os
import re
import threading
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any, TypeVar
from urllib.parse import urljoin, urlsplit

from browser_site import HOME, HOST
from browser_tree import Tree, tree_of

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
_SIZE = {"width": 1280, "height": 800}
_ACTION = 5.0  # seconds until an element must be there and free to act on
_NAVIGATION = 15.0
_SETTLING = 5.0
_BODY = 0.3
_MOST_TEXT = 20_000  # characters
_REF = re.compile(r"e[0-9]{1,6}")
_MARK = "data-aenv-ref"
# One page an instance: what would open another opens in this one.
_ONE_PAGE = """
window.open = url => { if (url) location.href = url; return null; };
document.addEventListener("click", event => {
  const link = event.target.closest && event.target.closest("[target]");
  if (link) link.target = "_self";
}, true);
"""
_NEXT_FRAME = "() => new Promise(done => requestAnimationFrame(() => setTimeout(done)))"


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
        failed = _playwright().Error
        try:
            if self._program is None or not self._program.is_connected():
                await self._end()
                self._program = await self._stack.enter_async_context(_launched(self._port, self._variables))
            if self._view is None or not self._view.is_alive:
                await self._leave()
                self._view = await _opened(self._program)
            return await work(self._view)
        except failed as error:
            raise ToolError(_plain(str(error))) from None

    async def _leave(self) -> None:
        view, self._view = self._view, None
        if view:
            with contextlib.suppress(_playwright().Error):  # Chromium has ended
                await view.close()

    async def _end(self) -> None:
        self._view = self._program = None
        stack, self._stack = self._stack, AsyncExitStack()
        try:
            await stack.aclose()
        except Exception as error:  # boundary: Playwright, whose processes may have been killed
            logger.warning("the browser did not end in order: %s", _plain(str(error)))


class View:
    """The page, as the tools act on it."""

    def __init__(self, page: Any, session: Any) -> None:
        self._page, self._session = page, session
        self._tree = Tree()
        self._dialogs: list[str] = []
        self._requests: set[Any] = set()
        self._change = asyncio.Event()
        self._has_crashed = False
        page.on("crash", self._crashed)
        page.on("request", self._begun)
        page.on("response", self._answered)
        page.on("requestfinished", self._ended)
        page.on("requestfailed", self._ended)
        page.on("dialog", self._accept)
        page.on("framenavigated", self._left)

    @property
    def is_alive(self) -> bool:
        return not (self._has_crashed or self._page.is_closed())

    async def close(self) -> None:
        await self._page.context.close()

    async def goto(self, url: str) -> dict[str, Any]:
        target = urljoin(self._page.url if self._page.url.startswith("http") else HOME, url.strip())
        if urlsplit(target).scheme not in ("http", "https") or not urlsplit(target).hostname:
            raise ToolError(f"cannot open {url!r}; give an http or https address, or a path such as '/shop'")
        await self._page.goto(target, timeout=_NAVIGATION * 1000)
        return await self.settled()

    async def back(self) -> dict[str, Any]:
        if await self._page.go_back(timeout=_NAVIGATION * 1000) is None:
            raise ToolError("there is no page before this one")
        return await self.settled()

    async def click(self, ref: str, selector: str, text: str) -> dict[str, Any]:
        async with self._element(ref, selector, text) as element:
            await element.click(timeout=_ACTION * 1000)
        return await self.settled()

    async def type(self, ref: str, selector: str, text: str, submit: bool) -> dict[str, Any]:
        async with self._element(ref, selector) as element:
            await element.fill(text, timeout=_ACTION * 1000)
            if submit:
                await element.press("Enter", timeout=_ACTION * 1000)
        return await self.settled()

    async def select(self, ref: str, selector: str, option: str) -> dict[str, Any]:
        async with self._element(ref, selector) as element:
            known = await element.evaluate(
                "one => one.options ? Array.from(one.options, o => [o.label, o.value]) : null"
            )
            if known is None:
                raise ToolError("this is no list to select from; click it, or type into it")
            if not any(option in pair for pair in known):
                raise ToolError(f"no option {option!r}; there are {', '.join(repr(pair[0]) for pair in known)}")
            by = "label" if any(option == pair[0] for pair in known) else "value"
            await element.select_option(**{by: option}, timeout=_ACTION * 1000)
        return await self.settled()

    async def press(self, key: str) -> dict[str, Any]:
        await self._page.keyboard.press(key)
        return await self.settled()

    async def scroll(self, pixels: int) -> dict[str, Any]:
        await self._page.mouse.move(_SIZE["width"] / 2, _SIZE["height"] / 2)
        await self._page.mouse.wheel(0, pixels)
        about = await self.settled()
        place = "() => [Math.round(scrollY), document.documentElement.scrollHeight, innerHeight]"
        top, height, shown = await self._page.evaluate(place)
        return {**about, "top": top, "page_height": height, "window_height": shown}

    async def screenshot(self, full_page: bool) -> bytes:
        shot: bytes = await self._page.screenshot(full_page=full_page, timeout=_NAVIGATION * 1000)
        return shot

    async def tree(self) -> str:
        found = await self._session.send("Accessibility.getFullAXTree")
        self._tree = tree_of(found["nodes"])
        title = await self._page.title()
        return f"page: {title}\nurl: {self._page.url}\n{self._tree.text}"

    async def text(self) -> dict[str, Any]:
        text = await self._page.evaluate("() => document.body ? document.body.innerText : ''")
        cut = text if len(text) <= _MOST_TEXT else f"{text[:_MOST_TEXT]}\n[the rest is left out]"
        return {**await self._about(), "text": cut}

    async def settled(self) -> dict[str, Any]:
        """Wait until what an action has begun is done: requests, a new page, a frame. Then say where one is."""
        try:
            async with asyncio.timeout(_SETTLING):
                await self._frame()
                while self._requests:
                    self._change.clear()
                    await self._change.wait()
                await self._page.wait_for_load_state("load")
                await self._frame()
        except TimeoutError:  # a page may load for ever; it is not waited for a second time
            self._requests.clear()
        return await self._about()

    async def _frame(self) -> None:
        """Wait until the page has had its turn, unless it is left meanwhile."""
        with contextlib.suppress(_playwright().Error):
            await self._page.evaluate(_NEXT_FRAME)

    async def _about(self) -> dict[str, Any]:
        about: dict[str, Any] = {"url": self._page.url, "title": await self._page.title()}
        if self._dialogs:
            about["dialogs"], self._dialogs = self._dialogs, []
        return about

    @asynccontextmanager
    async def _element(self, ref: str, selector: str, text: str = "") -> AsyncIterator[Any]:
        """The one element that is meant; ToolError when it is none, or several."""
        given = [name for name, value in (("ref", ref), ("selector", selector), ("text", text)) if value]
        if len(given) != 1:
            raise ToolError(
                f"say which element: one of ref, selector or text; given: {', '.join(given) or 'none'}"
            )
        if ref:
            async with self._marked(ref) as element:
                yield element
        elif selector:
            yield await self._only(self._page.locator(selector), f"selector {selector!r}")
        else:
            exact = self._page.get_by_text(text, exact=True)
            found = exact if await exact.count() else self._page.get_by_text(text)
            yield await self._only(found, f"text {text!r}")

    async def _only(self, found: Any, what: str) -> Any:
        seen = found.locator("visible=true")
        count = await seen.count()
        if count > 1:
            raise ToolError(f"{what} matches {count} elements; use a ref of accessibility_tree")
        if count == 0:
            hidden = await found.count()
            raise ToolError(f"{what} matches nothing that can be seen" + (f" ({hidden} hidden)" if hidden else ""))
        return seen

    @asynccontextmanager
    async def _marked(self, ref: str) -> AsyncIterator[Any]:
        """The element of a ref; for this time it has an attribute by which Playwright finds it."""
        node = self._tree.nodes.get(ref.strip("[]")) if _REF.fullmatch(ref.strip("[]")) else None
        if node is None:
            raise ToolError(
                f"no ref {ref!r} on this page; call accessibility_tree again, and take one of its refs"
            )
        gone = ToolError(f"what ref {ref!r} stood for is gone; call accessibility_tree again")
        try:
            found = await self._session.send("DOM.resolveNode", {"backendNodeId": node})
        except _playwright().Error:
            raise gone from None
        await self._call(found["object"]["objectId"], f"function() {{ this.setAttribute({_MARK!r}, '1') }}")
        try:
            element = self._page.locator(f"[{_MARK}]")
            if not await element.count():
                raise gone
            yield element
        finally:
            with contextlib.suppress(_playwright().Error):  # the page has been left
                await self._call(found["object"]["objectId"], f"function() {{ this.removeAttribute({_MARK!r}) }}")

    async def _call(self, element: str, function: str) -> None:
        await self._session.send("Runtime.callFunctionOn", {"objectId": element, "functionDeclaration": function})

    def _crashed(self, page: Any) -> None:
        self._has_crashed = True

    def _begun(self, request: Any) -> None:
        if request.resource_type not in ("eventsource", "websocket", "media"):
            self._requests.add(request)

    def _answered(self, response: Any) -> None:
        # A script that does not read the body of an answer leaves the request unfinished.
        if response.request.resource_type in ("fetch", "xhr"):
            asyncio.get_running_loop().call_later(_BODY, self._ended, response.request)

    def _ended(self, request: Any) -> None:
        self._requests.discard(request)
        self._change.set()

    def _left(self, frame: Any) -> None:
        if frame == self._page.main_frame:
            self._tree = Tree()  # its nodes are of another document

    async def _accept(self, dialog: Any) -> None:
        self._dialogs.append(f"{dialog.type}, accepted: {dialog.message[:500]}")
        with contextlib.suppress(_playwright().Error):  # the page has gone with it
            await dialog.accept()


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
    async with _playwright().async_playwright() as playwright:
        # The site has a name, so that its addresses are the same in every instance.
        options = [*_OPTIONS, f"--host-resolver-rules=MAP {HOST}:80 127.0.0.1:{port}"]
        try:
            browser = await playwright.chromium.launch(
                executable_path=program, args=options, proxy=_proxy(), timeout=_NAVIGATION * 1000
            )
        except _playwright().Error as error:
            raise ToolError(f"{program!r} does not start: {_plain(str(error))}") from None
        try:
            yield browser
        finally:
            await browser.close()


async def _opened(browser: Any) -> View:
    """The site's first page, without cookies of another."""
    context = await browser.new_context(viewport=_SIZE, accept_downloads=False, locale="en-GB")
    await context.add_init_script(_ONE_PAGE)
    page = await context.new_page()
    view = View(page, await context.new_cdp_session(page))
    await view.goto(HOME)
    return view


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


def _playwright() -> Any:
    try:
        return importlib.import_module("playwright.async_api")
    except ImportError:
        raise ToolError("Playwright is not installed; the environment's requirements.txt asks for it") from None


def _plain(message: str) -> str:
    """What Playwright says, without its log of what it did, and with what can be done."""
    first = message.strip().partition("\n")[0]
    said = re.sub(r"^([A-Za-z]+\.[a-z_]+: )?(Error: )?", "", first)
    if "ERR_NAME_NOT_RESOLVED" in said or "ERR_INTERNET_DISCONNECTED" in said or "ERR_TUNNEL" in said:
        return f"{said}; this instance may not reach it: deployConfig.network says what it may"
    if "intercepts pointer events" in message:
        return f"{said} Another element covers it."
    return said
