"""A web browser for agents: tools to see and use pages, a local site with tasks, and rewards by its state."""

from __future__ import annotations

import base64
from collections.abc import AsyncIterator
from typing import Annotated, Any

from browser_driver import Browser
from browser_site import Server, served
from browser_tasks import DEFAULT, Episode, cheats, listed

from aenv import (
    Context,
    Depends,
    Image,
    ToolError,
    register_function,
    register_reset,
    register_reward,
    register_tool,
)


class World:
    """The episode of an instance, the server of its site, and the browser that looks at it."""

    def __init__(self, episode: Episode, server: Server, browser: Browser) -> None:
        self.episode, self.browser = episode, browser
        self._server = server

    async def begin(self, episode: Episode) -> None:
        """Another episode: a new site, and a browser that has seen none."""
        await self.browser.forget()
        self.episode, self._server.site = episode, episode.site


async def open_world(context: Context) -> AsyncIterator[World]:
    """Made at the first call that needs it; the browser itself is begun by the first tool."""
    episode = Episode(context.variables.get("BROWSER_TASK") or DEFAULT, _seed(context.variables))
    with served(episode.site) as server:
        browser = Browser(server.port, context.variables)
        yield World(episode, server, browser)
        await browser.close()


InWorld = Annotated[World, Depends(open_world)]


@register_tool
async def goto(world: InWorld, url: str) -> dict[str, Any]:
    """Open an address.

    Args:
        url: An http or https address, or a path of the site such as "/shop".
    """
    return await world.browser.act(lambda view: view.goto(url))


@register_tool
async def click(
    world: InWorld, ref: str = "", selector: str = "", text: str = "", x: int | None = None, y: int | None = None
) -> dict[str, Any]:
    """Click an element, or a point. Give exactly one of ref, selector, text, or x and y.

    Args:
        ref: A ref of accessibility_tree, such as "e7".
        selector: A CSS selector, or a role and a name such as 'role=button[name="Close"]'.
        text: The text that the element shows.
        x: Pixels from the left edge of the screenshot.
        y: Pixels from its upper edge.
    """
    if x is None and y is None:
        return await world.browser.act(lambda view: view.click(ref, selector, text))
    if x is None or y is None or ref or selector or text:
        raise ToolError("a point is both x and y, without ref, selector or text")
    return await world.browser.act(lambda view: view.click_at(x, y))


@register_tool(name="type")
async def type_text(
    world: InWorld, text: str, ref: str = "", selector: str = "", submit: bool = False
) -> dict[str, Any]:
    """Write a text into a field, in place of what it holds. Without ref and selector: into the one with the focus.

    Args:
        text: The text.
        ref: A ref of accessibility_tree, such as "e7".
        selector: A CSS selector, or a role and a name.
        submit: Press Enter afterwards.
    """
    return await world.browser.act(lambda view: view.type(ref, selector, text, submit))


@register_tool
async def select(world: InWorld, option: str, ref: str = "", selector: str = "") -> dict[str, Any]:
    """Choose an option of a list. Give one of ref and selector.

    Args:
        option: What the option shows, or its value.
        ref: A ref of accessibility_tree, such as "e7".
        selector: A CSS selector.
    """
    return await world.browser.act(lambda view: view.select(ref, selector, option))


@register_tool
async def press(world: InWorld, key: str) -> dict[str, Any]:
    """Press a key, or several at a time.

    Args:
        key: Such as "Enter", "Tab", "Escape", "ArrowDown", "a" or "Control+A".
    """
    return await world.browser.act(lambda view: view.press(key))


@register_tool
async def scroll(world: InWorld, pixels: int = 600) -> dict[str, Any]:
    """Scroll the page down, or up with a negative number.

    Args:
        pixels: How far.
    """
    return await world.browser.act(lambda view: view.scroll(pixels))


@register_tool
async def back(world: InWorld) -> dict[str, Any]:
    """Go back to the page before."""
    return await world.browser.act(lambda view: view.back())


@register_tool
async def answer_dialog(world: InWorld, accept: bool, text: str | None = None) -> dict[str, Any]:
    """Answer the dialog that a page has opened; while one is open, nothing else can be done.

    Args:
        accept: OK; with false, Cancel.
        text: What to write into a prompt, in place of its default.
    """
    return await world.browser.do(lambda window: window.answer(accept, text))


