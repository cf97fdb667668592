"""Plays rollouts in a process of its own, and prints what that took: `python -m benchmarks.rollout_player`."""

from __future__ import annotations

import asyncio
import gc
import json
import sys
import time
from pathlib import Path
from statistics import median
from typing import Any

import psutil

from aenv import Environment
from aenv.rollouts import Outcome, Runner, Timeouts

from .processes import cpu_seconds

ENVIRONMENT = "steps@1.0.0"


async def overhead(url: str, out: str, calls: int, rounds: int) -> dict[str, Any]:
    """The CPU seconds of so many calls, bare and in one rollout; medians of rounds in turns."""

    async def agent(env: Any, task: dict[str, Any]) -> None:
        spent.append(await _called(env, calls))

    bare: list[float] = []
    spent: list[float] = []
    async with Runner(1, url=url) as runner, Environment(ENVIRONMENT, aenv_url=url, runtime_url="") as env:
        for number in range(rounds + 1):
            bare.append(await _called(env, calls))
            await runner.run(ENVIRONMENT, agent, [{"id": "one"}], out=f"{out}-{number}")
    return {"bare": median(bare[1:]), "runner": median(spent[1:])}  # the first round warms up


async def _called(env: Any, calls: int) -> float:
    began = time.process_time()
    for number in range(calls):
        await env.call_tool("echo", {"text": f"hello {number}"})
    return time.process_time() - began


async def crowd(url: str, out: str, gateway: int, count: int, steps: int) -> dict[str, Any]:
    """So many rollouts at once, of instances of the gateway with that pid.

    Memory is of this process when all have their instances and have made their steps. CPU time is of this process,
    the gateway and all instances, from the first step to the last.
    """
    together = asyncio.Barrier(count)
    process = psutil.Process()
    began = ended = 0.0
    most = 0
    cpu: list[float] = []

    async def agent(env: Any, task: dict[str, Any]) -> None:
        nonlocal began, ended, most
        async with together:
            if not cpu:
                cpu.append(time.process_time() + cpu_seconds(gateway))
        async with together:  # counted, and no step is made yet
            began = began or time.perf_counter()
        for number in range(steps):
            await env.call_tool("echo", {"text": f"hello {number}"})
        ended = time.perf_counter()
        async with together:
            if not most:
                most = process.memory_info().rss
                cpu.append(time.process_time() + cpu_seconds(gateway))

    async with Runner(count, url=url, timeouts=Timeouts(whole=1800)) as runner:
        await runner.run(ENVIRONMENT, _nothing, [{"id": "first"}])  # what every run loads is loaded
        gc.collect()
        before = process.memory_info().rss
        tasks = [{"id": f"task-{number}"} for number in range(count)]
        found = await runner.run(ENVIRONMENT, agent, tasks, out=out)
    judged = [one for one in found if one.outcome is Outcome.REWARD and one.steps == steps]
    for one in found:
        if one not in judged:
            print(f"{one.task}: {one.outcome}: {one.reason}", file=sys.stderr)
            break
    return {
        "steps": count * steps,
        "seconds": ended - began,
        "judged": len(judged),
        "written": _written(out),
        "bytes": most - before,
        "cpu": cpu[1] - cpu[0],
    }


def _written(out: str) -> int:
    """The calls of tools that the journal has."""
    with Path(out).open(encoding="utf-8") as lines:
        return sum(json.loads(line).get("tool") == "echo" for line in lines)


async def _nothing(env: Any, task: dict[str, Any]) -> None:
    await env.call_tool("echo", {"text": "hello"})


if __name__ == "__main__":
    url, out, what, *numbers = sys.argv[1:]
    measure = {"overhead": overhead, "crowd": crowd}[what]
    print(json.dumps(asyncio.run(measure(url, str(Path(out)), *map(int, numbers)))))
