"""browser: a real Chromium in an instance, a site whose state gives the reward, and tasks that can be done."""

from __future__ import annotations

import base64
import contextlib
import json
import struct
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from http.client import HTTPConnection, HTTPResponse
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

import psutil
import pytest
from playwright.async_api import expect

from aenv import Context, NotJudged, ToolError
from aenv.inside.zygote.purity import is_same_for_all
from tests.browsers import chromium, window
from tests.envs.shells import ENVIRONMENTS, module, native_gateway, post, result_of, said
from tests.gateways import Gateway
from tests.system import require

browser = module("browser", "browser")
site = module("browser", "browser_site")
tasks = module("browser", "browser_tasks")
tree = module("browser", "browser_tree")
driver = module("browser", "browser_driver")

PAGES = ("", "contact", "account", "inbox", "shop", "shop/cart", "shop/item/3", "trains", "trains/T101", "rooms")
MORE_PAGES = (
    "rooms/review",
    "directory",
    "directory?q=a&page=1",
    "directory?page=99",
    "board",
    "board/items?from=8",
    "permits",
    "permits/fees",
    "papers",
)


class Visitor:
    """Asks the site as a browser does."""

    def __init__(self, server: Any) -> None:
        self._server = server

    def get(self, path: str) -> tuple[int, str]:
        response, text = self._ask("GET", f"/{path}")
        return response.status, text

    def post(self, path: str, cookie: str = "", **fields: str) -> tuple[HTTPResponse, str]:
        headers = {"Content-Type": "application/x-www-form-urlencoded", "Cookie": cookie}
        return self._ask("POST", f"/{path}", urlencode(fields), headers)

    def _ask(self, method: str, target: str, body: str = "", headers: Any = None) -> tuple[HTTPResponse, str]:
        connection = HTTPConnection("127.0.0.1", self._server.port)
        try:
            connection.request(method, target, body or None, headers or {})
            response = connection.getresponse()
            return response, response.read().decode()
        finally:
            connection.close()


@pytest.fixture
def contact() -> Iterator[tuple[Any, Visitor]]:
    episode = tasks.Episode("contact-form", 0)
    with site.served(episode.site) as server:
        yield episode, Visitor(server)


def right_message(episode: Any) -> dict[str, str]:
    wanted = episode.assignment.goal[0]
    typed = {name: wanted[name] for name in ("name", "email", "topic", "text")}
    return {**typed, "copy": "1"} if wanted["copy"] else typed


def test_loading_the_environment_does_the_same_for_all_instances() -> None:
    assert is_same_for_all(str(ENVIRONMENTS / "browser" / "src"))


def test_every_task_can_be_chosen_by_its_variables() -> None:
    listed = browser.list_tasks()
    assert listed == browser.list_tasks("test")
    assert len(listed) == len({task["id"] for task in listed}) == 10
    everything = [*listed, *browser.list_tasks("train")]
    assert len({task["id"] for task in everything}) == 50
    for task in everything:
        episode = tasks.Episode(task["variables"]["BROWSER_TASK"], int(task["variables"]["BROWSER_SEED"]))
        assert episode.about()["id"] == task["id"]


def test_a_bad_split_task_or_seed_is_named_with_what_there_is() -> None:
    with pytest.raises(ToolError, match=r"no split 'dev'; use one of test, train"):
        browser.list_tasks("dev")
    with pytest.raises(ToolError, match=r"BROWSER_TASK is 'dance'.*contact-form"):
        tasks.Episode("dance", 0)
    with pytest.raises(ToolError, match=r"BROWSER_SEED is '-1'; give a whole number"):
        browser._seed({"BROWSER_SEED": "-1"})


