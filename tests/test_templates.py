"""The templates of `aenv init`: each passes the tests and the validation that its README tells of."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from playwright.async_api import Browser

from aenv import Environment
from aenv.cli import scaffold
from tests import browsers, venvs
from tests.command_line import aenv, environ, serving
from tests.gateways import running_gateway
from tests.system import require

pytestmark = pytest.mark.slow  # each test runs several commands


@pytest.fixture
async def chromium() -> AsyncIterator[Browser]:
    async with browsers.chromium() as browser:
        yield browser


def made(folder: Path, template: str) -> Path:
    """A new project of the template."""
    project = folder / "fresh"
    scaffold.write(project, scaffold.render(template, "fresh", "1.0.0"))
    return project


@pytest.mark.timeout(300)  # those with packages of others install them first
@pytest.mark.parametrize("template", scaffold.TEMPLATES)
def test_a_new_project_passes_its_tests_and_its_validation_untouched(tmp_path: Path, template: str) -> None:
    variables = environ(AENV_HOME=str(tmp_path / "home"), HOME=str(tmp_path))
    if template == "browser":
        require("chromium", "chromium")
    if template == "fastmcp":
        venvs.judge("fastmcp2")  # where that cannot be had, its own packages cannot either
    assert aenv("init", "fresh", "-t", template, cwd=tmp_path, env=variables).returncode == 0
    project = tmp_path / "fresh"
    done = aenv("test", cwd=project, env=variables)
    assert done.returncode == 0, done.stdout + done.stderr
    assert " passed" in done.stdout
    assert "skipped" not in done.stdout
    done = aenv("validate", cwd=project, env=variables)
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.splitlines()[-1] == "valid"


async def test_a_page_of_the_web_app_shows_a_change_of_its_author_at_once(
    tmp_path: Path, chromium: Browser
) -> None:
    project = made(tmp_path, "web-app")
    variables = environ(PORT="0")
    with serving("run", "--port", "0", "--control-port", "0", cwd=project, env=variables) as server:
        (said,) = server.until("the page is on ", on="stderr")[-1:]
        async with browsers.window(chromium) as window:
            page = window.page
            async with page.expect_response("**/changes"):
                await page.goto(said.rpartition(" ")[2])
            await page.click("#count")
            style = project / "src" / "app" / "style.css"
            style.write_text(style.read_text().replace("rebeccapurple", "rgb(1, 2, 3)"))
            coloured = "getComputedStyle(document.querySelector('#count')).backgroundColor === 'rgb(1, 2, 3)'"
            await page.wait_for_function(coloured)
            assert await page.inner_text("#count") == "1"  # the page was not loaded again
            index = project / "src" / "app" / "index.html"
            index.write_text(index.read_text().replace("<h1>Hello", "<h1>Changed"))
            await window.see("Changed")


async def test_a_page_of_an_instance_shows_what_an_agent_writes_there(tmp_path: Path, chromium: Browser) -> None:
    async with (
        running_gateway(tmp_path / "home", made(tmp_path, "web-app"), engine="native") as gateway,
        Environment("fresh@1.0.0", aenv_url=gateway.address.url) as env,
        browsers.window(chromium) as window,
    ):
        port = await env.call_function("page_port", {})
        async with window.page.expect_response("**/changes"):
            await window.page.goto(await env.presign_url(port))
        await env.call_tool("write_file", {"path": "main.js", "text": "document.body.append('written inside')"})
        await window.see("written inside")
