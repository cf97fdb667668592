"""The page, as the tools act on it, through Playwright.

Not here: Chromium's process (`browser_driver.py`), and the accessibility tree as text (`browser_tree.py`).
"""

from __future__ import annotations

import asyncio
import contextlib
import importlib
import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any
from urllib.parse import urljoin, urlsplit

from browser_site import HOME
from browser_tree import Tree, tree_of

from aenv import NotJudged, ToolError

_SIZE = {"width": 1280, "height": 800}
_ACTION = 5.0  # seconds until an element must be there and free to act on
_NAVIGATION = 15.0
SETTLING = 5.0
_TRIES = 5
_ANSWER = 3.0  # seconds until a page that is not stuck has answered
_BODY = 0.3
_MOST_TEXT = 20_000  # characters
_MOST_ELEMENTS = 15_000  # of a page whose tree is made in seconds
_TALLEST = 10_000  # pixels of a picture
_REF = re.compile(r"e[0-9]{1,6}")
_MARK = "data-aenv-ref"
# What Playwright logs while it waits, and what that means.
_REASONS = {
    "intercepts pointer events": ": another element covers it",
    "element is not enabled": ": the element is disabled",
    "element is not editable": ": the element is read-only",
    "element is not visible": ": the element cannot be seen",
    "outside of the viewport": ": the element is outside of the window",
}
_NEXT_FRAME = "() => new Promise(done => requestAnimationFrame(() => setTimeout(done)))"


class View:
    """The page, as the tools act on it."""

    def __init__(self, page: Any, session: Any) -> None:
        self._page, self._session = page, session
        self._tree = Tree()
        self._told: dict[str, list[str]] = {}
        self._requests: set[Any] = set()
        self._change = asyncio.Event()
        self._has_crashed = self._is_turning = False
        self._moves = 0
        page.on("crash", self._crashed)
        page.on("request", self._begun)
        page.on("response", self._answered)
        page.on("requestfinished", self._ended)
        page.on("requestfailed", self._ended)
        page.on("download", self._refused)
        page.on("framenavigated", self._left)

    @property
    def is_alive(self) -> bool:
        return not (self._has_crashed or self._page.is_closed())

    @property
    def url(self) -> str:
        return str(self._page.url)

    async def title(self) -> str:
        return str(await self._page.title())

    async def to_front(self) -> None:
        await self._page.bring_to_front()

    async def count_pages(self) -> int:
        """How many pages the browser has, with those that have only just been opened."""
        own = (await self._session.send("Target.getTargetInfo"))["targetInfo"].get("browserContextId")
        found = (await self._session.send("Target.getTargets"))["targetInfos"]
        return sum(one["type"] == "page" and one.get("browserContextId") == own for one in found)

    async def left(self) -> None:
        """Close the page; cookies stay."""
        with contextlib.suppress(playwright().Error):  # it has crashed
            await self._page.close()

    async def excuse(self, error: Exception) -> str:
        """Why a call has failed. A page that is stuck is closed: nothing else gets a browser away from it."""
        try:
            async with asyncio.timeout(_ANSWER):
                with contextlib.suppress(playwright().Error):  # it goes elsewhere, or has crashed
                    await self._page.evaluate("1")
            if not isinstance(error, TimeoutError):
                return plain(str(error))
        except TimeoutError:
            pass
        await self.left()
        shown = "the next call shows another tab, or the site's first page"
        return f"the page did not answer any more and was closed; {shown}"

    async def goto(self, url: str) -> dict[str, Any]:
        target = _address(url, self._page.url)
        self._told.pop("downloads", None)  # of an address before, which its own answer told
        await self._go(target)
        return await self.settled()

    async def back(self) -> dict[str, Any]:
        history = await self._session.send("Page.getNavigationHistory")
        before = history["entries"][: history["currentIndex"]]
        if not before or before[-1]["url"] == "about:blank":
            raise ToolError("there is no page before this one")
        await self._page.go_back(timeout=_NAVIGATION * 1000, wait_until="commit")
        return await self.settled()

    async def click(self, ref: str, selector: str, text: str) -> dict[str, Any]:
        async with self._element(ref, selector, text) as element:
            await element.click(timeout=_ACTION * 1000)
        return await self.settled()

    async def click_at(self, x: int, y: int) -> dict[str, Any]:
        if not (0 <= x < _SIZE["width"] and 0 <= y < _SIZE["height"]):
            size = f"{_SIZE['width']} by {_SIZE['height']}"
            raise ToolError(f"({x}, {y}) is outside of the window, which is {size}; scroll to it first")
        await self._page.mouse.click(x, y)
        return await self.settled()

    async def type(self, ref: str, selector: str, text: str, submit: bool) -> dict[str, Any]:
        if not (ref or selector) and not await self._page.locator(":focus").count():
            raise ToolError("no field has the focus; click one first, or give ref or selector")
        async with self._element(ref, selector or ("" if ref else ":focus")) as element:
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
                raise ToolError("this is not a list to select from; click it, or type into it")
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
        clip = None
        if full_page:
            size = "() => [document.documentElement.scrollWidth, document.documentElement.scrollHeight]"
            width, height = await self._page.evaluate(size)
            clip = {"x": 0, "y": 0, "width": min(width, _TALLEST), "height": min(height, _TALLEST)}
        shot: bytes = await self._page.screenshot(full_page=full_page, clip=clip, timeout=_NAVIGATION * 1000)
        return shot

    async def picture(self) -> bytes:
        """As `screenshot`, in a tenth of the bytes."""
        shot: bytes = await self._page.screenshot(type="jpeg", quality=60, timeout=_ACTION * 1000)
        return shot

    async def tree(self) -> str:
        count = await self._page.evaluate("() => document.getElementsByTagName('*').length")
        if count > _MOST_ELEMENTS:
            raise ToolError(f"the page has {count} elements, too many for a tree; use current_page or screenshot")
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
        self._moves = 0
        try:
            async with asyncio.timeout(SETTLING):
                await self._frame()
                while self._requests:
                    self._change.clear()
                    await self._change.wait()
                await self._page.wait_for_load_state("load")
                await self._frame()
        except TimeoutError:  # a page may load for ever; it is not waited for a second time
            self._requests.clear()
            self._is_turning = self._moves > 2
            return {**await self._about(), "loading": True}
        self._is_turning = False
        return await self._about()

    async def _go(self, address: str) -> None:
        if self._is_turning:
            await self._hold()
        for left in reversed(range(_TRIES)):
            try:
                await self._page.goto(address, timeout=_NAVIGATION * 1000, wait_until="commit")
                return
            except playwright().Error as error:
                # The page that shows an earlier error may arrive in between.
                if not left or "interrupted by another navigation" not in str(error):
                    raise

    async def _hold(self) -> None:
        """Keep a page that goes elsewhere again and again where it is, so that it can be left."""

        async def stop(route: Any) -> None:
            request = route.request
            is_leaving = request.is_navigation_request() and request.frame == self._page.main_frame
            await (route.abort("aborted") if is_leaving else route.continue_())

        await self._page.route("**/*", stop)
        try:
            await self.settled()
        finally:
            await self._page.unroute("**/*", stop)

    async def _frame(self) -> None:
        """Wait until the page has had its turn, unless it is left meanwhile."""
        with contextlib.suppress(playwright().Error):
            await self._page.evaluate(_NEXT_FRAME)

    async def _about(self) -> dict[str, Any]:
        about: dict[str, Any] = {"url": self._page.url, "title": await self._page.title()}
        told, self._told = self._told, {}
        return {**about, **told}

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
        except playwright().Error:
            raise gone from None
        await self._call(found["object"]["objectId"], f"function() {{ this.setAttribute({_MARK!r}, '1') }}")
        try:
            element = self._page.locator(f"[{_MARK}]")
            if not await element.count():
                raise gone
            yield element
        finally:
            with contextlib.suppress(playwright().Error):  # the page has been left
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
            self._moves += 1
            self._tree = Tree()  # its nodes are of another document

    def _refused(self, download: Any) -> None:
        self._told.setdefault("downloads", []).append(f"{download.suggested_filename[:200]}, refused")


