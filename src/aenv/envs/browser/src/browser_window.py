"""The window: tabs of which one is shown, and the dialogs that pages open.

A dialog holds up its page, and with it the action that has led to it. The action's answer is then the dialog; what
is left of the action is done when the dialog is answered.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable
from typing import Any, TypeVar

from browser_page import SETTLING, View, plain, playwright
from browser_site import HOME

from aenv import ToolError

T = TypeVar("T")

MOST_TABS = 8
_CALL = 25.0  # seconds: more than a page may take by its own limits; what takes longer does not come back
_MOST_TEXT = 500


class Window:
    """The tabs of a browser. `open` it before anything is done in it."""

    def __init__(self, context: Any) -> None:
        self._context = context
        self._views: dict[Any, asyncio.Future[View]] = {}
        self._view: View | None = None
        self._dialogs: list[Any] = []
        self._has_asked = asyncio.Event()
        self._held: asyncio.Future[Any] | None = None
        self._change = asyncio.Event()
        self._refused = 0
        context.on("page", self._appeared)

    async def open(self) -> None:
        """Show a page: the last tab that is left, or the site's first page."""
        if self._view and self._view.is_alive:
            return
        self._forget_closed()
        self._view = self._tabs[-1] if self._tabs else None
        if self._view is None:
            self._view = await self._added(await self._context.new_page())
            await self._view.goto(HOME)

    async def close(self) -> None:
        """Close all tabs; cookies go with them."""
        if self._held:
            self._held.cancel()
        for dialog in self._dialogs:
            with contextlib.suppress(playwright().Error):
                await dialog.dismiss()
        await self._context.close()

    async def act(self, work: Callable[[View], Awaitable[dict[str, Any]]]) -> dict[str, Any]:
        """Do something on the page, and say where one is then, or which dialog has opened."""
        self._refuse_if_asked()
        return await self._watched(asyncio.ensure_future(self._acted(work)))

    async def look(self, work: Callable[[View], Awaitable[T]]) -> T:
        """What is seen of the page."""
        self._refuse_if_asked()
        return await self._limited(work)

    async def answer(self, accept: bool, text: str | None) -> dict[str, Any]:
        """Answer the dialog that is open, and go on with what it has held up."""
        if not self._dialogs:
            raise ToolError("no dialog is open")
        dialog = self._dialogs[0]
        if text is not None and (dialog.type != "prompt" or not accept):
            raise ToolError(f"only a prompt that is accepted takes a text; this is a {dialog.type}")
        self._dialogs.pop(0)
        if not self._dialogs:
            self._has_asked.clear()
        held, self._held = self._held, None
        with contextlib.suppress(playwright().Error):  # the page has gone with it
            if accept:
                await dialog.accept(dialog.default_value if text is None else text)
            else:
                await dialog.dismiss()
        return await self._watched(asyncio.ensure_future(self._continued(held)))

    async def tabs(self) -> list[dict[str, Any]]:
        self._refuse_if_asked()
        return [
            {"tab": number, "url": view.url, "title": await view.title(), "is_shown": view is self._view}
            for number, view in enumerate(self._tabs, 1)
        ]

    async def open_tab(self, url: str) -> dict[str, Any]:
        self._refuse_if_asked()
        if len(self._tabs) >= MOST_TABS:
            raise ToolError(f"{MOST_TABS} tabs are open, which is the most; close one first")
        before = self._view
        self._view = await self._added(await self._context.new_page())
        try:
            return await self.act(lambda view: view.goto(url or HOME))
        except ToolError:
            await self._view.left()
            self._forget_closed()
            self._view = before
            raise

    async def switch(self, tab: int) -> dict[str, Any]:
        self._refuse_if_asked()
        self._view = self._numbered(tab)
        await self._view.to_front()
        return await self.act(lambda view: view.settled())

    async def close_tab(self, tab: int) -> dict[str, Any]:
        self._refuse_if_asked()
        await self._numbered(tab).left()
        self._forget_closed()
        await self.open()
        return await self.act(lambda view: view.settled())

    @property
    def _tabs(self) -> list[View]:
        made = (view.result() for view in self._views.values() if view.done() and not view.exception())
        return [view for view in made if view.is_alive]

    def _numbered(self, tab: int) -> View:
        tabs = self._tabs
        if not 1 <= tab <= len(tabs):
            raise ToolError(f"there is no tab {tab}; there are {len(tabs)}, counted from 1")
        return tabs[tab - 1]

    async def _acted(self, work: Callable[[View], Awaitable[dict[str, Any]]]) -> dict[str, Any]:
        before = self._view
        about = await self._limited(work)
        await self._arrived()
        if self._view is not before and self._view:
            about = {**about, **await self._view.settled()}
        return self._numbers(about)

    async def _limited(self, work: Callable[[View], Awaitable[T]]) -> T:
        view = self._view
        assert view
        failed = playwright().Error
        try:
            async with asyncio.timeout(_CALL):
                return await work(view)
        except (failed, TimeoutError) as error:
            if self._dialogs:  # the page does not answer because it waits for an answer itself
                raise ToolError(_words(self._dialogs[0])) from None
            if not view.is_alive and self._tabs:  # it has closed itself
                raise ToolError("the page has closed itself; the next call shows another tab") from None
            raise ToolError(await view.excuse(error)) from None

    async def _watched(self, action: asyncio.Future[dict[str, Any]]) -> dict[str, Any]:
        """What the action says, or the dialog that holds it up."""
        asked = asyncio.ensure_future(self._has_asked.wait())
        try:
            waiting: set[asyncio.Future[Any]] = {action, asked}
            await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
        except BaseException:
            action.cancel()
            raise
        finally:
            asked.cancel()
        if action.done() and not self._dialogs:
            return action.result()
        self._held = action
        dialog = self._dialogs[0]
        told = {"type": dialog.type, "message": dialog.message[:_MOST_TEXT]}
        if dialog.type == "prompt":
            told["default"] = dialog.default_value[:_MOST_TEXT]
        return {"url": self._view.url if self._view else "", "dialog": told}

    async def _continued(self, held: asyncio.Future[dict[str, Any]] | None) -> dict[str, Any]:
        """The end of an action that a dialog has held up. It may have run out of time, but the page has not."""
        if held:
            await asyncio.wait({held})
            if not held.cancelled() and not held.exception():
                return held.result()
        await self.open()
        return await self._acted(lambda view: view.settled())

    def _refuse_if_asked(self) -> None:
        if self._dialogs:
            raise ToolError(_words(self._dialogs[0]))

    def _numbers(self, about: dict[str, Any]) -> dict[str, Any]:
        """With the tab that is shown, where there are several."""
        tabs = self._tabs
        if self._refused:
            about = {**about, "refused_tabs": self._refused}
            self._refused = 0
        if len(tabs) < 2 or self._view not in tabs:
            return about
        return {**about, "tab": tabs.index(self._view) + 1, "tabs": len(tabs)}

    async def _arrived(self) -> None:
        """Wait for the pages that the action has opened: the browser knows of them before Playwright tells."""
        with contextlib.suppress(TimeoutError, playwright().Error):
            async with asyncio.timeout(SETTLING):
                while self._view and self._view.is_alive:
                    self._change.clear()
                    if await self._view.count_pages() <= len(self._tabs):
                        return
                    await self._change.wait()

    async def _appeared(self, page: Any) -> None:
        """A page that another one has opened, or we have: it is a tab, and is shown."""
        if page not in self._views and len(self._tabs) >= MOST_TABS:
            self._refused += 1
            with contextlib.suppress(playwright().Error):  # it has closed itself
                await page.close()
        else:
            with contextlib.suppress(playwright().Error):
                self._view = await self._added(page)
        self._change.set()

    def _added(self, page: Any) -> asyncio.Future[View]:
        if page not in self._views:
            page.on("dialog", self._asked)
            page.on("close", self._closed)
            self._views[page] = asyncio.ensure_future(self._viewed(page))
        return self._views[page]

    async def _viewed(self, page: Any) -> View:
        return View(page, await self._context.new_cdp_session(page))

    def _asked(self, dialog: Any) -> None:
        self._dialogs.append(dialog)
        self._has_asked.set()

    def _closed(self, page: Any) -> None:
        self._dialogs = [dialog for dialog in self._dialogs if dialog.page is not page]
        if not self._dialogs:
            self._has_asked.clear()
        self._change.set()

    def _forget_closed(self) -> None:
        self._views = {page: view for page, view in self._views.items() if not page.is_closed()}


def _words(dialog: Any) -> str:
    said = plain(dialog.message)[:_MOST_TEXT]
    return f"the page waits for an answer to its {dialog.type} {said!r}; give it with answer_dialog"
