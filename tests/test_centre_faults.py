"""The environment centre where something is not as it should be."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from playwright.async_api import Browser, expect

from aenv.control.gateway import live_routes
from tests.browsers import chromium, window
from tests.gateways import make_project, running_gateway
from tests.test_centre_pages import go

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]


@pytest.fixture
async def browser() -> AsyncIterator[Browser]:
    async with chromium() as started:
        yield started


async def test_a_connection_that_has_gone_silent_counts_as_lost(
    tmp_path: Path, browser: Browser, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As where the other end has gone without a word: nothing closes such a connection."""
    async with window(browser) as tab:
        await tab.page.clock.install()
        async with running_gateway(tmp_path / "home", make_project(tmp_path)) as gateway:
            monkeypatch.setattr(live_routes, "_EVERY", 3600.0)  # it says once what is used
            await go(tab, gateway, "instances")
            await tab.see("No instance is running")
            async with tab.page.expect_request("**/env-instances/live"):
                await tab.page.clock.fast_forward(21_000)
            await tab.see("Connection lost")
            await tab.page.clock.fast_forward(1_000)
            await expect(tab.page.get_by_text("Connection lost")).to_have_count(0)
            await gateway.create()
            await expect(tab.page.locator(".table-body .table-row")).to_have_count(1)
            await tab.page.goto("about:blank")