@register_tool(annotations={"readOnlyHint": True})
async def tabs(world: InWorld) -> list[dict[str, Any]]:
    """The tabs that are open, and which of them is shown."""
    return await world.browser.do(lambda window: window.tabs())


@register_tool
async def open_tab(world: InWorld, url: str = "") -> dict[str, Any]:
    """Open a tab and show it.

    Args:
        url: An http or https address, or a path of the site; the site's first page without one.
    """
    return await world.browser.do(lambda window: window.open_tab(url))


@register_tool
async def switch_tab(world: InWorld, tab: int) -> dict[str, Any]:
    """Show another tab.

    Args:
        tab: Its number, as tabs gives it.
    """
    return await world.browser.do(lambda window: window.switch(tab))


@register_tool
async def close_tab(world: InWorld, tab: int) -> dict[str, Any]:
    """Close a tab.

    Args:
        tab: Its number, as tabs gives it.
    """
    return await world.browser.do(lambda window: window.close_tab(tab))


@register_tool(annotations={"readOnlyHint": True})
async def screenshot(world: InWorld, full_page: bool = False) -> Image:
    """A picture of what the window shows.

    Args:
        full_page: The whole page, also what is below the window's edge.
    """
    return Image(await world.browser.look(lambda view: view.screenshot(full_page)), "image/png")


@register_tool(annotations={"readOnlyHint": True})
async def accessibility_tree(world: InWorld) -> str:
    """The page as a tree of roles and names. What can be acted on has a ref in brackets, valid on this page."""
    return await world.browser.look(lambda view: view.tree())


@register_tool(annotations={"readOnlyHint": True})
async def current_page(world: InWorld) -> dict[str, Any]:
    """Address, title and text of the page."""
    return await world.browser.look(lambda view: view.text())


@register_function
async def live_picture(world: InWorld) -> dict[str, Any]:
    """What the window shows, for a person who watches: JPEG in base64, or why there is none. Waits for no call."""
    shot = await world.browser.glance()
    reason = "" if shot else "the browser is at work" if world.browser.is_busy else "no tool was called yet"
    return {"picture": base64.b64encode(shot).decode() if shot else None, "reason": reason}


@register_reward
def task_reward(world: InWorld) -> dict[str, Any]:
    """1.0 when the site's state is exactly what the task asks for. Without a browser there is no verdict."""
    world.browser.check()
    return world.episode.verdict()


@register_reset
async def start_over(world: InWorld, seed: int | None = None, task: str = "") -> dict[str, Any]:
    """A new site, for the same task and seed unless others are given; a browser without cookies."""
    before = world.episode
    await world.begin(Episode(task or before.task, before.seed if seed is None else seed))
    return world.episode.about()


@register_function
def list_tasks(split: str = "") -> list[dict[str, Any]]:
    """Tasks and the variables that choose them; splits are "test" and "train"."""
    return listed(split)


@register_function
def get_task(world: InWorld) -> dict[str, Any]:
    """What this instance's task asks for."""
    return world.episode.about()


@register_function
async def play_gold(world: InWorld, context: Context) -> dict[str, Any]:
    """Do the task with the tools that an agent has."""
    _needs_validation(context, "play_gold")
    tools: dict[str, Any] = {"goto": goto, "click": click, "type": type_text, "select": select}
    tools |= {"answer_dialog": answer_dialog, "switch_tab": switch_tab, "close_tab": close_tab}
    for one in world.episode.assignment.gold:
        await tools[one["tool"]](**one["arguments"], world=world)
    return {"steps": len(world.episode.assignment.gold)}


@register_function
def list_cheats(context: Context) -> list[dict[str, Any]]:
    """Attempts to get the reward without doing the task."""
    _needs_validation(context, "list_cheats")
    return cheats()


@register_function
def known_exceptions() -> dict[str, dict[str, str]]:
    """There are none."""
    return {"gold": {}, "empty": {}}


def _needs_validation(context: Context, name: str) -> None:
    if context.variables.get("AENV_VALIDATION") != "1":
        raise ToolError(f"{name} is for validation; create the instance with AENV_VALIDATION=1")


def _seed(variables: Any) -> int:
    text = variables.get("BROWSER_SEED") or "0"
    if not text.isdecimal() or len(text) > 18:
        raise ToolError(f"BROWSER_SEED is {text!r}; give a whole number")
    return int(text)
