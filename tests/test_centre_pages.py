"""The environment centre in a real browser: every page, with and without accounts, and with hostile content."""

from __future__ import annotations

import base64
import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

import pytest
from playwright.async_api import Browser, expect

from tests import composed_projects
from tests.browsers import Window, chromium, window
from tests.gateways import Gateway, make_project, running_gateway

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]

HOSTILE = '"><img src=x onerror="window.hacked=1"><script>window.hacked=1</script>'
README = f"""# Hostile

{HOSTILE}

<script>window.hacked = 1</script>
<iframe src="javascript:parent.hacked=1"></iframe>

[press](javascript:window.hacked=1) [data](data:text/html,<script>1</script>) ![picture](http://evil.example/x.png)

| a | b |
|---|---|
| {HOSTILE} | 2 |
"""
PICTURE = base64.b64encode(
    base64.b64decode(
        "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="
    )
).decode()
CODE = f'''
import os, signal
from aenv import register_tool, register_reward

@register_tool
def say(text: str, times: int = 1, loud: bool = False) -> str:
    """Say it back. {HOSTILE.replace('"', "'")}

    Args:
        text: what to say
    """
    print("said", text, flush=True)
    return (text.upper() if loud else text) * times

@register_tool
def table(rows: list[int]) -> dict:
    """Structured."""
    return {{"rows": rows, "<b>name</b>": {HOSTILE!r}}}

@register_tool
def picture() -> list:
    """A picture, and what only pretends to be one."""
    return [{{"type": "image", "data": "{PICTURE}", "mimeType": "image/png"}},
            {{"type": "image", "data": "PHNjcmlwdD4=", "mimeType": "text/html"}}]

@register_tool
def die() -> None:
    """End like a crash."""
    os.kill(os.getpid(), signal.SIGKILL)

@register_reward
def judge() -> float:
    return 0.5
'''


@pytest.fixture
async def browser() -> AsyncIterator[Browser]:
    async with chromium() as started:
        yield started


@pytest.fixture
async def gateway(tmp_path: Path) -> AsyncIterator[Gateway]:
    project = make_project(tmp_path, "hostile", code=CODE)
    (project / "README.md").write_text(README)
    config = json.loads((project / "config.json").read_text())
    config |= {"description": HOSTILE, "tags": ["evil", HOSTILE[:60]]}
    (project / "config.json").write_text(json.dumps(config))
    async with running_gateway(tmp_path / "home", project, make_project(tmp_path)) as running:
        yield running


@pytest.fixture
async def tab(browser: Browser, gateway: Gateway) -> AsyncIterator[Window]:
    async with window(browser) as opened:
        await opened.page.goto(gateway.address.url)
        yield opened


async def not_hacked(tab: Window) -> None:
    assert await tab.page.evaluate("window.hacked") is None
    assert await tab.page.locator("main iframe, main script").count() == 0


async def go(tab: Window, gateway: Gateway, place: str) -> None:
    await tab.page.goto(f"{gateway.address.url}/#/{place}")


async def test_environments_are_searched_and_shown_and_nothing_of_a_hostile_one_runs(
    tab: Window, gateway: Gateway
) -> None:
    page = tab.page
    await page.get_by_role("link", name="Environments", exact=True).click()
    ours = page.get_by_role("list", name="In the hub").locator(".card")
    await expect(ours).to_have_count(2)
    await expect(page.get_by_role("list", name="Come with aenv")).to_contain_text("mini-terminal")
    await page.get_by_label("Search environments").fill("echo")
    await expect(page.locator(".card")).to_have_count(1)
    await page.get_by_label("Search environments").fill("")
    await page.get_by_role("button", name="evil").click()
    await page.locator(".card", has_text="hostile").click()
    await tab.see("press")
    assert await page.locator('main a[href^="javascript"], main a[href^="data"], main img').count() == 0
    for name in ("Tools", "Functions", "Rewards", "Use it", "Versions", "Configuration"):
        await page.get_by_role("tab", name=name).click()
        await expect(page.get_by_role("tab", name=name)).to_have_attribute("aria-selected", "true")
    await page.get_by_role("tab", name="Use it").click()
    await tab.see('Environment("hostile@1.0.0"')
    await not_hacked(tab)