def test_without_chromium_the_command_that_fetches_it_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(driver, "_PROGRAMS", ("/no/such/chromium",))  # a host without one
    with pytest.raises(NotJudged, match=r"^no Chromium; run 'aenv data pull browser'$") as raised:
        driver._program({})
    assert raised.value.outcome == "not_ready"
    with pytest.raises(NotJudged, match=r"BROWSER_CHROMIUM is '/bin', and there is no such program"):
        driver._program({"BROWSER_CHROMIUM": "/bin"})


def test_a_chromium_that_was_pulled_is_found_with_its_libraries(tmp_path: Path) -> None:
    program = tmp_path / "usr" / "lib" / "chromium" / "chromium"
    libraries = [tmp_path / "usr/lib/x86_64-linux-gnu", tmp_path / "usr/lib/x86_64-linux-gnu/pulseaudio"]
    for folder in (program.parent, *libraries):
        folder.mkdir(parents=True)
    program.write_text("#!/bin/sh")
    program.chmod(0o755)
    assert driver._program({"BROWSER_DATA_DIR": str(tmp_path)}) == str(program)
    own = driver._own_variables(str(program))
    assert own["LD_LIBRARY_PATH"] == ":".join(map(str, libraries))
    assert own["FONTCONFIG_FILE"] == str(tmp_path / "fonts.conf")
    assert driver._own_variables("/usr/bin/chromium") is None


@pytest.mark.parametrize("task", list(tasks.TASKS))
def test_looking_at_pages_changes_nothing_and_earns_nothing(task: str) -> None:
    episode = tasks.Episode(task, 7)
    before = json.dumps(episode.site.state())
    with site.served(episode.site) as server:
        visitor = Visitor(server)
        for page in PAGES + MORE_PAGES:
            assert visitor.get(page)[0] in (200, 303), page
        for page in ("no", "contact/no", "shop/item/99", "shop/item/-1", "board/../etc", "trains/T1"):
            assert visitor.get(page)[0] == 404, page
    assert json.dumps(episode.site.state()) == before
    assert episode.verdict() == {"reward": 0.0, "task_done": False, "nothing_else_changed": True}


def test_a_seed_makes_the_content() -> None:
    told = [tasks.Episode("directory-search", seed).about()["instruction"] for seed in (5, 5, 6)]
    assert told[0] == told[1] != told[2]


def test_the_reward_is_for_exactly_what_was_asked(contact: tuple[Any, Visitor]) -> None:
    episode, visitor = contact
    sent = right_message(episode)
    assert visitor.post("contact", **{**sent, "email": ""})[0].status == 400
    assert episode.verdict()["reward"] == 0.0
    assert visitor.post("contact", **sent)[0].status == 303
    assert episode.verdict()["reward"] == 1.0
    visitor.post("contact", **sent)
    assert episode.verdict() == {"reward": 0.0, "task_done": False, "nothing_else_changed": True}


def test_what_is_done_elsewhere_costs_the_reward(contact: tuple[Any, Visitor]) -> None:
    episode, visitor = contact
    visitor.post("contact", **right_message(episode))
    visitor.post("inbox/delete", id="m1")
    assert episode.verdict() == {"reward": 0.0, "task_done": True, "nothing_else_changed": False}


def test_an_account_is_changed_only_by_who_has_signed_in() -> None:
    episode = tasks.Episode("account-login", 0)
    with site.served(episode.site) as server:
        visitor = Visitor(server)
        wanted = {"phone": episode.assignment.goal["phone"]}
        for cookie in ("", "session=", "session=0123"):
            assert visitor.post("account/save", cookie, **wanted)[0].status == 403
        assert visitor.post("account/login", user="root", password="' or 1=1")[0].status == 400
    assert episode.verdict()["task_done"] is False


def test_what_a_visitor_writes_is_shown_as_text(contact: tuple[Any, Visitor]) -> None:
    _, visitor = contact
    shown = visitor.get("directory?" + urlencode({"q": '"><script>alert(1)</script>'}))[1]
    assert "<script>alert" not in shown
    assert "&lt;script&gt;" in shown


