"""`aenv demo`: the main job in a second, on free ports and in a temporary folder that is removed again."""

from __future__ import annotations

import json
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import AsyncExitStack, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import click

from . import output, scaffold

if TYPE_CHECKING:
    from ..client.environment import Environment

_NAME, _VERSION = "demo", "1.0.0"
_LIFE = "1m"  # of what a demo that is killed leaves behind


@click.command("demo")
def command() -> None:
    """Make an environment, start an instance of it, call a tool, a function and a reward, and clean up."""
    import asyncio

    with tempfile.TemporaryDirectory(prefix="aenv-demo-") as folder:
        asyncio.run(_demo(Path(folder)))
    output.data("done; nothing is left behind")


async def _demo(folder: Path) -> None:
    project = folder / _NAME
    with _step("made an environment's project, from a template") as say:
        files = scaffold.write(project, scaffold.render("default", _NAME, _VERSION))
        say(f"{_NAME}@{_VERSION}, {len(files)} files")
    with _step("imported the SDK"):
        from . import target

    from .own_gateway import own_gateway

    async with AsyncExitStack() as stack:
        with _step("started a gateway") as say:
            url = await stack.enter_async_context(own_gateway(project, folder / "home", idle_exit=_LIFE))
            say(url)
        env = target.behind_gateway(f"{_NAME}@{_VERSION}", url, ttl=_LIFE)
        try:
            with _step("started an instance") as say:
                await env.initialize()
                say(str(env.instance_id))
            await _call(env)
        finally:
            with _step("ended the instance"):
                await env.release()


async def _call(env: Environment) -> None:
    with _step("listed its tools") as say:
        say(", ".join(tool["name"] for tool in await env.list_tools()))
    with _step("called a tool") as say:
        result = await env.call_tool("my_custom_echo_env", {"content": "hello"})
        say(f"my_custom_echo_env(content='hello') → {result.text}")
    with _step("called a function") as say:
        answer = await env.call_function("word_count", {"text": "one two three"})
        say(f"word_count(text='one two three') → {answer}")
    with _step("called a reward") as say:
        reward = await env.call_reward({"task": "say hello"})
        say(f"my_custom_reward(task='say hello') → {json.dumps(reward)}")


@contextmanager
def _step(what: str) -> Iterator[Callable[[str], None]]:
    """Time the block, and print it with what it said about itself."""
    said: list[str] = []
    started = time.perf_counter()
    yield said.append
    milliseconds = (time.perf_counter() - started) * 1000
    output.data(f"{milliseconds:7.1f} ms  {': '.join([what, *said])}")