async def new_context(browser: Any) -> Any:
    """What pages share; without cookies at first."""
    return await browser.new_context(viewport=_SIZE, accept_downloads=False, locale="en-GB")


def _address(url: str, current: str) -> str:
    """What a person means who writes it into the address bar of a page."""
    wrong = ToolError(f"cannot open {url[:200]!r}; give an http or https address, or a path such as '/shop'")
    try:
        asked = urlsplit(url.strip())
        target = urljoin(current if current.startswith("http") else HOME, url.strip())
        is_right = urlsplit(target).scheme in ("http", "https") and bool(urlsplit(target).hostname)
    except ValueError:
        raise wrong from None
    if not url.strip() or not is_right or (asked.scheme and not asked.hostname):
        raise wrong
    return target


def playwright() -> Any:
    try:
        return importlib.import_module("playwright.async_api")
    except ImportError:
        why = "Playwright is not installed; the environment's requirements.txt asks for it"
        raise NotJudged("not_ready", why) from None


def plain(message: str) -> str:
    """What Playwright says, without its log of what it did, and with what can be done."""
    first = message.strip().partition("\n")[0]
    said = re.sub(r"^([A-Za-z]+\.[a-z_]+: )?(Error: )?", "", first)[:500]
    if "ERR_NAME_NOT_RESOLVED" in said or "ERR_INTERNET_DISCONNECTED" in said or "ERR_TUNNEL" in said:
        return f"{said}; this instance may not reach it: deployConfig.network says what it may"
    if "Download is starting" in said:
        return "this is a file to download, and downloads are refused"
    if late := re.match(r"Timeout ([0-9]+)000ms exceeded", said):
        why = next((plain for logged, plain in _REASONS.items() if logged in message), "")
        return f"it could not be done in {late[1]} seconds{why}"
    return said
