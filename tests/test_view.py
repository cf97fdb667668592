"""`aenv view`: local files in a browser, read-only, on loopback, for who has the key."""

from __future__ import annotations

import asyncio
import json
import os
import signal
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from playwright.async_api import expect

from aenv.base.addresses import Origin
from aenv.base.http1 import Headers, Pool
from aenv.web.view_server import serve, viewing
from aenv.web.viewed_runs import check_any_is_shown
from tests.browsers import chromium, window
from tests.command_line import aenv
from tests.gateways import make_project, running_gateway

HOSTILE = '<img src=x onerror="window.hacked=1">'
RUN = {"environment": "sums@1.0.0", "digest": "d", "agent": "llm", "model": "small", "seed": 0}


def lines(rewards: dict[str, float | None]) -> list[dict[str, Any]]:
    """A journal with a rollout for each task."""
    made: list[dict[str, Any]] = [
        {"type": "run", "schema": "aenv-trajectory/1", **RUN, "at": "2026-01-01T00:00:00Z"}
    ]
    for task, reward in rewards.items():
        id = f"id-{task}"
        made.append({"type": "begin", "rollout": id, "task": task, "instance": "i", "at": 1.7e9})
        made.append(
            {
                "type": "step",
                "rollout": id,
                "step": 0,
                "at": 1.7e9,
                "message": {"role": "user", "content": HOSTILE},
            }
        )
        call = {"tool": "add", "arguments": {"a": 1, "task": task}, "content": [{"type": "text", "text": HOSTILE}]}
        made.append(
            {"type": "step", "rollout": id, "step": 1, "at": 1.7e9, "seconds": 0.25, "reward": 0.5, **call}
        )
        result = {
            "type": "result",
            "task": task,
            "rollout": id,
            "reward": reward,
            "steps": 1,
            "seconds": 1.5,
            **RUN,
        }
        result |= {
            "outcome": "timeout" if reward is None else "reward",
            "passed": None if reward is None else reward == 1,
        }
        result |= {
            "error": HOSTILE if reward is None else "",
            "variables": {},
            "timings": {"start": 0.1, "agent": 1.2},
        }
        made.append(result)
    return made


def journal(path: Path, rewards: dict[str, float | None]) -> Path:
    path.write_text("".join(json.dumps(line) + "\n" for line in lines(rewards)))
    return path


class Viewer:
    """A client of the server."""

    def __init__(self, url: str, pool: Pool) -> None:
        self.url = url
        self.key = url.partition("#key=")[2]
        self.origin = Origin("127.0.0.1", int(url.split(":")[2].split("/")[0]))
        self._pool = pool
        self.token = ""

    async def ask(self, method: str, path: str, body: Any = None, headers: Headers = ()) -> tuple[int, Any]:
        sent = [*headers, *([("authorization", f"Bearer {self.token}")] if self.token else [])]
        content = b"" if body is None else json.dumps(body).encode()
        response = await self._pool.request(self.origin, method, path, sent, content)
        return response.status, json.loads(await response.read())

    async def enter(self) -> int:
        status, said = await self.ask("POST", "/view/session", {"key": self.key})
        if status == 200:
            self.token = said["data"]["token"]
        return status


@asynccontextmanager
async def viewer(*files: Path, **given: Any) -> AsyncIterator[Viewer]:
    async with viewing(files, **given) as url, Pool() as pool:
        yield Viewer(url, pool)


async def test_only_who_has_the_key_reads_the_files_and_the_key_opens_once(tmp_path: Path) -> None:
    async with viewer(journal(tmp_path / "run.jsonl", {"one": 1.0})) as view:
        assert (await view.ask("GET", "/runs"))[0] == 401
        assert (await view.ask("POST", "/view/session", {"key": "guessed"}))[0] == 403
        assert (await view.ask("POST", "/view/session", {"key": "x" * 5000}))[0] == 413
        assert (await view.ask("GET", "/session"))[1]["data"]["role"] == "anonymous"
        assert await view.enter() == 200
        assert (await view.ask("GET", "/runs"))[0] == 200
        assert await Viewer(view.url, view._pool).enter() == 403


async def test_a_page_of_another_origin_gets_nothing(tmp_path: Path) -> None:
    async with viewer(journal(tmp_path / "run.jsonl", {"one": 1.0})) as view:
        for headers in (
            [("origin", "http://evil.example")],
            [("sec-fetch-site", "cross-site")],
        ):
            assert (await view.ask("POST", "/view/session", {"key": view.key}, headers))[0] == 403
        # A name that was made to resolve to this machine.
        reader, writer = await asyncio.open_connection(view.origin.host, view.origin.port)
        writer.write(b"GET /session HTTP/1.1\r\nHost: evil.example\r\n\r\n")
        assert b" 403 " in await reader.readline()
        writer.close()
        await writer.wait_closed()
        assert await view.enter() == 200
        assert (await view.ask("GET", "/runs", headers=[("origin", "http://localhost:1")]))[0] == 403


