"""browser on pages that try its patience: dialogs, tabs, pages that are stuck, huge or always on the move."""

from __future__ import annotations

import base64
import json
import shutil
import struct
from pathlib import Path
from typing import Any

import pytest

from tests.envs.shells import ENVIRONMENTS, module, post, result_of, said
from tests.gateways import running_gateway
from tests.system import require

tasks = module("browser", "browser_tasks")

TRAPS = """
import time

from browser_site import Assignment, Reply, Section, Unknown

OPENER = "let a = document.createElement('a'); a.href = '/inbox'; a.target = '_blank'; a.click()"
PAGES = {
    "stuck": '<button onclick="for (;;);">Stick</button>',
    "many": "<i></i>" * 20_000,
    "tall": '<div style="height:50000px">tall</div>',
    "ask": "<script>document.title = prompt('Who?', 'Ada') + confirm('Sure?')</script>",
    "file": '<a href="/contact" download="list.html">Get it</a>',
    "slow": "<p>At last</p>",
    "slow-opener": '<a href="/traps/slow" target="_blank">Open it slowly</a>',
    "opener": f'<button onclick="{OPENER}">Open it</button>',
    "point": '<input style="position:fixed;left:300px;top:400px;width:200px" name="here">',
    "turning": "<script>location.href = '/traps/turning?' + Math.random()</script>",
}


class Traps(Section):
    name, title, about = "traps", "Traps", "Pages that agents meet elsewhere"

    def __init__(self, chance):
        self.state = []

    def get(self, request):
        if request.path not in PAGES:
            raise Unknown
        if request.path == "slow":
            time.sleep(0.5)  # as a server far away
        return Reply(PAGES[request.path])

    def assignment(self):
        return Assignment("Beware.", [], [])
"""


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """One for all, so that Playwright is installed once."""
    require("chromium", "chromium")
    return tmp_path_factory.mktemp("browser")