async def test_the_parts_of_a_composed_environment_and_code_with_the_arguments_that_a_tool_needs_are_shown(
    tab: Window, gateway: Gateway, tmp_path: Path
) -> None:
    uses = [{"env": "echo@^1", "as": "said"}]
    whole = composed_projects.project(tmp_path, "whole", "", uses=uses, deployConfig={"cpu": "2"})
    await composed_projects.pushed(gateway, whole)
    page = tab.page
    await go(tab, gateway, "environments/whole/1.0.0?tab=tools")
    await tab.see("2 CPU")
    await page.get_by_role("listitem").filter(has_text="said: ").get_by_role("link", name="echo@1.0.0").click()
    await tab.see("the echo environment")
    await page.get_by_role("tab", name="Use it").click()
    await tab.see('call_tool("echo", {"text": "TEXT"})')
    await page.get_by_text("LangChain, LangGraph").click()
    await tab.see("from aenv.integrations.langchain import tools")
    assert await tab.violations() == []
    for program in await page.locator('.code:has-text("import") code').all_text_contents():
        compile(program, "program", "exec")


async def test_an_instance_is_started_called_renewed_and_ended_from_the_page(
    tab: Window, gateway: Gateway
) -> None:
    page = tab.page
    await go(tab, gateway, "environments/hostile/1.0.0")
    await page.get_by_role("button", name="Start an instance").click()
    await page.get_by_role("tab", name="Try it").wait_for()
    await tab.see("success")  # its health
    await page.get_by_label("text").fill(HOSTILE)
    await page.get_by_label("times").fill("2")
    await page.get_by_role("button", name="Call", exact=True).click()
    await expect(page.locator(".called pre").first).to_have_text(HOSTILE * 2)
    await page.get_by_label("Tool").select_option("table")
    await page.get_by_label("rows").fill("[1, 2]")
    await page.get_by_role("button", name="Call", exact=True).click()
    await expect(page.locator(".called").first).to_contain_text("<b>name</b>")
    await page.get_by_label("Tool").select_option("picture")
    await page.get_by_role("button", name="Call", exact=True).click()
    await expect(page.locator(".called img")).to_have_count(1)
    await page.get_by_label("Tool").select_option("reward of the task")
    await page.get_by_role("button", name="Call", exact=True).click()
    await expect(page.locator(".called").first).to_contain_text("0.5")
    await page.get_by_label("New time to live").select_option("2h")
    await page.get_by_role("button", name="Renew").click()
    await expect(page.get_by_role("timer")).to_contain_text("1 h 59 m")
    await page.get_by_role("tab", name="Events").click()
    await tab.see("renewed")
    await page.get_by_role("tab", name="Logs").click()
    await tab.see("said")
    await page.get_by_role("tab", name="Calls").click()
    await tab.see("picture")
    await not_hacked(tab)
    await page.get_by_role("button", name="End", exact=True).click()
    await page.get_by_role("dialog").get_by_role("button", name="End").click()
    await expect(page.locator("h1 .badge")).to_have_text("Terminated")


async def test_commands_run_in_the_instance_and_its_files_are_shown(tab: Window, gateway: Gateway) -> None:
    made = await gateway.create()
    page = tab.page
    await go(tab, gateway, f"instances/{made['id']}?tab=commands")
    command = "mkdir -p notes && echo '<b>hello</b>' > notes/a.txt && cat notes/a.txt; exit 3"
    await page.get_by_role("textbox", name="Command").fill(command)
    await page.get_by_role("button", name="Run").click()
    await tab.see("<b>hello</b>")
    await tab.see("exit 3")
    await page.get_by_role("tab", name="Files").click()
    await page.get_by_role("button", name="notes/").click()
    await page.get_by_role("button", name="a.txt").click()
    await expect(page.locator("article .text")).to_contain_text("<b>hello</b>")
    async with page.expect_download() as download:
        await page.get_by_role("button", name="Download").click()
    assert (await download.value).suggested_filename == "a.txt"


