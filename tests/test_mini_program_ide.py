"""The Mini Program IDE in a real browser: an app appears, changes by chat and by hand, and can do no harm."""

from __future__ import annotations

import asyncio
import json
import signal
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio
from playwright.async_api import expect

from aenv.base.addresses import Origin
from aenv.base.errors import Conflict, InvalidRequest
from aenv.base.http1 import Headers, Pool, Response
from aenv.web.mini_program.ide_server import ModelChoice, building
from aenv.web.mini_program.saved_project import SavedProject, opened
from tests.browsers import Window, chromium, window
from tests.command_line import aenv, environ, serving
from tests.envs.shells import ENVIRONMENTS
from tests.gateways import Gateway, running_gateway
from tests.model_servers import called, model

# One gateway for all, in whose home the requirements of the environment are installed once.
pytestmark = [pytest.mark.asyncio(loop_scope="module"), pytest.mark.slow, pytest.mark.timeout(120)]

HOSTILE = """<!doctype html><html lang="en"><title>Hostile</title><body><script>
const found = {};
const attempt = async (name, work) => {
  try { found[name] = "got " + String(await work()).slice(0, 60); } catch { found[name] = "refused"; }
};
const text = async (path, more) => (await fetch(path, more)).text();
(async () => {
  await attempt("document", () => parent.document.body.innerHTML);
  await attempt("address", () => parent.location.href);
  await attempt("token", () => parent.sessionStorage.getItem("aenv-token"));
  await attempt("cookie", () => document.cookie);
  await attempt("page", () => text("/"));
  await attempt("key", () => text("/view/session", {method: "POST", body: "{}"}));
  await attempt("blind", () => fetch("/ide/undo", {method: "POST", mode: "no-cors"}).then(() => "sent"));
  await attempt("outside", () => fetch("http://127.0.0.1:OUTSIDE/", {mode: "no-cors"}).then(() => "sent"));
  await attempt("window", () => { if (!open("/")) throw new Error(); });
  await attempt("top", () => { top.location = "http://127.0.0.1:OUTSIDE/"; });
  await attempt("own", () => text("index.html"));
  await attempt("storage", () => { localStorage.setItem("a", "kept"); return localStorage.getItem("a"); });
  parent.postMessage({aenvPreview: {level: "error", text: "<img src=x onerror=window.hacked=1>"}}, "*");
  parent.postMessage({aenvPreview: {level: {}, text: 5}}, "*");
  parent.postMessage(null, "*");
  console.log("found " + JSON.stringify(found));
})();
</script><button onclick="location.href = 'http://127.0.0.1:OUTSIDE/?gone'">Leave</button></body></html>"""


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def gateway(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Gateway]:
    home = tmp_path_factory.mktemp("home")
    async with running_gateway(home, ENVIRONMENTS / "mini_program", engine="native") as running:
        yield running


def url_of(gateway: Gateway) -> str:
    return f"http://127.0.0.1:{gateway.address.port}"


@asynccontextmanager
async def ide(gateway: Gateway, home: Path, project: str = "demo", **given: Any) -> AsyncIterator[str]:
    async with building(project, home=home, aenv_url=url_of(gateway), **given) as url:
        yield url


async def instances(gateway: Gateway) -> list[dict[str, Any]]:
    found = (await gateway.ask("GET", "/env-instance/*/list"))[1]["data"]
    return [one for one in found if one["status"] == "Running"]


class Client:
    """A program that speaks to the server of the IDE."""

    def __init__(self, url: str, pool: Pool) -> None:
        self.key = url.partition("#key=")[2]
        self.origin = Origin("127.0.0.1", int(url.split(":")[2].split("/")[0]))
        self._pool = pool
        self.token = ""

    async def get(self, path: str, headers: Headers = ()) -> tuple[Response, bytes]:
        response = await self._pool.request(self.origin, "GET", path, headers)
        return response, await response.read()

    async def ask(self, method: str, path: str, body: Any = None, headers: Headers = ()) -> tuple[int, Any]:
        sent = [*headers, *([("authorization", f"Bearer {self.token}")] if self.token else [])]
        content = b"" if body is None else json.dumps(body).encode()
        response = await self._pool.request(self.origin, method, path, sent, content)
        return response.status, json.loads(await response.read())

    async def enter(self) -> None:
        self.token = (await self.ask("POST", "/view/session", {"key": self.key}))[1]["data"]["token"]

    async def events(self) -> AsyncIterator[tuple[str, Any]]:
        sent = [("authorization", f"Bearer {self.token}")]
        response = await self._pool.request(self.origin, "GET", "/ide/events", sent)
        rest = b""
        async for chunk in response:
            *blocks, rest = (rest + chunk).split(b"\n\n")
            for block in blocks:
                name, _, data = block.decode().partition("\ndata: ")
                if data:
                    yield name.removeprefix("event: "), json.loads(data)

    async def turn(self, wish: str) -> dict[str, Any]:
        """The state after the agent has worked on a wish."""
        is_asked = False
        async for name, data in self.events():
            if name == "state" and is_asked:
                found: dict[str, Any] = data
                return found
            if name == "state":
                is_asked = True
                assert (await self.ask("POST", "/ide/chat", {"message": wish}))[0] == 200
        raise AssertionError("the stream has ended")