@pytest.fixture(scope="module")
def trapped(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The environment, with a section of pages that try a browser's patience."""
    folder = tmp_path_factory.mktemp("trapped") / "browser"
    shutil.copytree(ENVIRONMENTS / "browser", folder, ignore=shutil.ignore_patterns("__pycache__"))
    (folder / "src" / "browser_traps.py").write_text(TRAPS)
    known = folder / "src" / "browser_tasks.py"
    text = known.read_text().replace('"works-board": Board,', '"works-board": Board, "traps": Traps,')
    known.write_text(text.replace("from browser_site", "from browser_traps import Traps\nfrom browser_site", 1))
    return folder


@pytest.mark.slow  # Chromium, and a page that is waited for
@pytest.mark.timeout(180)
async def test_a_page_that_is_stuck_is_closed_and_the_login_stays(home: Path, trapped: Path) -> None:
    login = tasks.Episode("account-login", 0).assignment.gold[:3]
    async with running_gateway(home, trapped, engine="native") as gateway:
        id = (await gateway.create("browser@1.0.0"))["id"]
        for one in login:
            await said(gateway, id, one["tool"], **one["arguments"])
        await said(gateway, id, "goto", url="/traps/stuck")
        result = await result_of(gateway, id, "click", text="Stick")
        assert result["is_error"]
        assert "did not answer any more and was closed" in result["content"][0]["text"]
        assert "Welcome to Larkspur" in await said(gateway, id, "current_page")
        await said(gateway, id, "goto", url="/account")
        assert "Signed in as" in await said(gateway, id, "current_page")


@pytest.mark.slow  # Chromium
@pytest.mark.timeout(180)
async def test_a_dialog_is_shown_to_the_agent_and_holds_up_all_else_until_it_is_answered(
    home: Path, trapped: Path
) -> None:
    async with running_gateway(home, trapped, engine="native") as gateway:
        id = (await gateway.create("browser@1.0.0"))["id"]
        assert "no dialog is open" in await said(gateway, id, "answer_dialog", accept=True)
        asked = json.loads(await said(gateway, id, "goto", url="/traps/ask"))
        assert asked["dialog"] == {"type": "prompt", "message": "Who?", "default": "Ada"}
        for tool in ("current_page", "accessibility_tree", "screenshot", "tabs", "back"):
            refused = await result_of(gateway, id, tool)
            assert refused["is_error"]
            assert "its prompt 'Who?'; give it with answer_dialog" in refused["content"][0]["text"]
        asked = json.loads(await said(gateway, id, "answer_dialog", accept=True, text="Grace"))
        assert asked["dialog"] == {"type": "confirm", "message": "Sure?"}
        wrong = await said(gateway, id, "answer_dialog", accept=True, text="x")
        assert "only a prompt that is accepted takes a text; this is a confirm" in wrong
        about = json.loads(await said(gateway, id, "answer_dialog", accept=False))
        assert (about["title"], "dialog" in about) == ("Gracefalse", False)
        await said(gateway, id, "goto", url="/traps/ask")
        await said(gateway, id, "answer_dialog", accept=True)
        assert json.loads(await said(gateway, id, "answer_dialog", accept=True))["title"] == "Adatrue"
        await said(gateway, id, "goto", url="/traps/ask")
        await post(gateway, id, "/task/reset")
        assert "Welcome to Larkspur" in await said(gateway, id, "current_page")


@pytest.mark.slow  # Chromium
@pytest.mark.timeout(180)
async def test_tabs_are_opened_switched_and_closed_and_popups_become_tabs(home: Path, trapped: Path) -> None:
    async with running_gateway(home, trapped, engine="native") as gateway:
        id = (await gateway.create("browser@1.0.0"))["id"]

        async def told(tool: str, **arguments: Any) -> dict[str, Any]:
            about: dict[str, Any] = json.loads(await said(gateway, id, tool, **arguments))
            return about

        async def shown() -> list[tuple[str, bool]]:
            listed = (await result_of(gateway, id, "tabs"))["structured"]["result"]
            assert [each["tab"] for each in listed] == list(range(1, len(listed) + 1))
            return [(each["url"].removeprefix("http://larkspur.test"), each["is_shown"]) for each in listed]

        assert await shown() == [("/", True)]
        await told("goto", url="/traps/opener")
        about = await told("click", text="Open it")
        assert (about["url"], about["tab"], about["tabs"]) == ("http://larkspur.test/inbox", 2, 2)
        assert (await told("open_tab", url="/shop"))["tab"] == 3
        assert await shown() == [("/traps/opener", False), ("/inbox", False), ("/shop", True)]
        assert (await told("switch_tab", tab=2))["url"].endswith("/inbox")
        assert "Inbox" in (await told("current_page"))["title"]
        assert (await told("close_tab", tab=2))["tab"] == 2
        assert await shown() == [("/traps/opener", False), ("/shop", True)]
        await told("switch_tab", tab=1)
        await told("goto", url="/traps/slow-opener")
        assert (await told("click", text="Open it slowly"))["url"].endswith("/traps/slow")
        await told("close_tab", tab=3)
        await told("switch_tab", tab=1)
        await told("goto", url="/traps/opener")
        await told("switch_tab", tab=2)
        assert "there is no tab 3; there are 2" in await said(gateway, id, "switch_tab", tab=3)
        assert "give an http or https address" in await said(gateway, id, "open_tab", url="file:///etc/passwd")
        assert await shown() == [("/traps/opener", False), ("/shop", True)]
        for _ in range(6):
            await told("open_tab")
        assert "8 tabs are open" in await said(gateway, id, "open_tab")
        await told("switch_tab", tab=1)
        assert (await told("click", text="Open it"))["refused_tabs"] == 1
        for _ in range(8):
            await told("close_tab", tab=1)
        assert await shown() == [("/", True)]


@pytest.mark.slow  # Chromium
@pytest.mark.timeout(180)
async def test_what_pages_do_beside_showing_is_told(home: Path, trapped: Path) -> None:
    async with running_gateway(home, trapped, engine="native") as gateway:
        id = (await gateway.create("browser@1.0.0"))["id"]
        await said(gateway, id, "goto", url="/traps/file")
        got = json.loads(await said(gateway, id, "click", text="Get it"))
        assert got["downloads"] == ["list.html, refused"]
        await said(gateway, id, "goto", url="/traps/turning")
        assert json.loads(await said(gateway, id, "goto", url="/inbox"))["url"] == "http://larkspur.test/inbox"


@pytest.mark.slow  # Chromium
@pytest.mark.timeout(180)
async def test_pages_of_any_size_are_shown_as_far_as_is_of_use(home: Path, trapped: Path) -> None:
    async with running_gateway(home, trapped, engine="native") as gateway:
        id = (await gateway.create("browser@1.0.0"))["id"]
        await said(gateway, id, "goto", url="/traps/many")
        assert "elements, too many for a tree" in await said(gateway, id, "accessibility_tree")
        await said(gateway, id, "goto", url="/traps/tall")
        picture = (await result_of(gateway, id, "screenshot", full_page=True))["content"][0]
        assert struct.unpack("!II", base64.b64decode(picture["data"])[16:24]) == (1280, 10_000)


@pytest.mark.slow  # Chromium
@pytest.mark.timeout(180)
async def test_an_agent_clicks_at_a_point_of_the_picture_and_types_there(home: Path, trapped: Path) -> None:
    async with running_gateway(home, trapped, engine="native") as gateway:
        id = (await gateway.create("browser@1.0.0"))["id"]
        await said(gateway, id, "goto", url="/traps/point")
        await said(gateway, id, "click", x=350, y=415)
        await said(gateway, id, "type", text="x שלום ✨")
        assert 'value="x שלום ✨"' in await said(gateway, id, "accessibility_tree")
        assert "/inbox" in await said(gateway, id, "click", selector='role=link[name="Inbox"]')
