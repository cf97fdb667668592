"""A terminal of an instance, as pages and programs open it."""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import psutil
import pytest
from playwright.async_api import expect
from websockets.asyncio.client import ClientConnection, connect
from websockets.exceptions import ConnectionClosed, InvalidStatus

from aenv.control.gateway import terminal_routes
from aenv.control.gateway.terminal_routes import PROTOCOL
from aenv.engines.terminals import MOST
from tests import native
from tests.browsers import chromium, window
from tests.gateways import Gateway, make_project, running_gateway
from tests.relayed import until

pytestmark = [pytest.mark.slow, pytest.mark.timeout(120)]

Made = dict[str, Any]


@pytest.fixture(params=["process", "native"])
async def gateway(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Gateway]:
    async with running_gateway(tmp_path / "home", make_project(tmp_path), engine=request.param) as running:
        yield running


def opening(gateway: Gateway, made: Made, query: str = "", **headers: str) -> connect:
    where = f"ws://127.0.0.1:{gateway.address.port}/env-instance/{made['id']}/terminal{query}"
    return connect(where, subprotocols=[PROTOCOL], additional_headers=headers, max_queue=None)  # type: ignore[list-item]


async def printed(terminal: ClientConnection, word: str) -> str:
    """What is printed until, and with, a line that is this word."""
    seen = b""
    try:
        async with asyncio.timeout(30):
            while f"\n{word}\r".encode() not in seen:
                message = await terminal.recv()
                assert isinstance(message, bytes), message
                seen += message
                await terminal.send(json.dumps({"ack": len(message)}))
    except TimeoutError:
        pytest.fail(f"no line {word!r} in {seen!r}")
    return seen.decode()


async def to_its_end(terminal: ClientConnection) -> tuple[str | bytes, ConnectionClosed]:
    """The last message, and how the WebSocket was closed."""
    message: str | bytes = b""
    try:
        while True:
            message = await terminal.recv()
    except ConnectionClosed as closed:
        return message, closed


def running(words: str) -> list[psutil.Process]:
    found = []
    for process in psutil.process_iter():
        try:
            if words in " ".join(process.cmdline()):
                found.append(process)
        except psutil.Error:
            continue
    return found


async def test_a_shell_has_a_terminal_with_a_size_job_control_and_unicode(gateway: Gateway) -> None:
    made = await gateway.create()
    async with opening(gateway, made, "?columns=91&rows=17") as terminal:
        await terminal.send("stty size; tty; echo ÄÖ-日本 > /dev/stderr; echo do''ne\n".encode())
        seen = await printed(terminal, "done")
        assert "17 91" in seen and "/dev/pts/" in seen and "\nÄÖ-日本\r" in seen
        await terminal.send(json.dumps({"resize": [60, 9]}))
        await terminal.send(b"sh -c 'echo; stty size; exec sleep 1000'\n")
        await printed(terminal, "9 60")
        await terminal.send(b"\x03")
        await terminal.send(b"echo code $?; echo do''ne\n")
        assert "code 130" in await printed(terminal, "done")
        await terminal.send(b"exit 7\n")
        said, closed = await to_its_end(terminal)
        assert json.loads(said) == {"exit": 7}
        assert closed.rcvd and closed.rcvd.code == 1000


async def test_a_flood_waits_in_the_instance_and_ctrl_c_ends_it(gateway: Gateway) -> None:
    made = await gateway.create()
    async with opening(gateway, made) as terminal:
        await terminal.send(b"yes flood\n")
        received = 0
        with contextlib.suppress(TimeoutError):
            while received <= 2 * terminal_routes._AHEAD_BYTES:
                async with asyncio.timeout(1.0):
                    received += len(await terminal.recv())
        assert terminal_routes._AHEAD_BYTES <= received < 2 * terminal_routes._AHEAD_BYTES
        assert await gateway.call(made["id"], "echo", text="as ever") == "as ever"
        await terminal.send(b"\x03")
        await terminal.send(json.dumps({"ack": received}))
        await terminal.send(b"echo; echo do''ne\n")
        await printed(terminal, "done")


async def test_closing_it_ends_the_shell_and_its_jobs_and_nothing_is_left(
    gateway: Gateway, tmp_path: Path
) -> None:
    made = await gateway.create()
    async with opening(gateway, made) as terminal:
        await terminal.send(b"sleep 91919 & sleep 91920 & trap '' HUP; echo do''ne\n")
        await printed(terminal, "done")
        # The shell has forked them; what they run may come a moment later.
        await until(lambda: len(running("sleep 9191") + running("sleep 9192")) == 2)
        jobs = running("sleep 9191") + running("sleep 9192")
    await asyncio.to_thread(psutil.wait_procs, jobs, timeout=30)
    assert not running("sleep 9191") and not running("sleep 9192")
    open_ones = [await opening(gateway, made).__aenter__() for _ in range(MOST)]
    with pytest.raises(InvalidStatus) as refused:
        await opening(gateway, made).__aenter__()
    assert refused.value.response.status_code == 429
    await gateway.ask("DELETE", f"/env-instance/{made['id']}")
    for one in open_ones:
        await to_its_end(one)
    assert native.traces(gateway.home) == []


