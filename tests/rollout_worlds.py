"""An environment in which everything can go wrong, behind a gateway in a process of its own."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import Any

from aenv.rollouts import Outcome, RolloutResult, Runner
from tests.command_line import Server, serving
from tests.gateways import make_project
from tests.native import traces
from tests.task_environments import SUMS

TROUBLE = '''
@register_tool
def die() -> None:
    """End like a crash."""
    import os

    os._exit(9)


@register_tool
async def hang() -> None:
    """Never answer."""
    import asyncio

    await asyncio.Event().wait()


@register_tool
def fill(megabytes: int) -> int:
    """Use memory."""
    return len(bytes(range(256)) * (megabytes << 12))


@register_tool
def long(size: int) -> str:
    """A long text."""
    return "x" * size


@register_function
def name_of(value: int) -> dict:
    """A function."""
    return {"value": value}


@register_reward
def judged() -> float:
    """Another reward."""
    return 0.0
'''
PARTS = SUMS.replace(
    "    return float(sheet.answer ==",
    '    return {"reward": float(sheet.answer is not None), "format": True, "parts": {"sum": 0.5}}\n'
    "    return float(sheet.answer ==",
)
SLOW_REWARD = SUMS.replace(
    "    return float(sheet.answer ==",
    "    import time; time.sleep(60)\n    return float(sheet.answer ==",
)
PROJECTS = {"trouble": SUMS + TROUBLE, "parts": PARTS, "slow-reward": SLOW_REWARD}


@contextmanager
def gateway(folder: Path, **projects: str) -> Iterator[tuple[str, Server]]:
    """A gateway that isolates, with PROJECTS and others: its URL, and its process."""
    made = [
        make_project(folder, name, code=code, memory="192Mi") for name, code in {**PROJECTS, **projects}.items()
    ]
    options = ("--port", "0", "--data-port", "0", "--engine", "native", "--home", folder / "home")
    with serving("serve", *made, *options, "--log-level", "WARNING") as server:
        *_, line = server.until("AENV_SYSTEM_URL", on="stderr")
        yield line.partition("=")[2], server
    assert traces(folder / "home") == []


@asynccontextmanager
async def answering(status: int, body: bytes) -> AsyncIterator[int]:
    """A server that stands in the way, and gives every request this answer: its port."""

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while True:
                head = (await reader.readuntil(b"\r\n\r\n")).decode()
                lengths = [line[16:] for line in head.lower().splitlines() if line.startswith("content-length: ")]
                await reader.readexactly(int(lengths[0]) if lengths else 0)
                writer.write(f"HTTP/1.1 {status} X\r\ncontent-length: {len(body)}\r\n\r\n".encode() + body)
        except (asyncio.IncompleteReadError, ConnectionError):
            pass
        finally:
            writer.close()

    # Held, since a server does not end its connections.
    serving: set[asyncio.Task[None]] = set()

    def accept(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        serving.add(asyncio.get_running_loop().create_task(serve(reader, writer)))

    server = await asyncio.start_server(accept, "127.0.0.1", 0)
    async with server:
        yield server.sockets[0].getsockname()[1]
    for task in serving:
        task.cancel()
    await asyncio.gather(*serving, return_exceptions=True)


async def solve(env: Any, task: dict[str, Any]) -> str:
    await env.call_tool("submit", {"answer": 2 if task["id"] == "two" else 6})
    return f"the answer of {task['instruction']!r} is submitted"


async def run(url: str, agent: Any, env: str = "trouble", **options: Any) -> list[RolloutResult]:
    own = {name: options.pop(name) for name in ("retries", "timeouts", "max_calls") if name in options}
    async with Runner(4, url=url, **{"retries": 0, **own}) as runner:
        return await runner.run(env, agent, **options)


async def one(url: str, agent: Any, **options: Any) -> RolloutResult:
    (found,) = await run(url, agent, tasks=["two"], **options)
    assert (found.reward is None) is (found.outcome != Outcome.REWARD)
    assert bool(found.reason) is (found.reward is None)
    return found