async def test_runs_are_summed_up_and_rollouts_shown_by_step(tmp_path: Path) -> None:
    file = journal(tmp_path / "run.jsonl", {"one": 1.0, "two": 0.25, "three": None})
    async with viewer(file) as view:
        await view.enter()
        [run] = (await view.ask("GET", "/runs"))[1]["data"]
        told = {name: run[name] for name in ("name", "environment", "rollouts", "judged", "passed", "mean_reward")}
        assert told == {
            "name": "run.jsonl",
            "environment": "sums@1.0.0",
            "rollouts": 3,
            "judged": 2,
            "passed": 1,
            "mean_reward": 0.625,
        }
        rows = (await view.ask("GET", "/runs/0"))[1]["data"]["rows"]
        assert [(row["task"], row["outcome"], row["reward"]) for row in rows][2] == ("three", "timeout", None)
        shown = (await view.ask("GET", f"/runs/0/rollouts?id={rows[0]['id']}"))[1]["data"]
        assert [step["call"] and step["call"]["name"] for step in shown["steps"]] == [None, "add"]
        journal(file, {"one": 1.0, "two": 1.0, "three": 1.0, "four": 1.0})
        assert (await view.ask("GET", "/runs"))[1]["data"][0]["rollouts"] == 4


async def test_a_file_that_is_not_a_journal_is_listed_with_its_error(tmp_path: Path) -> None:
    (tmp_path / "broken.jsonl").write_text("not json\n")
    async with viewer(tmp_path / "broken.jsonl", tmp_path / "gone.jsonl") as view:
        await view.enter()
        broken, gone = (await view.ask("GET", "/runs"))[1]["data"]
        assert "line 1" in broken["error"] and "no such file" in gone["error"]
        assert (await view.ask("GET", "/runs/0"))[0] == 400
        assert (await view.ask("GET", "/runs/7"))[0] == 404
        assert (await view.ask("GET", "/env"))[0] == 404


@pytest.mark.parametrize("text", ['{\n  "name": "x"\n}\n', '{"name": "x"}', '{"name": "x"}\n'])
def test_files_without_results_are_refused_unless_another_can_be_shown(tmp_path: Path, text: str) -> None:
    wrong, right = tmp_path / "config.json", journal(tmp_path / "run.jsonl", {"one": 1.0})
    wrong.write_text(text)
    done = aenv("view", wrong)
    assert (done.returncode, done.stdout) == (1, "")
    first, second = done.stderr.splitlines()
    assert first.startswith(f"aenv: '{wrong}'") and second.startswith("try: a file of results")
    (tmp_path / "begun.jsonl").touch()
    for other in (right, tmp_path / "begun.jsonl"):
        check_any_is_shown([wrong, other])


async def test_in_front_of_a_gateway_it_sends_the_gateways_key_and_not_its_own(tmp_path: Path) -> None:
    async with running_gateway(tmp_path / "home", make_project(tmp_path)) as gateway:
        _, made = await gateway.ask("POST", "/token", {"user": "ann", "role": "admin"})
        async with viewer(platform=gateway.control, api_key=made["data"]["token"]) as view:
            assert (await view.ask("GET", "/env-instance/*/list"))[0] == 401
            await view.enter()
            caller = (await view.ask("GET", "/session"))[1]["data"]
            assert (caller["user"], caller["runs"], caller["platform"]) == ("ann", True, True)
            assert [one["name"] for one in (await view.ask("GET", "/env"))[1]["data"]] == ["echo"]
            created = (await view.ask("POST", "/env-instances", {"envName": "echo@1.0.0", "count": 1}))[1]["data"][
                0
            ]
            answer = await view.ask("POST", f"/instances/{created['id']}/tools/echo", {"text": "hello"})
            assert answer[1]["data"]["content"][0]["text"] == "hello"