def test_a_form_that_is_wrong_is_shown_again_with_what_was_written(contact: tuple[Any, Visitor]) -> None:
    episode, visitor = contact
    response, shown = visitor.post("contact", **{**right_message(episode), "email": ""})
    wanted = episode.assignment.goal[0]
    assert response.status == 400
    assert "Please fill in: E-mail" in shown
    assert f'value="{wanted["name"]}"' in shown
    assert f"<option selected>{wanted['topic']}</option>" in shown
    for path in ("trains/T101", "directory/answer", "rooms/when", "shop/add/3"):
        response, shown = visitor.post(path)
        assert (response.status, 'role="alert"' in shown, "<form" in shown) == (400, True, True), path
    assert visitor.post("rooms/when", date="2031-02-30", people="4")[0].status == 400


def test_numbers_that_no_page_asks_for_are_refused_as_others_are(contact: tuple[Any, Visitor]) -> None:
    _, visitor = contact
    long = "9" * 5000
    assert visitor.post("shop/add/3", count=long)[0].status == 400
    assert visitor.get(f"shop/item/{long}")[0] == 404
    assert visitor.get(f"directory?page={long}")[0] == 200
    assert visitor.get(f"board/items?from={long}")[0] == 200


def test_every_page_has_the_site_s_frame(contact: tuple[Any, Visitor]) -> None:
    _, visitor = contact
    for page in ("", "inbox", "no-such-page"):
        assert 'class="brand"' in visitor.get(page)[1]


def test_a_form_that_is_too_large_is_refused(contact: tuple[Any, Visitor]) -> None:
    _, visitor = contact
    assert visitor.post("contact", text="x" * (65 << 10))[0].status == 413


async def test_gold_and_cheats_are_for_validation_only() -> None:
    with pytest.raises(
        ToolError, match=r"play_gold is for validation; create the instance with AENV_VALIDATION=1"
    ):
        await browser.play_gold(context=Context(), world=None)
    with pytest.raises(ToolError, match=r"list_cheats is for validation"):
        browser.list_cheats(Context(variables={"AENV_VALIDATION": "0"}))


def test_the_tree_names_things_once_and_gives_refs_to_what_can_be_acted_on() -> None:
    def node(id: str, role: str, name: str = "", children: tuple[str, ...] = (), **more: Any) -> dict[str, Any]:
        said = {"nodeId": id, "role": {"value": role}, "name": {"value": name}, "childIds": list(children)}
        return {**said, "backendDOMNodeId": int(id) * 10, **more}

    ticked = [{"name": "checked", "value": {"value": "true"}}, {"name": "disabled", "value": {"value": False}}]
    made = tree.tree_of(
        [
            node("1", "RootWebArea", "Title", ("2", "4", "5", "8", "12")),
            node("2", "button", "Send", ("3",)),
            node("3", "StaticText", "Send"),
            node("4", "checkbox", "Copy  me", properties=ticked),
            node("5", "generic", "", ("6",)),
            node("6", "StaticText", "A remark"),
            node("7", "textbox", "Name", ("10",), value={"value": "Ada"}, ignored=False),
            node("8", "LabelText", "", ("9", "7")),
            node("9", "StaticText", "Name"),
            node("10", "generic", "", ("11",)),
            node("11", "StaticText", "Ada"),
            node("12", "Date", "Day"),
        ]
    )
    assert made.text.splitlines() == [
        '- button "Send" [e1]',
        '- checkbox "Copy me" [e2] checked',
        "- A remark",
        '- textbox "Name" [e3] value="Ada"',
        '- Date "Day" [e4]',
    ]
    assert made.nodes == {"e1": 20, "e2": 40, "e3": 70, "e4": 120}
    assert tree.tree_of([]).text == ""