@asynccontextmanager
async def client(gateway: Gateway, home: Path, **given: Any) -> AsyncIterator[Client]:
    async with ide(gateway, home, **given) as url, Pool() as pool:
        made = Client(url, pool)
        await made.enter()
        yield made


async def type_anew(tab: Window, path: str, text: str) -> None:
    """Replace the text of the file that is open in the editor, as a person does."""
    await tab.page.get_by_label(f"Text of {path}").click()
    await tab.page.keyboard.press("Control+a")
    await tab.page.keyboard.insert_text(text)


async def test_an_app_appears_and_changes_by_chat_and_by_hand_and_undo_brings_it_back(
    gateway: Gateway, tmp_path: Path
) -> None:
    async with (
        ide(gateway, tmp_path, first_wish="Make a to-do list") as url,
        chromium() as browser,
        window(browser, viewport={"width": 1440, "height": 900}) as tab,
    ):
        page, app = tab.page, tab.page.frame_locator("iframe")
        heading, add = app.get_by_role("heading"), app.get_by_role("button", name="Add")
        await page.goto(url)
        await tab.see("Your app is ready, and the checks found no error")
        assert "key=" not in page.url
        await app.get_by_label("What is to be done?").fill("buy milk")
        await add.click()
        await expect(app.get_by_text("1 of 1 left")).to_be_visible()
        await expect(page.get_by_label("Console", exact=True)).to_contain_text("to-do list ready")
        line = await page.locator(".console pre").first.bounding_box()
        assert line is not None and line["height"] < 40  # a line is a line
        assert await tab.violations() == []

        await page.get_by_label("Message to the agent").fill('Make it dark green, please, and call it "Groceries"')
        await page.get_by_role("button", name="Send").click()
        await expect(heading).to_have_text("Groceries")
        await expect(add).to_have_css("background-color", "rgb(27, 110, 60)")
        await tab.see("Done, and the checks found no error")

        await page.get_by_role("button", name="style.css", exact=True).click()
        await expect(page.get_by_label("Text of style.css")).to_contain_text("--accent: #1b6e3c")
        await type_anew(tab, "style.css", "h1 { color: rgb(1, 2, 3) }")
        await expect(heading).to_have_css("color", "rgb(1, 2, 3)")
        await expect(page.get_by_text("Saved", exact=True)).to_be_visible()

        undo, redo = page.get_by_role("button", name="Undo"), page.get_by_role("button", name="Redo")
        await undo.click()
        await expect(heading).to_have_css("color", "rgb(27, 110, 60)")
        await expect(page.get_by_label("Text of style.css")).to_contain_text("--accent: #1b6e3c")
        await undo.click()
        await expect(heading).to_have_text("To-do list")
        await redo.click()
        await expect(heading).to_have_text("Groceries")
        await page.get_by_role("button", name="the empty project").click()
        await expect(app.get_by_text("The app appears here.")).to_be_visible()
        await page.get_by_role("button", name="edit style.css").click()
        await expect(heading).to_have_css("color", "rgb(1, 2, 3)")

        await page.get_by_role("button", name="index.html", exact=True).click()
        await expect(page.get_by_label("Text of index.html")).to_contain_text("Groceries")
        await type_anew(
            tab, "index.html", '<!doctype html>\n<html lang="en"><title>Mine</title><h1>By hand</h1></html>'
        )
        await expect(heading).to_have_text("By hand")

        await page.get_by_role("button", name="Dark", exact=True).click()
        await page.set_viewport_size({"width": 390, "height": 844})
        assert await tab.violations() == []
        await page.reload()
        await expect(heading).to_have_text("By hand")
    assert await instances(gateway) == []


