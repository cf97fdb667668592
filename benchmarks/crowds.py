"""Many instances of the native engine: created and destroyed at once, idle together, and beside a hostile one."""

from __future__ import annotations

import asyncio
import sys
import time
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, ExitStack, asynccontextmanager
from dataclasses import dataclass
from functools import partial
from statistics import median
from time import perf_counter

from aenv import Environment
from aenv.base import wire
from aenv.client.api import Api

from .measures import SHORT_ROUNDS, in_turns
from .native import COLD, NAME, Gateway, call, gateway
from .processes import bare_python, cpu_seconds, pss_bytes
from .report import Row

BURST = 500
BURSTS = 3
FEW, MANY = 10, 1_000
IDLE_SECONDS = 30  # the gateway looks after everything twice a minute, and that counts
TOGETHER = 100  # of those that are only to be there
NEIGHBOURS = 50
IGNITION = 30  # seconds in which a bomb takes what it can get
AWAKE = ("--freeze-after", "0")

_BODY = {"envName": NAME}


def rows() -> list[Row]:
    """What many cost, and that none of them can spoil it for the others."""
    return [*bursts(), *idle(), *bombs()]


# At once


def bursts() -> list[Row]:
    """All requests at the same time. The first burst meets a gateway that has made no instance yet: of that one
    only failures count.
    """
    creates, destroys, starts, failed = [], [], [], 0
    with bare_python() as python, gateway(*COLD) as cold:
        for _ in range(1 + BURSTS):
            starts += python()
            seconds, errors = cold.runner.run(create_all(cold.api, ids := new_ids(BURST)))
            creates.append((BURST - len(errors)) / seconds)
            failed += len(errors)
            destroys.append(BURST / cold.runner.run(destroy_all(cold.api, ids)))
            starts += python()
            for error in errors[:1]:
                print(f"a create failed: {error}", file=sys.stderr)
    what, created, destroyed = f"burst of {BURST} creates", median(creates[1:]), median(destroys[1:])
    reference = median(starts)
    in_r = f"in R (R {reference * 1e3:.2f} ms)"  # 117 and 300 a second where R is 12 ms
    return [
        Row(what, "/s", None, created, f"≥ 1.4 {in_r}", created * reference >= 1.4),
        Row(f"{what}, {1 + BURSTS} times: failed", "", None, failed, "0", failed == 0),
        Row(f"destroy, {BURST} at once", "/s", None, destroyed, f"≥ 3.6 {in_r}", destroyed * reference >= 3.6),
    ]


def new_ids(count: int) -> list[str]:
    return [wire.new_instance_id("portable") for _ in range(count)]


async def create_all(api: Api, ids: list[str]) -> tuple[float, list[BaseException]]:
    """Seconds until all requests were answered, and those answers that are errors."""
    begin = perf_counter()
    outcomes = await asyncio.gather(*(api.create_instance(id, _BODY) for id in ids), return_exceptions=True)
    return perf_counter() - begin, [one for one in outcomes if isinstance(one, BaseException)]


async def destroy_all(api: Api, ids: list[str]) -> float:
    begin = perf_counter()
    await asyncio.gather(*(api.delete_instance(id) for id in ids))
    return perf_counter() - begin


# Idle


def idle() -> list[Row]:
    """What instances that nobody calls take, and whether a create becomes slower by them."""
    with bare_python() as python, gateway(*COLD, *AWAKE) as crowd:
        ids = _fill(crowd, FEW)
        few = _starts_of_python(python, crowd)
        crowd.runner.run(destroy_all(crowd.api, ids))
    with bare_python() as python, gateway(*COLD, *AWAKE) as crowd:  # another, which has nothing to tidy up
        ids = _fill(crowd, MANY)
        time.sleep(1)  # the last work of the creates is over
        pss = pss_bytes(crowd.pid) / MANY / (1 << 20)
        before = cpu_seconds(crowd.pid)
        time.sleep(IDLE_SECONDS)
        percent = 100 * (cpu_seconds(crowd.pid) - before) / IDLE_SECONDS
        times = _starts_of_python(python, crowd) / few
        crowd.runner.run(destroy_all(crowd.api, ids))
    what = f"{MANY:,} idle instances"
    return [
        Row(f"{what}, PSS each, gateway and zygote included", "MiB", None, pss, "≤ 5 MiB", pss <= 5),
        Row(f"{what}, CPU of all in {IDLE_SECONDS} s", "% of a core", None, percent, "≤ 1 %", percent <= 1),
        Row(f"create to first answer, {MANY:,} live to {FEW} live", "×", None, times, "≤ 1.5 ×", times <= 1.5),
    ]


def _fill(crowd: Gateway, count: int) -> list[str]:
    ids = new_ids(count)
    for first in range(0, count, TOGETHER):
        _, errors = crowd.runner.run(create_all(crowd.api, ids[first : first + TOGETHER]))
        if errors:
            raise errors[0]
    return ids