async def test_the_table_of_instances_follows_what_happens(tab: Window, gateway: Gateway) -> None:
    page = tab.page
    await go(tab, gateway, "instances")
    await tab.see("No instance is running")
    made = [await gateway.create(labels={"experiment": f"e{number}"}) for number in range(3)]
    rows = page.locator(".table-body .table-row")
    await expect(rows).to_have_count(3)
    await page.get_by_label("Filter instances").fill("experiment=e1")
    await expect(rows).to_have_count(1)
    await page.get_by_label("Filter instances").fill("")
    await gateway.ask("DELETE", f"/env-instance/{made[0]['id']}")
    await expect(rows).to_have_count(2)
    await page.get_by_label("Select all rows").check()
    await page.get_by_role("button", name="End 2 instances").click()
    await page.get_by_role("dialog").get_by_role("button", name="End").click()
    await tab.see("No instance is running")
    await expect(page.get_by_role("region", name="Selection")).to_have_count(0)  # once all are answered
    assert (await gateway.ask("GET", "/env-instance/*/list"))[1]["data"] == []


async def test_a_broken_instance_says_why_it_ended(tab: Window, gateway: Gateway) -> None:
    made = await gateway.create("hostile@1.0.0")
    await go(tab, gateway, f"instances/{made['id']}")
    await tab.page.get_by_role("tab", name="Try it").wait_for()
    await gateway.ask("POST", f"/instances/{made['id']}/tools/die", {}, origin=gateway.data)
    await expect(tab.page.locator("h1 .badge")).to_have_text("Failed")
    await expect(tab.page.locator(".title .problem")).to_be_visible()


async def test_five_thousand_rows_exist_only_where_they_are_seen(tab: Window, gateway: Gateway) -> None:
    page = tab.page
    row: dict[str, Any] = {"env": "echo@1.0.0", "owner": None, "status": "Running", "labels": {}, "reason": None}
    row |= {"created_at": "2026-01-01T00:00:00.000Z", "expires_at": "2036-01-01T00:00:00.000Z"}
    rows = [{**row, "id": f"echo-{number:026d}"} for number in range(5000)]
    body = f"event: instances\ndata: {json.dumps(rows)}\n\nevent: ready\ndata: {{}}\n\n"
    # Only the first time: the stream ends, and what connects again hears nothing until the page is closed.
    served = 0

    async def answer(route: Any) -> None:
        nonlocal served
        served += 1
        if served == 1:
            await route.fulfill(body=body, content_type="text/event-stream")

    await page.goto("about:blank")
    await page.route("**/env-instances/live", answer)
    await go(tab, gateway, "instances")
    await expect(page.locator(".count")).to_have_text("5,000")
    seen = page.locator(".table-body .table-row")
    assert 0 < await seen.count() < 100
    await page.locator(".table-body").evaluate("box => box.scrollTop = box.scrollHeight")
    await expect(page.locator('[aria-rowindex="5001"]')).to_be_visible()
    assert await seen.count() < 100


