"""Where episodes are played: instances of gsm-tools, each used again for one episode after the other.

Lanes take turns: while the tools of one lane run, the policy speaks in another. So the trainer waits for
environments only when all lanes do, and `LaneClock` knows for how long.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, TypeVar

from aenv import AEnvError, Environment

from .dialogue import PlayedEpisode, Policy, ToolCall, Transcript

T = TypeVar("T")
ENVIRONMENT = "gsm-tools@1.0.0"
_AT_ONCE = 64  # instances of one create
_TTL = "3h"


class LaneClock:
    """Time that the model takes, in the one thread that computes; the rest is time in which it waits."""

    def __init__(self, settle: Callable[[], None] = lambda: None) -> None:
        self.computing = 0.0
        self._settle = settle  # waits for the device: work on a GPU is only begun when a call returns
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="policy")

    async def compute(self, work: Callable[..., T], *arguments: Any) -> T:
        """The result of `work`, made in the thread of the model."""
        return await asyncio.get_running_loop().run_in_executor(self._thread, self._timed, work, *arguments)

    def _timed(self, work: Callable[..., T], *arguments: Any) -> T:
        start = time.perf_counter()
        try:
            done = work(*arguments)
            self._settle()
            return done
        finally:
            self.computing += time.perf_counter() - start

    def close(self) -> None:
        self._thread.shutdown()


class Arena:
    """Instances in lanes. Use as a context: leaving ends them all."""

    def __init__(self, instances: int, lanes: int, clock: LaneClock) -> None:
        self._clock = clock
        self._environments: list[Environment] = []
        self._count = instances
        self._lanes = min(lanes, instances)
        self.lost = 0
        """Episodes that the platform lost; they teach nothing, and do not count as a reward of 0."""

    async def __aenter__(self) -> Arena:
        try:
            while len(self._environments) < self._count:
                wanted = min(_AT_ONCE, self._count - len(self._environments))
                self._environments += await Environment.create_many(wanted, ENVIRONMENT, ttl=_TTL)
        except BaseException:
            await self.__aexit__()
            raise
        return self

    async def __aexit__(self, *exc: object) -> None:
        await asyncio.gather(*(env.release() for env in self._environments))

    @staticmethod
    async def tasks(split: str, levels: Sequence[int], count: int) -> list[str]:
        """Names of tasks, of all levels in turn."""
        each = -(-count // len(levels))
        found = []
        for level in levels:
            variables = {"GSM_DIFFICULTY": str(level), "GSM_COUNT": str(each)}
            async with Environment(ENVIRONMENT, environment_variables=variables) as env:
                found.append([task["id"] for task in await env.call_function("list_tasks", {"split": split})])
        return [id for group in zip(*found, strict=True) for id in group][:count]

    async def problems(self, tasks: Sequence[str]) -> list[str]:
        """The texts of tasks."""
        found = []
        for start in range(0, len(tasks), self._count):
            part = tasks[start : start + self._count]
            begun = (_begin(env, task) for env, task in zip(self._environments, part, strict=False))
            found += await asyncio.gather(*begun)
        return found

    async def play(self, policy: Policy, tasks: Sequence[str]) -> list[PlayedEpisode]:
        """One episode for each of `tasks`, in their order."""
        waiting = list(enumerate(tasks))[::-1]
        played: dict[int, PlayedEpisode] = {}

        async def lane(first: int) -> None:
            slots = range(first, self._count, self._lanes)
            while waiting:
                taken = [waiting.pop() for _ in range(min(len(slots), len(waiting)))]
                episodes = await self._play_lane(policy, slots, [task for _, task in taken])
                played.update(zip((index for index, _ in taken), episodes, strict=True))

        async with asyncio.TaskGroup() as group:
            for first in range(self._lanes):
                group.create_task(lane(first))
        return [played[index] for index in range(len(tasks))]

    async def _play_lane(self, policy: Policy, slots: range, tasks: Sequence[str]) -> list[PlayedEpisode]:
        environments = [self._environments[slot] for slot in slots[: len(tasks)]]
        lost: set[int] = set()

        async def tried(row: int, work: Callable[..., Any], *arguments: Any) -> Any:
            try:
                return await work(environments[row], *arguments)
            except AEnvError:
                lost.add(row)
                return None

        problems = await asyncio.gather(*(tried(row, _begin, task) for row, task in enumerate(tasks)))
        talk = await self._clock.compute(policy.open, [problem or "" for problem in problems])
        calls = [0] * len(tasks)
        active = [row for row in range(len(tasks)) if row not in lost]
        for _ in range(max(map(_turns, tasks))):
            said = await self._clock.compute(talk.speak, active)
            asked = {row: call for row, call in said.items() if call is not None}
            results = await asyncio.gather(*(tried(row, _call, call) for row, call in asked.items()))
            for row, result in zip(asked, results, strict=True):
                calls[row] += 1
                if result is not None:
                    talk.hear(row, *result)
            over = {row for row, call in asked.items() if call.is_final} | lost
            active = [row for row in active if row in asked and row not in over]
            if not active:
                break
        judged = [row for row in range(len(tasks)) if row not in lost]
        rewards = dict(zip(judged, await asyncio.gather(*(tried(row, _judge) for row in judged)), strict=True))
        await asyncio.gather(*(self._replace(slots[row]) for row in lost))
        return [
            PlayedEpisode(
                task, talk.transcripts[row] if problems[row] else Transcript(), rewards.get(row), calls[row]
            )
            for row, task in enumerate(tasks)
        ]

    async def _replace(self, slot: int) -> None:
        """A new instance in the place of one that failed."""
        self.lost += 1
        await self._environments[slot].release()
        self._environments[slot] = Environment(ENVIRONMENT, ttl=_TTL)
        await self._environments[slot].initialize()


def _turns(task: str) -> int:
    """A level takes as many steps, an answer one more; and one to spare."""
    return int(task.partition("-")[0]) + 2


async def _begin(env: Environment, task: str) -> str:
    level, _, seed = task.partition("-")
    return str((await env.reset(seed=int(seed), difficulty=int(level)))["instruction"])


async def _call(env: Environment, call: ToolCall) -> tuple[str, bool]:
    result = await env.call_tool(call.tool, dict(call.arguments))
    return result.text, result.is_error


async def _judge(env: Environment) -> float:
    return float((await env.call_reward({}))["reward"])