@pytest.mark.slow
@pytest.mark.timeout(200)
async def test_runs_and_trajectories_are_looked_at_in_a_browser(tmp_path: Path) -> None:
    first = journal(tmp_path / "first.jsonl", {"one": 1.0, "two": 0.25, "three": None})
    later = lines({"one": 1.0, "two": 1.0})
    second = tmp_path / "second.jsonl"
    second.write_text("".join(json.dumps(line).replace("1700000000", "1700086400") + "\n" for line in later))
    async with viewing([first, second]) as url, chromium() as browser, window(browser) as tab:
        page = tab.page
        await page.goto(url)
        await tab.see("Pass rate over time")
        await expect(page.locator(".legend")).to_have_count(0)  # both are of one agent
        assert "key=" not in page.url
        assert await tab.violations() == []
        await page.get_by_role("link", name="first.jsonl").click()
        await tab.see("50 %")
        await page.get_by_role("button", name="timeout 1").click()
        await expect(page.locator(".table-body .table-row")).to_have_count(1)
        await page.get_by_role("button", name="timeout 1").click()
        await page.get_by_label("Select id-one").check()
        await page.get_by_label("Select id-two").check()
        assert await tab.violations() == []
        await page.get_by_role("link", name="Compare the two").click()
        await tab.see("First difference at step 2")
        await page.get_by_role("button", name="Go there").click()
        await tab.see("Step 2 of 2")
        await page.keyboard.press("k")
        await tab.see("Step 1 of 2")
        await expect(page.get_by_text(HOSTILE).first).to_be_visible()
        assert await page.evaluate("window.hacked") is None
        assert await tab.violations() == []
        await page.reload()
        await tab.see("First difference")
        other = (
            await tab.context.new_page()
        )  # an address that is opened twice says what to do, and asks for no account
        await other.goto(url)
        await other.get_by_text("run 'aenv view' again for another").wait_for()
        assert await other.get_by_role("textbox").count() == 0


@pytest.mark.slow
@pytest.mark.timeout(200)
async def test_a_file_that_cannot_be_read_is_told_beside_the_others(tmp_path: Path) -> None:
    (tmp_path / "broken.jsonl").write_text(HOSTILE + "\n")
    files = [tmp_path / "broken.jsonl", journal(tmp_path / "run.jsonl", {"one": 1.0})]
    async with viewing(files) as url, chromium() as browser, window(browser) as tab:
        await tab.page.goto(url)
        await expect(tab.page.get_by_role("alert")).to_contain_text("line 1")
        assert await tab.page.get_by_role("link", name="broken.jsonl").count() == 0
        assert await tab.violations() == []
        await tab.page.get_by_role("link", name="run.jsonl").click()
        await tab.see("1 of 1 judged")


@pytest.mark.slow
@pytest.mark.timeout(200)
async def test_steps_are_counted_from_one_and_a_rollout_is_compared_with_that_of_another_agent(
    tmp_path: Path,
) -> None:
    ours, others = lines({"one": 1.0}), lines({"one": 0.0})
    for line in ours:
        # As `aenv eval` numbers them.
        line |= {"step": line["step"] + 1} if line["type"] == "step" else {}
    for line in others:
        line |= {"agent": "random"} if "agent" in line else {}
    for name, content in (("ours", ours), ("others", others)):
        (tmp_path / f"{name}.jsonl").write_text("".join(json.dumps(line) + "\n" for line in content))
    files = [tmp_path / "ours.jsonl", tmp_path / "others.jsonl"]
    phone = {"width": 390, "height": 780}
    async with viewing(files) as url, chromium() as browser, window(browser, viewport=phone) as tab:
        page = tab.page
        await page.goto(url)
        await expect(page.locator(".legend li")).to_have_text(
            ["sums@1.0.0, llm small", "sums@1.0.0, random small"]
        )
        await page.get_by_role("link", name="ours.jsonl").click()
        await page.get_by_label("Filter tasks").fill("other")
        await tab.see("No rollout is like that")
        await page.get_by_label("Filter tasks").fill("")
        box = await page.get_by_role("cell", name="1.00").bounding_box()
        assert box is not None and box["x"] + box["width"] < 390
        await page.get_by_role("link", name="one").click()
        await expect(page.locator(".step header")).to_contain_text(["1 user", "2 add"])
        await page.get_by_label("Compare with").select_option("others.jsonl, attempt 1, fail")
        await tab.see("The same steps")
        await expect(page.locator("section h2 .badge")).to_have_text(["pass", "fail"])
        assert await tab.violations() == []
        await page.reload()
        await expect(page.get_by_role("link", name="others.jsonl")).to_be_visible()


@pytest.mark.slow
@pytest.mark.timeout(200)
async def test_a_page_follows_a_run_that_is_under_way_and_does_not_keep_the_server_from_ending(
    tmp_path: Path,
) -> None:
    file = journal(tmp_path / "run.jsonl", {"one": 1.0})
    async with chromium() as browser, window(browser) as tab:
        async with viewing([file]) as url:
            await tab.page.goto(url)
            await tab.page.get_by_role("link", name="run.jsonl").click()
            await tab.see("1 of 1 judged")
            journal(file, {"one": 1.0, "two": 0.0})
            await tab.see("1 of 2 judged")
            await tab.page.get_by_role("link", name="one", exact=True).click()
            await tab.see("Step 1 of 2")
            more = {"type": "step", "rollout": "id-one", "step": 2, "at": 1.7e9, "message": {"role": "user"}}
            with file.open("a") as journal_file:
                journal_file.write(json.dumps(more) + "\n")
            await tab.see("Step 1 of 3")
            tab.expected.append("Failed to load|net::")
        async with tab.page.expect_event("requestfailed"):
            pass  # it tries to open the stream again
        await expect(tab.page.locator(".step")).to_have_count(3)