async def test_a_browser_that_draws_late_shows_what_came_meanwhile(gateway: Gateway, tmp_path: Path) -> None:
    async with ide(gateway, tmp_path) as url, chromium() as browser, window(browser) as tab:
        # Nothing else comes after the first event of a project in which nothing happens.
        await tab.page.add_init_script(
            """const soon = setTimeout;
            window.setTimeout = (run, after = 0, ...rest) => soon(run, after + 500, ...rest);
            window.requestAnimationFrame = (run) => soon(() => run(performance.now()), 500);"""
        )
        await tab.page.goto(url)
        await tab.page.get_by_role("button", name="New file").wait_for()


async def test_a_text_that_was_typed_meanwhile_is_not_lost(gateway: Gateway, tmp_path: Path) -> None:
    async with ide(gateway, tmp_path) as url, Pool() as pool, chromium() as browser, window(browser) as tab:
        tab.expected.append("status of 400")  # the refusal, which the browser tells too
        page = tab.page
        await page.goto(url)
        await page.get_by_role("button", name="New file").click()
        await page.get_by_label("Path of the new file").fill("a.txt")
        await page.get_by_role("button", name="Create").click()
        await type_anew(tab, "a.txt", "mine")
        await page.get_by_text("Saved", exact=True).wait_for()
        other = Client(url, pool)
        other.token = await page.evaluate("sessionStorage.getItem('aenv-token')")
        held = (await other.ask("GET", "/ide/file?path=a.txt"))[1]["data"]["digest"]
        # The person's next text and the other one's are on their way at the same time.
        await page.route("**/ide/file", lambda route: route.abort() if not gone.is_set() else route.continue_())
        gone = asyncio.Event()
        await type_anew(tab, "a.txt", "mine again")
        body = {"path": "a.txt", "content": "theirs", "digest": held}
        assert (await other.ask("PUT", "/ide/file", body))[0] == 200
        gone.set()
        await tab.see("a.txt has changed while you typed.")
        tab.expected.append("ERR_FAILED")
        await expect(page.get_by_label("Text of a.txt")).to_have_text("mine again")
        await page.get_by_role("button", name="Keep mine").click()
        await page.get_by_text("Saved", exact=True).wait_for()
        found = (await other.ask("GET", "/ide/file?path=a.txt"))[1]["data"]["content"]
        assert found == "bWluZSBhZ2Fpbg=="