def test_a_very_large_page_is_cut_with_a_notice() -> None:
    leaves = [
        {"nodeId": str(n), "role": {"value": "StaticText"}, "name": {"value": f"line {n} {'x' * 100}"}}
        for n in range(1, 1000)
    ]
    root = {"nodeId": "0", "role": {"value": "main"}, "childIds": [str(n) for n in range(1, 1000)]}
    made = tree.tree_of([root, *leaves])
    assert made.text.endswith("[the rest is left out: the page is too large]")
    assert len(made.text) < 31_000


# In instances, with Chromium


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """One for all, so that Playwright is installed once."""
    require("chromium", "chromium")
    return tmp_path_factory.mktemp("browser")


@asynccontextmanager
async def instance(home: Path, **variables: str) -> AsyncIterator[tuple[Gateway, str]]:
    async with native_gateway(home, "browser") as gateway:
        made = await gateway.create("browser@1.0.0", environment_variables=variables)
        yield gateway, made["id"]


def ref_of(shown: str, name: str) -> str:
    line = next(line for line in shown.splitlines() if name in line)
    return line.partition("[")[2].partition("]")[0]


@pytest.mark.slow  # the layer with Playwright
@pytest.mark.timeout(120)
async def test_without_chromium_neither_the_reward_nor_the_gold_is_a_number(home: Path) -> None:
    async with instance(home, BROWSER_CHROMIUM="/no/such/program", AENV_VALIDATION="1") as (gateway, id):
        for path in ("/task/reward", "/functions/play_gold", "/task/reward"):
            _, reply = await gateway.ask("POST", f"/instances/{id}{path}", {}, origin=gateway.data)
            why = "BROWSER_CHROMIUM is '/no/such/program', and there is no such program"
            assert reply == {"success": False, "error": why, "outcome": "not_ready"}
        assert (await result_of(gateway, id, "goto", url="/"))["is_error"] is True


@pytest.mark.slow  # Chromium
@pytest.mark.timeout(120)
async def test_gold_gets_the_full_reward_for_every_task(home: Path) -> None:
    async with instance(home, AENV_VALIDATION="1") as (gateway, id):
        for task in tasks.TASKS:
            await post(gateway, id, "/task/reset", seed=1, options={"task": task})
            assert (await post(gateway, id, "/task/reward"))["reward"] == 0.0
            await post(gateway, id, "/functions/play_gold")
            assert (await post(gateway, id, "/task/reward"))["reward"] == 1.0, task


@pytest.mark.slow  # Chromium
@pytest.mark.timeout(120)
async def test_an_agent_uses_a_page_by_refs_and_sees_it(home: Path) -> None:
    async with instance(home) as (gateway, id):
        first = await said(gateway, id, "accessibility_tree")
        assert "url: http://larkspur.test/" in first
        await said(gateway, id, "click", ref=ref_of(first, "Contact us"))
        shown = await said(gateway, id, "accessibility_tree")
        about = tasks.Episode("contact-form", 0).assignment.goal[0]
        for label, name in (("Your name", "name"), ("E-mail", "email"), ("Message", "text")):
            await said(gateway, id, "type", ref=ref_of(shown, label), text=about[name])
        await said(gateway, id, "select", ref=ref_of(shown, "Topic"), option=about["topic"])
        if about["copy"]:
            await said(gateway, id, "press", key="Tab")
            await said(gateway, id, "click", text="Send me a copy")
        filled = await said(gateway, id, "accessibility_tree")
        assert f'value="{about["name"]}"' in filled
        picture = (await result_of(gateway, id, "screenshot"))["content"][0]
        data = base64.b64decode(picture["data"])
        assert picture["mimeType"] == "image/png"
        assert struct.unpack("!II", data[16:24]) == (1280, 800)
        await said(gateway, id, "click", ref=ref_of(filled, "Send message"))
        assert "we have got your message" in await said(gateway, id, "current_page")
        assert (await post(gateway, id, "/task/reward"))["reward"] == 1.0
        assert "/contact" in await said(gateway, id, "back")