@pytest.mark.slow
@pytest.mark.timeout(200)
async def test_what_others_have_written_is_shown_whatever_form_it_has(tmp_path: Path) -> None:
    vector = "data:image/svg+xml;base64,PHN2ZyBvbmxvYWQ9InBhcmVudC5oYWNrZWQ9MSIvPg=="
    said = [
        {"role": "assistant", "content": None, "tool_calls": "none"},
        {"role": "assistant", "content": None, "tool_calls": [{"id": 1}, None]},
        {"role": "user", "content": [None, 5, {"type": "text", "text": {"a": 1}}, {"type": "image_url"}]},
        {"role": "user", "content": [{"type": "image_url", "image_url": {"url": one}} for one in (5, vector)]},
        {"role": "user", "content": {"a": HOSTILE}},
    ]
    parts = [None, {"type": "image", "data": 5, "mimeType": "image/png"}]
    parts += [{"type": "image", "data": data, "mimeType": "image/png"} for data in ("%%", "iVBORw0K")]
    parts += [{"type": "image", "data": "PHN2Zz4=", "mimeType": "image/svg+xml"}]
    ids = ["a/b?c#d%2e", "..", "javascript:alert(1)"]
    written = []
    for id in ids:
        first, begin, message, call, result = lines({"one": 1.0})
        steps = [{**message, "step": at, "message": one} for at, one in enumerate(said)]
        steps.append({**call, "step": len(said), "content": parts})
        written += [{**line, "rollout": id} for line in (begin, *steps, {**result, "task": f"of {id}"})]
    (tmp_path / "odd.jsonl").write_text("".join(json.dumps(line) + "\n" for line in [first, *written]))
    async with viewing([tmp_path / "odd.jsonl"]) as url, chromium() as browser, window(browser) as tab:
        page = tab.page
        await page.goto(url)
        for id in ids:
            await page.get_by_role("link", name="odd.jsonl").click()
            await page.get_by_role("link", name=f"of {id}", exact=True).click()
            await expect(page.locator(".step")).to_have_count(len(said) + 1)
            assert await page.get_by_role("alert").count() == 0
            await expect(page.locator(".step img")).to_have_count(1)  # of what is in base64, and a PNG by its name
        assert await page.evaluate("window.hacked") is None


async def test_a_browser_is_started_without_the_key_among_its_arguments(tmp_path: Path) -> None:
    told: list[str] = []
    launched = asyncio.Event()

    def launch(url: str) -> None:
        told.append(url)
        launched.set()

    opened = viewing([journal(tmp_path / "run.jsonl", {"one": 1.0})])
    serving = asyncio.create_task(serve(opened, told.append, launch))
    await launched.wait()
    address, file = told
    assert "#key=" in address and "key" not in file
    page = Path(file.removeprefix("file://"))
    assert f'url={address}"' in page.read_text()
    assert (page.stat().st_mode & 0o777, page.parent.stat().st_mode & 0o777) == (0o600, 0o700)
    os.kill(os.getpid(), signal.SIGTERM)
    await serving
    assert not page.parent.exists()


@pytest.mark.slow
@pytest.mark.timeout(200)
async def test_of_a_long_rollout_only_the_steps_around_the_chosen_one_are_there(tmp_path: Path) -> None:
    first, begin, _, call, result = lines({"one": 1.0})
    steps = [{**call, "step": number} for number in range(5000)]
    (tmp_path / "long.jsonl").write_text(
        "".join(json.dumps(line) + "\n" for line in [first, begin, *steps, {**result, "steps": 5000}])
    )
    async with viewing([tmp_path / "long.jsonl"]) as url, chromium() as browser, window(browser) as tab:
        page = tab.page
        await page.goto(url)
        await page.get_by_role("link", name="long.jsonl").click()
        await page.get_by_role("link", name="one", exact=True).click()
        await expect(page.locator(".step")).to_have_count(200)
        await page.get_by_role("button", name="Steps after 200 of 5000").click()
        await tab.see("Step 201 of 5000")
        await page.keyboard.press("k")
        await tab.see("Step 200 of 5000")
        await expect(page.locator(".steps .current header")).to_contain_text("200 add")
        assert await tab.violations() == []