async def test_five_thousand_versions_are_all_found_and_shown_as_they_are_wanted(
    tab: Window, gateway: Gateway
) -> None:
    page = tab.page
    about = {"description": "one of many", "tags": ["many"], "status": 6, "updated_at": "2026-01-01T00:00:00Z"}
    made = [{"name": f"env-{number // 2:04d}", "version": f"1.0.{number % 2}", **about} for number in range(5000)]

    async def answer(route: Any) -> None:
        asked = parse_qs(urlsplit(route.request.url).query)
        first = int(asked["offset"][0])
        rows = [] if "builtin" in asked else made[first : first + int(asked["limit"][0])]
        await route.fulfill(json={"success": True, "data": rows, "total": 0 if "builtin" in asked else 5000})

    await page.route("**/env?*", answer)
    await go(tab, gateway, "environments")
    await tab.see("2,500")
    cards = page.locator(".card")
    await expect(cards).to_have_count(120)
    await expect(cards.first).to_contain_text("1.0.1 and 1 more")
    await page.get_by_role("button", name="2,380 are left").click()
    await expect(cards).to_have_count(600)
    assert await tab.violations() == []


async def test_services_and_accounts_are_as_long_as_they_are_and_are_filtered(
    tab: Window, gateway: Gateway
) -> None:
    page = tab.page
    service = {"env": {"name": "echo", "version": "1.0.0"}, "status": "Running", "replicas": 2, "owner": "ann"}
    service |= {"available_replicas": 1, "service_url": "http://127.0.0.1:1/services/x", "instances": []}
    service |= {"reason": None, "created_at": "2026-01-01T00:00:00Z"}
    services = [{**service, "id": f"service-{number:04d}"} for number in range(5000)]
    services[7] |= {"status": "Failed", "reason": HOSTILE}
    ended: list[str] = []

    async def answer(route: Any) -> None:
        name = route.request.url.rpartition("/")[2]
        if route.request.method == "DELETE":
            ended.append(name)
        found = [one for one in services if one["id"] not in ended]
        data = found if name == "list" else next((one for one in found if one["id"] == name), None)
        await route.fulfill(json={"success": True, "data": data})

    await page.route("**/env-service/**", answer)
    await go(tab, gateway, "services")
    await expect(page.locator(".count")).to_have_text("5,000")
    rows = page.locator(".table-body .table-row")
    assert 0 < await rows.count() < 100
    await page.get_by_label("Filter services").fill("failed")
    await expect(rows).to_have_count(1)
    assert await tab.violations() == []
    await page.get_by_role("link", name="service-0007").click()
    await expect(page.locator(".problem")).to_have_text(HOSTILE)
    assert await tab.violations() == []
    await not_hacked(tab)
    await go(tab, gateway, "services?q=service-000")
    await expect(rows).to_have_count(10)
    await page.get_by_label("Select all rows").check()
    await page.get_by_role("button", name="End 10 services").click()
    await page.get_by_role("dialog").get_by_role("button", name="End").click()
    await tab.see("No service matches")
    assert sorted(ended) == [one["id"] for one in services[:10]]
    account = {"role": "user", "maxInstanceCount": None, "created_at": "2026-01-01T00:00:00Z"}
    account |= {"expires_at": None, "revoked_at": None}
    accounts = [{**account, "id": f"t{number}", "user": f"user-{number}"} for number in range(5000)]
    await page.route("**/token", lambda route: route.fulfill(json={"success": True, "data": accounts}))
    await go(tab, gateway, "admin")
    await expect(page.locator("[role=table]")).to_have_attribute("aria-rowcount", "5001")
    assert 0 < await rows.count() < 100
    await page.get_by_label("Filter accounts").fill("user-4999")
    await expect(rows).to_have_count(1)
    assert await tab.violations() == []


async def test_code_is_copied_also_where_the_browser_gives_no_clipboard(tab: Window, gateway: Gateway) -> None:
    page = tab.page
    await page.add_init_script("Object.defineProperty(navigator, 'clipboard', {value: undefined})")  # plain http
    await page.add_init_script(
        "document.addEventListener('copy', () => { window.copied = getSelection().toString(); })"
    )
    await page.reload()
    await go(tab, gateway, "environments/echo/1.0.0?tab=use")
    await page.get_by_role("button", name="Copy Python", exact=True).click()
    await page.get_by_role("button", name="Copied").wait_for()
    assert 'Environment("echo@1.0.0"' in await page.evaluate("window.copied")