@pytest.mark.slow  # Chromium, twice
@pytest.mark.timeout(120)
async def test_a_person_watches_the_page_and_acts_on_it_from_the_centre(home: Path) -> None:
    async with instance(home) as (gateway, id), chromium() as started, window(started) as tab:
        page = tab.page
        await page.goto(f"{gateway.address.url}/#/instances/{id}")
        await tab.see("no tool was called yet")
        await page.get_by_label("Tool").select_option("goto")
        await page.get_by_label("url").fill("/shop")
        await page.get_by_role("button", name="Call", exact=True).click()
        picture = page.get_by_alt_text("What the browser shows now")
        await expect(picture).to_have_js_property("naturalWidth", 1280, timeout=60_000)  # Chromium starts
        shown = await picture.get_attribute("src")
        await said(gateway, id, "goto", url="/trains")
        await expect(picture).not_to_have_attribute("src", str(shown), timeout=20_000)
        assert await tab.violations() == []
        await page.get_by_label("Watch the page").uncheck()
        await expect(picture).to_have_count(0)


@pytest.mark.slow  # Chromium
@pytest.mark.timeout(120)
async def test_what_cannot_be_done_is_said_and_the_browser_stays_usable(home: Path) -> None:
    async with instance(home) as (gateway, id):

        async def refused(tool: str, words: str, **arguments: Any) -> None:
            result = await result_of(gateway, id, tool, **arguments)
            assert result["is_error"], (tool, arguments)
            assert words in result["content"][0]["text"]

        shown = await said(gateway, id, "accessibility_tree")
        stale = ref_of(shown, "Inbox")
        for address in ("file:///etc/passwd", "javascript:alert(1)", "view-source:http://x", "chrome://version"):
            await refused("goto", "give an http or https address", url=address)
        for address in ("", "http://", "HTTP://[::1"):
            await refused("goto", "give an http or https address", url=address)
        await refused("goto", "deployConfig.network", url="http://other.example/")
        await refused("click", "call accessibility_tree again", ref=stale)
        await said(gateway, id, "goto", url="/inbox")
        await refused("click", "matches 12 elements", selector="input")
        await refused("click", "matches nothing", text="No such words")
        await refused("click", "one of ref, selector or text; given: none")
        await refused("click", "given: ref, text", ref="e1", text="x")
        await refused("click", "both x and y", x=3)
        await refused("click", "outside of the window, which is 1280 by 800", x=1280, y=3)
        await refused("type", "no field has the focus", text="x")
        await refused("type", "Input of type", selector="input[value=m1]", text="x")
        await refused("press", "Unknown key", key="NoSuchKey")
        await said(gateway, id, "goto", url="/contact")
        await refused("select", "no option 'Cats'; there are '-', 'Roads'", selector="select", option="Cats")
        for process in psutil.Process().children(recursive=True):
            with contextlib.suppress(psutil.NoSuchProcess):  # one that has ended, or waits to be collected
                if process.name() == "chromium" and "--type=" not in " ".join(process.cmdline()):
                    process.kill()
        result = await result_of(gateway, id, "current_page")
        assert result["is_error"] or "larkspur" in result["content"][0]["text"]
        assert "Welcome to Larkspur" in await said(gateway, id, "current_page")


@pytest.mark.slow  # Chromium
@pytest.mark.timeout(120)
async def test_no_cheat_gets_a_reward(home: Path) -> None:
    async with instance(home, AENV_VALIDATION="1") as (gateway, id):
        for cheat in await post(gateway, id, "/functions/list_cheats"):
            await post(gateway, id, "/task/reset")
            answers = [await result_of(gateway, id, step["tool"], **step["arguments"]) for step in cheat["steps"]]
            assert (await post(gateway, id, "/task/reward"))["reward"] == 0.0, cheat["name"]
            assert "register_reward" not in json.dumps(answers), cheat["name"]
