"""Serve the environment, let a scripted agent use it, and print what happens."""

from __future__ import annotations

import asyncio
import json
import os
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from aenv import Environment

PROJECT = Path(__file__).parent / "environment"
THINGS = {"rain": "umbrella", "sun": "hat", "snow": "gloves"}


@asynccontextmanager
async def served(project: Path) -> AsyncIterator[str]:
    """The URL of a runtime that serves a project, for the time of a block; what `aenv run` does."""
    ready, theirs = os.pipe()
    arguments = ("-m", "aenv.main", str(project), "--host", "127.0.0.1", "--port", "0", "--ready-fd", str(theirs))
    process = await asyncio.create_subprocess_exec(sys.executable, *arguments, pass_fds=(theirs,))
    os.close(theirs)  # ours, so that its end reads as end-of-file
    try:
        with os.fdopen(ready) as pipe:
            said = json.loads(await asyncio.to_thread(pipe.readline) or '{"error": "the runtime has ended"}')
        if "address" not in said:
            raise RuntimeError(said["error"])
        yield said["address"]
    finally:
        if process.returncode is None:
            process.terminate()
        await process.wait()


async def main() -> None:
    """One episode."""
    async with served(PROJECT) as url, Environment("weather-demo@1.0.0", runtime_url=url) as env:
        print("task:  ", (await env.call_function("get_task"))["instruction"])
        for tool in await env.list_tools():
            print("tool:  ", tool["name"], "-", tool["description"])
        weather = (await env.call_tool("get_weather", {"city": "Bergen"})).structured
        print("agent:  get_weather(Bergen) ->", weather)
        packed = await env.call_tool("pack", {"thing": THINGS[weather["sky"]]})
        print(f"agent:  pack({THINGS[weather['sky']]}) ->", packed.text)
        print("reward:", (await env.call_reward({}))["reward"])


if __name__ == "__main__":
    asyncio.run(main())