async def test_only_its_owner_opens_one_and_no_page_of_another_origin(tmp_path: Path) -> None:
    async with running_gateway(tmp_path / "home", make_project(tmp_path)) as gateway:
        made = await gateway.create()
        own = f"http://127.0.0.1:{gateway.address.port}"
        for origin, status in (("http://evil.example", 403), ("null", 403), (own, 101)):
            if status == 101:
                async with opening(gateway, made, Origin=origin):
                    continue
            with pytest.raises(InvalidStatus) as refused:
                await opening(gateway, made, Origin=origin).__aenter__()
            assert refused.value.response.status_code == status
        tokens = {}
        for user, role in (("root", "admin"), ("ann", "user"), ("eve", "user"), ("vic", "viewer")):
            by = (("authorization", f"Bearer {tokens['root']}"),) if tokens else ()
            _, reply = await gateway.ask("POST", "/token", {"user": user, "role": role}, by)
            tokens[user] = reply["data"]["token"]
        by = (("authorization", f"Bearer {tokens['ann']}"),)
        _, reply = await gateway.ask("POST", "/env-instance", {"envName": "echo@1.0.0"}, by)
        where = f"ws://127.0.0.1:{gateway.address.port}/env-instance/{reply['data']['id']}/terminal"
        for user, status in (("", 401), ("eve", 404), ("vic", 403), ("ann", 101), ("root", 101)):
            offered = [PROTOCOL, *([f"aenv.bearer.{tokens[user]}"] if user else [])]
            if status == 101:
                async with connect(where, subprotocols=offered) as terminal:  # type: ignore[arg-type]
                    assert terminal.subprotocol == PROTOCOL
            else:
                with pytest.raises(InvalidStatus) as refused:
                    await connect(where, subprotocols=offered).__aenter__()  # type: ignore[arg-type]
                assert (user, refused.value.response.status_code) == (user, status)


async def test_an_idle_one_ends_and_says_so(gateway: Gateway, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(terminal_routes, "IDLE", 0.5)
    made = await gateway.create()
    async with opening(gateway, made) as terminal:
        _, closed = await to_its_end(terminal)
        assert closed.rcvd and "without a key" in closed.rcvd.reason


async def test_a_person_types_into_it_on_the_page_of_the_instance(tmp_path: Path) -> None:
    """With accounts, colours, a flood, and a policy that refuses inline styles."""
    async with (
        running_gateway(tmp_path / "home", make_project(tmp_path), engine="native") as gateway,
        chromium() as browser,
        window(browser) as tab,
    ):
        _, made = await gateway.ask("POST", "/token", {"user": "ann", "role": "admin"})
        token = made["data"]["token"]
        by = (("authorization", f"Bearer {token}"),)
        _, reply = await gateway.ask("POST", "/env-instance", {"envName": "echo@1.0.0"}, by)
        page = tab.page
        asked: list[str] = []
        page.on("websocket", lambda socket: asked.append(socket.url))
        await page.goto(gateway.address.url)
        await page.get_by_label("Token of your account").fill(token)
        await page.get_by_role("button", name="Sign in").click()
        await tab.see("Instances alive")
        await page.goto(f"{gateway.address.url}/#/instances/{reply['data']['id']}?tab=terminal")
        lines = page.locator(".xterm-rows")
        await expect(lines).to_contain_text("#")
        await page.keyboard.type("printf '\\e[38;2;255;100;50mred\\e[0m 日本 %s\\n' $COLUMNS")
        await page.keyboard.press("Enter")
        red = lines.locator("span", has_text="red").last
        await expect(red).to_have_css("color", "rgb(255, 100, 50)")
        await expect(lines).to_contain_text("日本")
        assert await tab.violations() == []
        await page.keyboard.type("seq 1 100000; echo the e''nd")
        await page.keyboard.press("Enter")
        await expect(lines).to_contain_text("the end", timeout=30_000)
        await page.set_viewport_size({"width": 390, "height": 780})
        await page.keyboard.type("stty size")
        await page.keyboard.press("Enter")
        assert await page.evaluate("document.documentElement.scrollWidth") <= 390
        await page.keyboard.press("Control+F6")
        await expect(page.get_by_role("button", name="Start again")).to_be_focused()
        await page.locator(".shell").click()
        await page.keyboard.type("exit 3")
        await page.keyboard.press("Enter")
        await tab.see("The shell has ended with code 3")
        assert asked and not any(token in one for one in asked)