async def test_a_lost_connection_is_told_and_recovers(tmp_path: Path, browser: Browser) -> None:
    project = make_project(tmp_path)
    async with window(browser) as tab:
        tab.expected.append("Failed to load resource")
        async with running_gateway(tmp_path / "home", project) as first:
            port = first.address.port
            await tab.page.goto(f"{first.address.url}/#/instances")
            await tab.see("No instance is running")
        await tab.see("Connection lost")
        await tab.page.get_by_role("link", name="Environments", exact=True).click()
        await tab.see("the server does not answer")
        async with running_gateway(tmp_path / "home", project, port=port) as again:
            await tab.see("the echo environment")  # a page that was opened meanwhile recovers as well
            await go(tab, again, "instances")
            await expect(tab.page.get_by_text("Connection lost")).to_have_count(0)
            await again.create()
            await expect(tab.page.locator(".table-body .table-row")).to_have_count(1)
            await tab.page.goto("about:blank")


async def test_with_accounts_a_token_opens_the_pages_and_signing_out_closes_them(
    tab: Window, gateway: Gateway
) -> None:
    page = tab.page
    _, made = await gateway.ask("POST", "/token", {"user": "ann", "role": "admin"})
    await page.reload()
    await page.get_by_label("Token of your account").fill("aenv-wrong")
    tab.expected.append("401")
    await page.get_by_role("button", name="Sign in").click()
    await tab.see("This token does not exist")
    await page.get_by_label("Token of your account").fill(made["data"]["token"])
    await page.get_by_role("button", name="Sign in").click()
    await tab.see("ann")
    await page.get_by_role("link", name="Admin").click()
    await page.get_by_label("User", exact=True).fill("bob")
    await page.get_by_role("button", name="Make a token").click()
    await tab.see("This token is shown once")
    await page.get_by_label("Instances that bob may have").fill("7")
    await page.keyboard.press("Tab")
    await page.get_by_label("Revoke the token of bob").click()
    await page.get_by_role("dialog").get_by_role("button", name="Revoke").click()
    await tab.see("Revoked")
    bearer = (("authorization", f"Bearer {made['data']['token']}"),)
    accounts = (await gateway.ask("GET", "/token", headers=bearer))[1]["data"]
    assert [(one["user"], one["maxInstanceCount"]) for one in accounts] == [("ann", None), ("bob", 7)]
    _, second = await gateway.ask("POST", "/token", {"user": "eve", "role": "user"}, bearer)
    await gateway.ask("POST", "/env-instance", {"envName": "echo@1.0.0"}, bearer)
    await page.get_by_role("link", name="Instances").click()
    await expect(page.locator(".table-body .table-row")).to_have_count(1)
    await page.get_by_role("button", name="Sign out").click()
    await page.get_by_label("Token of your account").wait_for()
    assert await page.evaluate("sessionStorage.length") == 0 and await tab.context.cookies() == []
    # Nothing of hers is shown to the next one, also before the server has said what is theirs.
    await page.route("**/env-instances/live", lambda route: None)
    await page.get_by_label("Token of your account").fill(second["data"]["token"])
    await page.get_by_role("button", name="Sign in").click()
    await tab.see("Looking…")
    await expect(page.get_by_role("link", name="Admin")).to_have_count(0)
    await page.goto("about:blank")


