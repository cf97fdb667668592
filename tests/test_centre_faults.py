"""The environment centre where something is not as it should be: refusals, silence, and data of another form."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from playwright.async_api import Browser, expect

from aenv.control.gateway import live_routes
from tests.browsers import Window, chromium, window
from tests.gateways import Gateway, make_project, running_gateway
from tests.test_accounts import make_accounts
from tests.test_centre_pages import HOSTILE, go, not_hacked

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]

NAMED = ["Cross-Origin-Opener-Policy", "403"]  # what Chromium says of a page by plain HTTP, and of a refusal
REFUSING = """
from aenv import ToolError, register_function

@register_function
def sealed() -> str:
    raise ToolError("not in this instance")
"""
BAD_SCHEMAS: list[Any] = [
    "text",
    {"properties": {"a": None, "b": 5, "c": []}},
    {"properties": {"a": {"anyOf": "x"}, "b": {"anyOf": [None]}, "c": {"enum": "x"}}, "required": "abc"},
]


@pytest.fixture
async def browser() -> AsyncIterator[Browser]:
    async with chromium() as started:
        yield started


@pytest.fixture
async def gateway(tmp_path: Path) -> AsyncIterator[Gateway]:
    async with running_gateway(tmp_path / "home", make_project(tmp_path)) as running:
        yield running


@pytest.fixture
async def tab(browser: Browser, gateway: Gateway) -> AsyncIterator[Window]:
    async with window(browser) as opened:
        await opened.page.goto(gateway.address.url)
        yield opened


async def test_what_could_not_be_ended_stays_selected_and_the_page_says_why(tab: Window, gateway: Gateway) -> None:
    page = tab.page
    kept, gone, other = [(await gateway.create())["id"] for _ in range(3)]
    refusals = {kept: (503, "the store does not answer"), gone: (404, "instance not found")}
    tab.expected += ["503", "404"]

    async def answer(route: Any) -> None:
        refused = refusals.get(route.request.url.rpartition("/")[2])
        if refused is None or route.request.method != "DELETE":
            await route.continue_()
        else:
            await route.fulfill(status=refused[0], json={"success": False, "message": refused[1], "data": None})

    await page.route("**/env-instance/*", answer)
    await go(tab, gateway, "instances")
    await expect(page.locator(".table-body .table-row")).to_have_count(3)
    await page.get_by_label("Select all rows").check()
    await page.get_by_role("button", name="End 3 instances").click()
    await page.get_by_role("dialog").get_by_role("button", name="End").click()
    await expect(page.get_by_role("alert")).to_have_text("the store does not answer")
    await expect(page.get_by_label(f"Select {kept}")).to_be_checked()
    await expect(page.get_by_label(f"Select {gone}")).not_to_be_checked()
    await expect(page.get_by_label(f"Select {other}")).to_have_count(0)
    await page.unroute("**/env-instance/*")
    await page.get_by_role("button", name="End 1 instance").click()
    await page.get_by_role("dialog").get_by_role("button", name="End").click()
    await expect(page.get_by_role("region", name="Selection")).to_have_count(0)


async def test_an_instance_that_describes_and_answers_what_it_should_not_can_be_looked_at_and_ended(
    tab: Window, gateway: Gateway
) -> None:
    page = tab.page
    made = await gateway.create()
    tool: dict[str, Any] = {"name": HOSTILE, "description": HOSTILE}
    tools = [{**tool, "inputSchema": one, "name": f"{HOSTILE}{at}"} for at, one in enumerate(BAD_SCHEMAS)]
    schema = {"properties": {"constructor": {"type": "string"}, HOSTILE: {"type": "string"}}}
    tools += [{**tool, "inputSchema": schema, "name": "odd"}]
    answers: list[Any] = ["text", {"content": "text"}, {"content": [None, {"type": "image", "data": "%"}]}, 5]
    answered: list[Any] = []

    async def describe(route: Any) -> None:
        said = await (await route.fetch()).json()
        said["data"] |= {"tools": tools, "rewards": tools, "functions": [{"name": "f", "parameters": {"x": None}}]}
        await route.fulfill(json=said)

    async def answer(route: Any) -> None:
        answered.append(route.request.post_data_json)
        await route.fulfill(json={"success": True, "data": answers[len(answered) - 1]})

    for where in (f"**/env-instance/{made['id']}", "**/env/echo/1.0.0"):
        await page.route(where, describe)
    await page.route(f"**/instances/{made['id']}/tools/*", answer)
    for shown in ("tools", "functions", "rewards", "use"):
        await go(tab, gateway, f"environments/echo/1.0.0?tab={shown}")
        await page.locator("[role=tabpanel] :is(h2, details)").first.wait_for()
        assert await page.get_by_role("alert").count() == 0
    await go(tab, gateway, f"instances/{made['id']}")
    call = page.get_by_role("button", name="Call", exact=True)
    for at in range(len(BAD_SCHEMAS)):
        await page.get_by_label("Tool").select_option(tools[at]["name"])
        if isinstance(BAD_SCHEMAS[at], dict):
            await page.get_by_label("Arguments as JSON").fill('{"a": 1}')
        await call.click()
        await expect(page.locator(".called")).to_have_count(at + 1)
    await page.get_by_label("Tool").select_option("odd")
    await expect(page.get_by_label("constructor")).to_have_value("")
    await call.click()
    await expect(page.locator(".called")).to_have_count(len(answers))
    assert answered == [{}, {"a": 1}, {"a": 1}, {}]
    assert await page.get_by_role("alert").count() == 0
    await not_hacked(tab)
    await expect(page.get_by_role("button", name="End", exact=True)).to_be_visible()


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


async def test_a_gateway_that_is_opened_by_a_name_says_how_its_pages_may_act(tmp_path: Path) -> None:
    project = make_project(tmp_path)
    async with chromium("--host-resolver-rules=MAP gateway 127.0.0.1") as named:
        settings: dict[str, Any] = {"host": "0.0.0.0", "insecure": True}
        async with running_gateway(tmp_path / "home", project, **settings) as gateway, window(named) as tab:
            port = gateway.control.port
            tab.expected += NAMED
            await tab.page.goto(f"http://gateway:{port}/")
            await tab.see(f"--allow-origin http://gateway:{port}")
            await tab.see("Instances alive")  # looking is not refused
            await go(tab, gateway, "environments")
            assert await tab.violations() == []
            await tab.page.goto("about:blank")
        settings |= {"allow_origins": frozenset([f"http://gateway:{port}"]), "port": port}
        async with running_gateway(tmp_path / "home", project, **settings), window(named) as tab:
            tab.expected += NAMED[:1]
            await tab.page.goto(f"http://gateway:{port}/#/environments/echo/1.0.0")
            await tab.page.get_by_role("button", name="Start an instance").click()
            await tab.page.get_by_role("tab", name="Try it").wait_for()
            await expect(tab.page.get_by_role("alert")).to_have_count(0)
            await tab.page.goto("about:blank")


async def test_with_accounts_the_sign_in_says_it_too(tmp_path: Path) -> None:
    async with chromium("--host-resolver-rules=MAP gateway 127.0.0.1") as named, window(named) as tab:
        await make_accounts(tmp_path / "home")
        async with running_gateway(tmp_path / "home", host="0.0.0.0") as gateway:
            tab.expected += NAMED
            await tab.page.goto(f"http://gateway:{gateway.control.port}/")
            await tab.see(f"--allow-origin http://gateway:{gateway.control.port}")
            await expect(tab.page.get_by_label("Token of your account")).to_be_visible()
            assert await tab.violations() == []


async def test_the_overview_counts_what_an_environment_refuses_and_says_so(
    tmp_path: Path, browser: Browser
) -> None:
    project = make_project(tmp_path, "refusing", code=REFUSING)
    async with running_gateway(tmp_path / "home", project) as gateway, window(browser) as tab:
        made = await gateway.create("refusing@1.0.0")
        path = f"/instances/{made['id']}/functions/sealed"
        assert (await gateway.ask("POST", path, {}, origin=gateway.data))[0] == 500
        await tab.page.goto(gateway.address.url)
        figure = tab.page.locator(".figure", has_text="Answers of 500 and above")
        await expect(figure.locator(".value")).to_have_text("1", timeout=20_000)
        await expect(figure).to_contain_text("environments whose code raised or refused")
        await tab.page.goto("about:blank")


async def test_runs_of_a_gateway_say_that_a_program_on_your_own_machine_shows_them(
    tab: Window, gateway: Gateway
) -> None:
    await go(tab, gateway, "runs")
    await tab.see("a gateway does not get them")
