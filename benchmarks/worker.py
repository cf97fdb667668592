"""The client under measurement: the same script runs with the published package and with ours.

Reads one JSON command a line (`{"do": "tool", "count": 100}`) and answers with a JSON list of seconds, or of
calls a second. The variables DUMMY_INSTANCE_IP and AENV_SYSTEM_URL choose what it talks to.
"""

from __future__ import annotations

import asyncio
import json
import logging
import os
import sys
from collections.abc import Awaitable, Callable
from time import perf_counter

from aenv import Environment

NAME = "portable@1.0.0"
AT_ONCE = 32


async def enter(_: Environment, count: int) -> list[float]:
    seconds = []
    for _ in range(count):
        begin = perf_counter()
        async with Environment(NAME):
            seconds.append(perf_counter() - begin)
    return seconds


async def tool(env: Environment, count: int) -> list[float]:
    return await _each(count, lambda: env.call_tool("echo", {"text": "hello"}))


async def through(env: Environment, count: int) -> list[float]:
    """Tool calls through the gateway, as a client on another host makes them: it has no socket of the instance."""
    assert env._launched
    env._launched.session.near = None
    return await tool(env, count)


async def function(env: Environment, count: int) -> list[float]:
    return await _each(count, lambda: env.call_function("multiply", {"a": 6, "b": 7}))


async def reward(env: Environment, count: int) -> list[float]:
    return await _each(count, lambda: env.call_reward({"answer": "42"}))


async def concurrent(env: Environment, count: int) -> list[float]:
    """Calls a second with 32 callers, for `count` seconds."""
    end = perf_counter() + count
    begin = perf_counter()
    made = await asyncio.gather(*(_call_until(env, end) for _ in range(AT_ONCE)))
    return [sum(made) / (perf_counter() - begin)]


async def _call_until(env: Environment, end: float) -> int:
    made = 0
    while perf_counter() < end:
        result = await env.call_tool("echo", {"text": "hello"})
        assert result.content == [{"type": "text", "text": "hello"}], result
        made += 1
    return made


async def _each(count: int, call: Callable[[], Awaitable[object]]) -> list[float]:
    seconds = []
    for _ in range(count):
        begin = perf_counter()
        await call()
        seconds.append(perf_counter() - begin)
    return seconds


MEASURES = {measure.__name__: measure for measure in (enter, tool, through, function, reward, concurrent)}


async def main() -> None:
    with os.fdopen(os.dup(1), "w") as answers:
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)  # the published package logs every call to stdout
        logging.disable(logging.CRITICAL)  # and neither side pays for it here
        loop = asyncio.get_running_loop()
        async with Environment(NAME) as env:
            # In a thread: the loop goes on, as in a program that does something between calls.
            while line := await loop.run_in_executor(None, sys.stdin.readline):
                command = json.loads(line)
                answer = await MEASURES[command["do"]](env, command["count"])
                print(json.dumps(answer), file=answers, flush=True)


if __name__ == "__main__":
    asyncio.run(main())