async def test_a_viewer_has_no_forms_and_every_page_without_an_error(browser: Browser, gateway: Gateway) -> None:
    _, admin = await gateway.ask("POST", "/token", {"user": "ann", "role": "admin"})
    bearer = (("authorization", f"Bearer {admin['data']['token']}"),)
    _, made = await gateway.ask("POST", "/token", {"user": "vera", "role": "viewer"}, bearer)
    asked: list[str] = []
    async with window(browser, color_scheme="dark") as tab:
        tab.page.on("request", lambda request: asked.append(request.url))
        await tab.page.goto(gateway.address.url)
        assert await tab.violations() == []
        await tab.page.get_by_label("Token of your account").fill(made["data"]["token"])
        await tab.page.keyboard.press("Enter")
        await tab.see("vera")
        for place in PLACES:
            await go(tab, gateway, place)
            await tab.page.locator("main h1").first.wait_for()
            assert await tab.violations() == [], place
            assert await tab.page.get_by_role("button", name="Start an instance").count() == 0
        await tab.page.goto("about:blank")
    assert asked and not [url for url in asked if made["data"]["token"] in url]


async def test_no_page_can_be_framed_and_another_origin_cannot_act(
    browser: Browser, gateway: Gateway, tmp_path: Path
) -> None:
    made = await gateway.create()
    other = make_project(tmp_path, "other")
    async with running_gateway(tmp_path / "other-home", other) as stranger, window(browser) as tab:
        tab.expected += ["Refused to", "blocked", "Failed to load", "frame-ancestors", "X-Frame"]
        await tab.page.goto(f"{stranger.address.url}/docs")
        target = f"{gateway.address.url}/env-instance/{made['id']}"
        acts = "([url, method]) => fetch(url, {method, mode: 'no-cors'}).then(() => 'sent', () => 'refused')"
        await tab.page.evaluate(acts, [f"{gateway.address.url}/env-instance", "POST"])
        assert await tab.page.evaluate(acts, [target, "DELETE"]) == "refused"
        page = await tab.context.new_page()
        await page.set_content(f'<iframe src="{gateway.address.url}"></iframe>')
        frame = page.frames[1]
        assert await frame.locator("#app").count() == 0
    listed = (await gateway.ask("GET", "/env-instance/*/list"))[1]["data"]
    assert [one["id"] for one in listed] == [made["id"]]


PLACES = ["", "environments", "environments/hostile/1.0.0", "environments/hostile/1.0.0?tab=tools", "instances"]
PLACES += ["services", "runs", "admin", "nowhere"]


TABS = ["try", "commands", "terminal", "files", "logs", "history", "events", "facts"]


@pytest.mark.parametrize("theme", ["light", "dark"])
async def test_every_page_can_be_used_by_keyboard_and_screen_reader(
    browser: Browser, gateway: Gateway, theme: Any
) -> None:
    made = await gateway.create("hostile@1.0.0")
    async with window(browser, color_scheme=theme) as tab:
        found = {}
        own = [f"instances/{made['id']}?tab={name}" for name in TABS]
        for place in [*PLACES, *own]:
            await go(tab, gateway, place)
            await tab.page.locator("main h1, main h2, main .empty").first.wait_for()
            await not_hacked(tab)
            if wrong := await tab.violations():
                found[place] = wrong
        assert found == {}


async def test_the_pages_fit_a_phone(browser: Browser, gateway: Gateway) -> None:
    made = await gateway.create("hostile@1.0.0")
    async with window(browser, viewport={"width": 390, "height": 780}, has_touch=True, is_mobile=True) as tab:
        for place in [*PLACES, f"instances/{made['id']}"]:
            await go(tab, gateway, place)
            await tab.page.locator("main h1, main h2, main .empty").first.wait_for()
            wide = await tab.page.evaluate("document.documentElement.scrollWidth")
            assert wide <= 390, f"{place} is {wide} pixels wide"


async def test_the_overview_tells_latencies_and_what_is_alive(tab: Window, gateway: Gateway) -> None:
    await gateway.create(labels={"experiment": "blue"})
    await tab.see("Instances alive")
    await expect(tab.page.locator(".figure .value").first).to_have_text("1")
    # It comes with the next event of the stream, which may be five seconds away.
    await expect(tab.page.locator(".figure .value").nth(1)).to_contain_text("s", timeout=30_000)
    await tab.see("blue")
    await tab.see("Where the time of a create goes")