def _starts_of_python(python: Callable[[], list[float]], crowd: Gateway) -> float:
    """How many R a create takes to its first answer: comparable with another minute's."""
    reference, seconds = in_turns(python, crowd.first_answers, rounds=SHORT_ROUNDS)
    return seconds / reference


# Hostile


@dataclass(frozen=True)
class Bomb:
    """A program that takes all it can get, again and again, and how to see in `usage` that it has it."""

    what: str
    needs: str
    """What must be enforced to hold it, or to see it: elsewhere the bomb stays at home."""
    program: str
    has: Callable[[dict[str, int]], bool]


_ROOM = {"cpu": "1", "memory": "256Mi", "ephemeralStorage": "64Mi", "pids": "64"}
_ALMOST = 0.9

BOMBS = (
    Bomb(
        "fork bomb",
        "pids",
        "import os\nwhile True:\n try: os.fork()\n except OSError: pass",
        lambda used: used["processes"] >= _ALMOST * 64,
    ),
    Bomb(
        # The child is the one that is killed for it.
        "memory bomb",
        "memory",
        "import os\nwhile True:\n held = []\n if os.fork():\n  os.wait()\n else:\n"
        "  while True: held.append(b'x' * (1 << 20) + bytes(len(held)))",
        lambda used: used["memory_bytes"] >= _ALMOST * (256 << 20),
    ),
    Bomb(
        # Files of an instance count as its memory.
        "disk filler",
        "memory",
        "block = b'x' * (1 << 20)\nwhile True:\n try:\n  with open('fill', 'wb', 0) as file:\n"
        "   while True: file.write(block)\n except OSError: pass",
        lambda used: used["memory_bytes"] >= _ALMOST * (64 << 20),
    ),
)


def bombs() -> list[Row]:
    """Each beside neighbours that are called one after the other; in turns with their usual calls."""
    with ExitStack() as stack:
        crowd = stack.enter_context(gateway(*COLD, *AWAKE))
        run = crowd.runner.run
        neighbours = AsyncExitStack()
        stack.callback(lambda: run(neighbours.aclose()))
        envs = [run(neighbours.enter_async_context(_environment(crowd))) for _ in range(NEIGHBOURS)]
        not_enforced = run(_not_enforced(crowd.api, envs[0]))
        dropped = [bomb for bomb in BOMBS if bomb.needs not in not_enforced]
        for bomb in BOMBS:
            if bomb not in dropped:
                print(f"left out: {bomb.what}: {not_enforced[bomb.needs]}", file=sys.stderr)

        async def ask() -> list[float]:
            return [await call(env) for env in envs]

        async def ask_beside(bomb: Bomb) -> list[float]:
            async with _exploding(crowd, bomb):
                return await ask()

        usual, *beside = in_turns(
            lambda: run(ask()), *(partial(lambda bomb: run(ask_beside(bomb)), bomb) for bomb in dropped)
        )
    return [_row(bomb, usual, seconds) for bomb, seconds in zip(dropped, beside, strict=True)]


def _row(bomb: Bomb, usual: float, seconds: float) -> Row:
    what, times = f"tool call P50 of {NEIGHBOURS} neighbours, {bomb.what} beside them", seconds / usual
    return Row(what, "×", None, times, f"≤ 2 × (usually {usual * 1e3:.2f} ms)", times <= 2)


def _environment(crowd: Gateway, resources: dict[str, str] | None = None) -> Environment:
    return Environment(NAME, aenv_url=crowd.url, runtime_url="", resources=resources)


async def _not_enforced(api: Api, env: Environment) -> dict[str, str]:
    said = (await api.get_instance(str(env.instance_id))).not_enforced
    return {name: reason for name, _, reason in (line.partition(": ") for line in said)}


@asynccontextmanager
async def _exploding(crowd: Gateway, bomb: Bomb) -> AsyncIterator[None]:
    """The bomb has all that it gets, and goes on, inside the block. RuntimeError when it ended meanwhile."""
    async with _environment(crowd, _ROOM) as env:
        running = asyncio.create_task(env.exec(["python3", "-c", bomb.program]))
        try:
            async with asyncio.timeout(IGNITION):
                while not running.done() and not bomb.has(await _used(crowd.api, env)):
                    pass  # asked again: nobody tells when it is at its limit
            yield
            if running.done():
                raise RuntimeError(f"the {bomb.what} has ended: {running.exception() or running.result()}")
        finally:
            running.cancel()
            await asyncio.wait({running})


async def _used(api: Api, env: Environment) -> dict[str, int]:
    instances = (await api.call("GET", "/env-instances/usage"))["instances"]
    return next(dict(instance) for instance in instances if instance["id"] == env.instance_id)
