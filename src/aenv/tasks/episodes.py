"""Episodes: one agent plays one task in one instance, and what came of it."""

from __future__ import annotations

import asyncio
import time
from dataclasses import dataclass, field
from typing import Any, Literal, Protocol

from ..errors import AEnvError
from . import rewards
from .instances import Instances, WatchedEnvironment
from .task import Task

Outcome = Literal["pass", "fail", "invalid", "error"]


@dataclass
class Spent:
    """What an agent used, and what was said, where it knows."""

    tokens_in: int | None = None
    tokens_out: int | None = None
    cost: float | None = None
    messages: list[dict[str, Any]] = field(default_factory=list)


class Agent(Protocol):
    """Plays tasks. `validation` asks for instances that show their gold; `asks` says that it reads the task."""

    name: str
    validation: bool
    asks: bool

    async def play(self, env: WatchedEnvironment, task: dict[str, Any], spent: Spent) -> None: ...

    async def close(self) -> None: ...


@dataclass(frozen=True)
class Episode:
    """A result, and the conversation that led to it."""

    result: dict[str, Any]
    messages: list[dict[str, Any]]


async def play(instances: Instances, task: Task, agent: Agent, *, offers_task: bool) -> Episode:
    """Play one task. What goes wrong on the way is a result with the outcome "error", not an exception."""
    spent = Spent()
    result: dict[str, Any] = {"task": task.id, "reward": None, "outcome": "error", "seconds": 0.0, "steps": 0}
    started = time.perf_counter()
    try:
        async with asyncio.timeout(instances.place.limit), instances.one(task, validation=agent.validation) as env:
            asked = agent.asks and offers_task
            about = {"id": task.id, **((await env.call_function("get_task")) if asked else {})}
            try:
                await agent.play(env, about, spent)
            finally:
                result["steps"] = env.steps
            judged = rewards.read(await env.call_reward({}))
            result.update(reward=judged.number, outcome=_outcome(judged))
            if judged.invalid:
                result["error"] = judged.invalid
    except TimeoutError:
        result["error"] = f"the episode took longer than {instances.place.limit:g} s"
    except AEnvError as error:
        result["error"] = error.message
    except Exception as error:  # boundary: the agent's code
        result["error"] = f"{type(error).__name__}: {error}"
    result["seconds"] = round(time.perf_counter() - started, 3)
    if spent.tokens_in is not None:
        result["tokens"] = {"in": spent.tokens_in, "out": spent.tokens_out or 0}
    if spent.cost is not None:
        result["cost"] = round(spent.cost, 6)
    return Episode(result, spent.messages)


def _outcome(reward: rewards.Reward) -> Outcome:
    if reward.invalid:
        return "invalid"
    return "pass" if reward.is_full else "fail"