async def test_a_hostile_app_reads_neither_the_page_nor_its_key_and_reaches_its_own_files_alone(
    gateway: Gateway, tmp_path: Path
) -> None:
    asked: list[bytes] = []

    async def outside(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        asked.append(await reader.readline())
        writer.close()

    server = await asyncio.start_server(outside, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    async with server, client(gateway, tmp_path) as other, chromium() as browser, window(browser) as tab:
        tab.expected += [
            "Content Security Policy",
            "Content-Security-Policy",
            "sandboxed",
        ]  # what it tries in vain
        body = {"path": "index.html", "content": HOSTILE.replace("OUTSIDE", str(port)), "digest": ""}
        assert (await other.ask("PUT", "/ide/file", body))[0] == 200
        await tab.context.add_init_script(f"sessionStorage.setItem('aenv-token', '{other.token}')")
        tab.expected.append("sessionStorage")  # the script runs in the frame as well, which has none
        async with tab.page.expect_console_message(lambda message: message.text.startswith("found ")) as told:
            await tab.page.goto(f"http://127.0.0.1:{other.origin.port}/")
        found = json.loads((await told.value).text.removeprefix("found "))
        assert found.pop("own").startswith("got <!doctype html>") and found.pop("storage") == "got kept"
        assert set(found.values()) == {"refused"}, found
        assert len(found) == 10
        await tab.see("<img src=x onerror=window.hacked=1>")
        assert await tab.page.evaluate("window.hacked") is None
        async with tab.page.expect_console_message(lambda message: "frame-src" in message.text):
            await tab.page.frame_locator("iframe").get_by_role("button", name="Leave").click()
        assert tab.page.url == f"http://127.0.0.1:{other.origin.port}/"
    assert [line for line in asked if line] == []  # a browser may connect ahead, and then asks nothing


async def test_only_who_has_the_key_gets_in_and_other_pages_get_nothing(gateway: Gateway, tmp_path: Path) -> None:
    async with ide(gateway, tmp_path) as url, Pool() as pool:
        view = Client(url, pool)
        foreign = (("origin", "http://evil.example"),)
        assert (await view.ask("POST", "/view/session", {"key": view.key}, foreign))[0] == 403
        for method, path in (("GET", "/ide/events"), ("GET", "/ide/file?path=a"), ("POST", "/ide/chat")):
            assert (await view.ask(method, path))[0] == 401
        await view.enter()
        assert (await view.ask("POST", "/view/session", {"key": view.key}))[0] == 403
        for headers in (foreign, (("origin", "null"),), (("sec-fetch-site", "cross-site"),)):
            assert (await view.ask("POST", "/ide/undo", {}, headers))[0] == 403
        status, said = await view.ask("PUT", "/ide/file", {"path": "../up", "content": "", "digest": ""})
        assert (status, "leads out of the project" in said["message"]) == (400, True)
        assert (await view.ask("POST", "/ide/show", {"number": "1"}))[0] == 400
        assert (await view.ask("POST", "/ide/chat", {"message": " "}))[0] == 400
        page, _ = await view.get("/")
        policy = page.header(b"content-security-policy") or ""
        assert "script-src 'self'" in policy and "unsafe" not in policy and "frame-ancestors 'none'" in policy
        frame = f"frame-src http://127.0.0.1:{view.origin.port}/preview/"
        assert policy.count("frame-src") == 1 and frame in policy
        preview = policy.partition(f"frame-src http://127.0.0.1:{view.origin.port}")[2]
        shown, body = await view.get(preview)
        assert b"The app appears here" in body
        assert "sandbox allow-scripts allow-forms;" in (shown.header(b"content-security-policy") or "")
        odd = {"path": "my page?.txt", "content": "odd", "digest": ""}
        assert (await view.ask("PUT", "/ide/file", odd))[0] == 200
        assert (await view.get(f"{preview}my%20page%3F.txt"))[1] == b"odd"
        for name in ("no.txt", "..%2fhistory.json", "%2e%2e/x", "my%2520page%3F.txt"):
            assert (await view.get(preview + name))[0].status == 404
        assert (await view.get("/preview/guessed/index.html"))[0].status == 404
        reader, writer = await asyncio.open_connection("127.0.0.1", view.origin.port)
        writer.write(f"GET {preview} HTTP/1.1\r\nHost: evil.example\r\n\r\n".encode())
        assert b" 403 " in await reader.readline()
        writer.close()
        await writer.wait_closed()


async def test_a_model_builds_by_its_calls_and_reads_what_went_wrong(gateway: Gateway, tmp_path: Path) -> None:
    page = '<!doctype html><html lang="en"><title>Hi</title><p>Hi</p></html>'
    written = called("write_file", json.dumps({"path": "index.html", "content": page}))
    broken = called("write_file", "{not json")
    async with model(
        written, broken, called("read_file", '{"path": "no"}'), {"content": "It is there."}
    ) as server:
        choice = ModelChoice("tiny", server.url, "secret-key")
        async with client(gateway, tmp_path, model=choice) as view:
            state = await view.turn("A page that says hi")
    kinds = [(one["kind"], one.get("state")) for one in state["entries"]]
    assert kinds == [("user", None), ("tool", "done"), ("tool", "failed"), ("tool", "failed"), ("assistant", None)]
    assert (state["model"], state["wishes"], [one["path"] for one in state["files"]]) == (
        "tiny",
        [],
        ["index.html"],
    )
    told = [message["content"] for message in server.asked[-1]["messages"] if message["role"] == "tool"]
    assert "the arguments are not JSON" in told[1] and "there is no file 'no'" in told[2]
    assert {tool["function"]["name"] for tool in server.asked[0]["tools"]} >= {"write_file", "validate_html"}
    assert "secret-key" not in json.dumps(state)


async def test_a_model_that_fails_is_told_in_the_chat_and_the_next_wish_is_taken(
    gateway: Gateway, tmp_path: Path
) -> None:
    async with (
        model((400, "no such model"), {"content": "Hello."}) as server,
        client(gateway, tmp_path, model=ModelChoice("none", server.url)) as view,
    ):
        first = await view.turn("Hello?")
        assert (first["entries"][-1]["kind"], "400" in first["entries"][-1]["text"]) == ("error", True)
        second = await view.turn("Again?")
        assert [one["text"] for one in second["entries"][-2:]] == ["Again?", "Hello."]


async def test_it_opens_and_builds_where_no_package_index_can_be_reached(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in {
        "DEFAULT_INDEX": "http://127.0.0.1:9/simple",
        "CACHE_DIR": str(tmp_path / "cache"),
    }.items():
        monkeypatch.setenv(f"UV_{name}", value)
    monkeypatch.setenv("UV_HTTP_RETRIES", "0")
    monkeypatch.delenv("UV_FIND_LINKS", raising=False)
    async with (
        running_gateway(tmp_path / "home", ENVIRONMENTS / "mini_program", engine="native") as own,
        client(own, tmp_path) as view,
    ):
        built = await view.turn("Make a counter")
        assert [one["path"] for one in built["files"]] == ["app.js", "index.html", "style.css"]
        checked = [one["text"] for one in built["entries"] if one.get("tool") == "validate_html"]
        assert "tinyhtml5 could not be installed" in checked[0]


async def test_a_project_is_there_again_at_the_next_start_and_when_its_instance_was_lost(
    gateway: Gateway, tmp_path: Path
) -> None:
    async with client(gateway, tmp_path) as view:
        before = await view.turn("Make a counter")
        with pytest.raises(Conflict, match="the project 'demo' is open in another process"):
            async with ide(gateway, tmp_path):
                pass
    async with client(gateway, tmp_path) as view:
        status, undone = await view.ask("POST", "/ide/undo", {})
        assert (status, undone["data"]["files"]) == (200, [])
        [lost] = await instances(gateway)
        assert (await gateway.ask("DELETE", f"/env-instance/{lost['id']}"))[0] == 200
        status, redone = await view.ask("POST", "/ide/redo", {})
        assert (status, redone["data"]["files"]) == (200, before["files"])
        [other] = await instances(gateway)
        assert other["id"] != lost["id"]
    assert await instances(gateway) == []


async def test_an_ide_that_is_killed_leaves_an_instance_that_ends_by_itself_and_one_that_is_ended_leaves_none(
    gateway: Gateway, tmp_path: Path
) -> None:
    variables = environ(AENV_SYSTEM_URL=url_of(gateway), AENV_HOME=str(tmp_path))
    for number, left in ((signal.SIGTERM, 0), (signal.SIGKILL, 1)):
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "aenv.examples.mini_program", "--no-open"),
            env=variables,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
        )
        assert process.stdout
        assert (await process.stdout.readline()).startswith(b"http://127.0.0.1:")
        assert len(await instances(gateway)) == 1
        process.send_signal(number)
        await process.communicate()
        found = await instances(gateway)
        assert len(found) == left
    shown = (await gateway.ask("GET", f"/env-instance/{found[0]['id']}"))[1]["data"]
    seconds = (datetime.fromisoformat(shown["expires_at"]) - datetime.now(UTC)).total_seconds()
    assert seconds <= 180
    await gateway.ask("DELETE", f"/env-instance/{found[0]['id']}")


async def test_the_command_opens_the_ide_and_says_what_it_lacks(gateway: Gateway, tmp_path: Path) -> None:
    env = environ(AENV_SYSTEM_URL=url_of(gateway), AENV_HOME=str(tmp_path), OPENAI_BASE_URL="")
    for arguments, words in (
        (("--mini-program", "--model", "tiny"), "--model needs the address of its server"),
        (("--mini-program", __file__), "leave out FILE"),
        (("--model", "tiny"), "--model is for the IDE"),
    ):
        refused = await asyncio.to_thread(aenv, "view", *arguments, env=env)
        assert (refused.returncode, words in refused.stderr) == (2, True), refused.stderr
    named = await asyncio.to_thread(aenv, "view", "--mini-program", "--project", "../up", env=env)
    assert (named.returncode, "is not a name of a project" in named.stderr) == (1, True), named.stderr
    with serving("view", "--mini-program", env=env) as served:
        [line] = await asyncio.to_thread(served.until, "http://")
        assert line.startswith("http://127.0.0.1:") and "#key=" in line
        assert await asyncio.to_thread(served.stop) == 0
    assert await instances(gateway) == []


async def test_what_an_instance_tells_decides_about_no_path_on_this_machine(tmp_path: Path) -> None:
    for name in ("../up", "a/b", "", "A", "x" * 64):
        with pytest.raises(InvalidRequest, match="is not a name of a project"), opened(tmp_path, name):
            pass
    with opened(tmp_path, "demo") as saved:
        version = {"number": 1, "parent": None, "summary": "", "by": "", "at": 0}
        for digest in ("../../up", "0" * 63, 5, "/etc/passwd"):
            history = {"shown": 1, "versions": [{**version, "files": {"a": digest}}]}
            with pytest.raises(InvalidRequest, match="not a sha256"):
                saved.lacks(history)
        history = {"shown": 1, "versions": [{**version, "files": {"../../a": "0" * 64}}]}
        with pytest.raises(InvalidRequest, match="not the one in its history"):
            saved.save(history, {"0" * 64: "eA=="})
        assert saved.load() is None
    folder = tmp_path / "mini-programs" / "demo"
    (folder / "history.json").write_text("{")
    with pytest.raises(InvalidRequest, match="move the folder away"):
        SavedProject(folder).load()
