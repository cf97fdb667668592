"""A real browser for tests: Debian's Chromium, driven by Playwright. Tests skip where there is none."""

from __future__ import annotations

import contextlib
import re
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from playwright.async_api import Browser, BrowserContext, Page, async_playwright

from tests import system

AXE = Path(__file__).parent.parent / "web" / "node_modules" / "axe-core" / "axe.min.js"
_FLAGS = (
    *("--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking"),
    *("--disable-component-update", "--disable-sync"),
)


@dataclass
class Window:
    """A page of the browser, with everything that went wrong in it."""

    page: Page
    context: BrowserContext
    problems: list[str] = field(default_factory=list)
    """Errors of the console and of scripts."""
    expected: list[str] = field(default_factory=list)
    """Patterns of problems that the test is about."""

    @property
    def unexpected(self) -> list[str]:
        return [one for one in self.problems if not any(re.search(known, one) for known in self.expected)]

    async def see(self, text: str) -> None:
        """Return when this text is seen."""
        await self.page.get_by_text(text).first.wait_for()

    async def violations(self) -> list[str]:
        """What axe finds wrong for those who use a keyboard or a screen reader."""
        if not AXE.exists():
            pytest.skip("no axe-core; install it with: npm ci --prefix web")
        # Not as a script element: the page's policy refuses those.
        await self.page.evaluate(AXE.read_text())
        found: Any = await self.page.evaluate("axe.run(document, {resultTypes: ['violations']})")
        return [f"{one['id']}: {one['nodes'][0]['html'][:200]}" for one in found["violations"]]


@contextlib.asynccontextmanager
async def chromium(*flags: str) -> AsyncIterator[Browser]:
    """Chromium without a window."""
    async with async_playwright() as driver:
        path = system.require("chromium", "chromium")
        browser = await driver.chromium.launch(executable_path=path, headless=True, args=[*_FLAGS, *flags])
        try:
            yield browser
        finally:
            await browser.close()


@contextlib.asynccontextmanager
async def window(browser: Browser, **settings: Any) -> AsyncIterator[Window]:
    """A page with a storage of its own. At the end nothing must have gone wrong in it that was not expected."""
    context = await browser.new_context(**{"viewport": {"width": 1280, "height": 800}, **settings})
    context.set_default_timeout(20_000)
    try:
        page = await context.new_page()
        opened = Window(page, context)
        page.on("pageerror", lambda error: opened.problems.append(f"script: {error}"))
        page.on(
            "console", lambda said: opened.problems.append(f"console: {said.text}") if said.type == "error" else 0
        )
        yield opened
        assert opened.unexpected == []
    finally:
        await context.close()
