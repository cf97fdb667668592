"""The forms of the environment centre, made from schemas, and the code that it gives to copy."""

from __future__ import annotations

import ast
import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from playwright.async_api import expect

from tests.browsers import Window, chromium, window
from tests.command_line import aenv, environ
from tests.gateways import Gateway, make_project, running_gateway

pytestmark = [pytest.mark.slow, pytest.mark.timeout(200)]

CODE = '''
from enum import Enum
from typing import Optional

from pydantic import BaseModel
from aenv import register_function, register_reward, register_tool

class Colour(Enum):
    red = "red"
    blue = "blue"

class Point(BaseModel):
    x: int
    colour: Colour = Colour.red

@register_tool
def draw(at: Point, colour: Colour, edge: Optional[Colour] = None) -> str:
    """Draw."""
    return f"{at.x} {colour.value} {edge and edge.value}"

@register_function
def count(words: str, twice: bool = True) -> int:
    """Count."""
    return len(words)

@register_reward
def judge(answer: str, weight: float = 1.0) -> float:
    """Judge."""
    return len(answer) * weight / 10

@register_reward
def style(neat: bool = False) -> float:
    """Judge the style."""
    return 1.0 if neat else 0.25
'''
README = "- [x] made\n- [ ] tried\n\n3. third\n"


@pytest.fixture
async def gateway(tmp_path: Path) -> AsyncIterator[Gateway]:
    project = make_project(tmp_path, "drawing", code=CODE)
    (project / "README.md").write_text(README)
    async with running_gateway(tmp_path / "home") as running:
        told = environ(AENV_SYSTEM_URL=running.address.url, AENV_HOME=str(tmp_path / "client"))
        # It loads the project, and tells the hub the schemas that it has then.
        pushed = await asyncio.to_thread(aenv, "push", project, env=told)
        assert pushed.returncode == 0, pushed.stderr
        yield running


@pytest.fixture
async def tab(gateway: Gateway) -> AsyncIterator[Window]:
    async with chromium() as browser, window(browser) as opened:
        await opened.page.goto(f"{gateway.address.url}/#/environments/drawing/1.0.0")
        yield opened


async def test_an_environment_tells_the_choices_of_its_types_and_the_parameters_of_its_functions(
    tab: Window,
) -> None:
    page = tab.page
    await expect(page.get_by_role("listitem").filter(has_text="made")).to_have_text("☑ made")
    await expect(page.get_by_role("listitem").filter(has_text="tried")).to_have_text("☐ tried")
    await expect(page.locator(".markdown ol")).to_have_attribute("start", "3")
    await page.get_by_role("tab", name="Tools").click()
    await expect(page.get_by_role("row").filter(has_text="edge")).to_contain_text("red | blue or null")
    await page.get_by_role("tab", name="Functions").click()
    await expect(page.get_by_role("row").filter(has_text="twice")).to_contain_text("boolean")
    await expect(page.get_by_role("row").filter(has_text="twice")).to_contain_text("true")
    await page.get_by_role("tab", name="Use it").click()
    await tab.see('call_tool("draw", {"at": {"x": 1}, "colour": "red"})')
    assert await page.get_by_text("aenv eval").count() == 0  # it has no tasks
    await page.get_by_text("Gymnasium", exact=True).click()
    await tab.see("set AENV_SYSTEM_URL=http://127.0.0.1:")
    codes = await page.locator("details.use code").all_text_contents()
    programs = [code for code in codes if not code.startswith("#")]  # one is a configuration in YAML
    assert len(programs) == len(codes) - 1 and all("drawing@1.0.0" in code for code in codes)
    for program in programs:
        ast.parse(program)
    assert await tab.violations() == []


async def test_a_form_offers_the_choices_of_a_type_and_what_a_reward_takes(tab: Window) -> None:
    page = tab.page
    await page.get_by_role("button", name="Start an instance").click()
    await expect(page.get_by_label("at needed")).to_have_attribute("placeholder", 'JSON, as {"x":1}')
    await page.get_by_label("at needed").fill('{"x": 2}')
    await page.get_by_label("colour").select_option("blue")
    await page.get_by_label("edge").select_option("red")
    call = page.get_by_role("button", name="Call", exact=True)
    await call.click()
    await expect(page.locator(".called").first).to_contain_text("2 blue red")
    await page.get_by_label("Tool").select_option("reward of the task")
    await page.get_by_label("answer").fill("four")
    await call.click()
    await expect(page.locator(".called").first).to_contain_text("0.4")
    await page.get_by_label("Tool").select_option("reward style")
    await page.get_by_label("neat").check()
    await call.click()
    await expect(page.locator(".called")).to_have_count(3)
    await expect(page.locator(".called").first).to_contain_text("1")
    assert await tab.violations() == []
    await page.get_by_role("tab", name="Calls").click()
    await expect(page.get_by_role("row").filter(has_text="draw")).to_contain_text('"colour":"blue"')
    await expect(page.get_by_role("row").filter(has_text="judge")).to_contain_text("ok")
    assert await tab.violations() == []
