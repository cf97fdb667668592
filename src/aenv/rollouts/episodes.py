"""Episodes: one agent plays one task in one instance, and what came of it."""

from __future__ import annotations

import asyncio
import time
from dataclasses import dataclass, field
from typing import Any, Protocol

from ..base.errors import (
    AEnvError,
    NetworkError,
    NotJudged,
    ToolServerError,
    ToolTimeoutError,
    TooManyRequests,
    Unavailable,
    UnrecoverableEnvironmentError,
)
from ..base.outcomes import Outcome
from . import rewards
from .task import Task
from .task_instances import TaskInstances, WatchedEnvironment

# Not the environment's answer: a proxy between it and us answered, or nothing did.
_INFRASTRUCTURE = (NetworkError, Unavailable, TooManyRequests, UnrecoverableEnvironmentError, ToolServerError)


@dataclass
class AgentUsage:
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

    async def play(self, env: WatchedEnvironment, task: dict[str, Any], spent: AgentUsage) -> None: ...

    async def close(self) -> None: ...


@dataclass
class Episode:
    """A result, and the conversation that led to it; complete once `play` has ended, however it did."""

    task: Task
    attempt: int | None = None
    """Which attempt at the task it is, where there are to be several."""
    result: dict[str, Any] = field(default_factory=dict)
    spent: AgentUsage = field(default_factory=AgentUsage)

    def _ends(
        self, outcome: Outcome, reason: str, number: float | None = None, passed: bool | None = None
    ) -> None:
        self.result.update(outcome=str(outcome), reward=number, passed=passed)
        if reason:
            self.result["error"] = reason


async def play(instances: TaskInstances, episode: Episode, agent: Agent, *, offers_task: bool) -> None:
    """Play one task. What goes wrong on the way is an outcome, not an exception; a cancellation is both."""
    task, spent, result = episode.task, episode.spent, episode.result
    attempt = {"attempt": episode.attempt} if episode.attempt else {}
    result.update(task=task.id, **attempt, reward=None, outcome="", passed=None, seconds=0.0, steps=0)
    started = time.perf_counter()
    limit = asyncio.timeout(instances.place.limit)
    blamed = Outcome.INFRA_ERROR  # for what raises next
    try:
        async with limit, instances.one(task, validation=agent.validation) as env:
            blamed = Outcome.ENV_ERROR
            asked = agent.asks and offers_task
            about = {"id": task.id, **((await env.call_function("get_task")) if asked else {}), **attempt}
            # With `validation` the environment plays its own solution.
            blamed = Outcome.ENV_ERROR if agent.validation else Outcome.AGENT_ERROR
            try:
                await agent.play(env, about, spent)
            finally:
                result["steps"] = None if env.played is None else env.steps + env.played
            blamed = Outcome.ENV_ERROR
            try:
                judged = await rewards.of(env)
            finally:
                _note_check(result, env)
            passed = judged.is_full if judged.number is not None else None
            episode._ends(judged.outcome, judged.reason, judged.number, passed)
    except asyncio.CancelledError:
        episode._ends(Outcome.CANCELLED, "the evaluation was stopped")
        raise
    except Exception as error:  # boundary: the agent's code
        if limit.expired():
            episode._ends(Outcome.TIMEOUT, f"the episode took longer than {instances.place.limit:g} s")
        else:
            episode._ends(_outcome(error, blamed), _reason(error))
    finally:
        result["seconds"] = round(time.perf_counter() - started, 3)
        if spent.tokens_in is not None:
            result["tokens"] = {"in": spent.tokens_in, "out": spent.tokens_out or 0}
        if spent.cost is not None:
            result["cost"] = round(spent.cost, 6)


def _note_check(result: dict[str, Any], env: WatchedEnvironment) -> None:
    """Whether the task has proved that its verdicts can be trusted, where its environment has that checked."""
    if env.checked:
        result["self_check"], why = env.checked
        if result["self_check"] == "known":
            result["known"] = why


def _outcome(error: Exception, blamed: Outcome) -> Outcome:
    if isinstance(error, NotJudged):
        return error.outcome
    if isinstance(error, ToolTimeoutError):
        return Outcome.TIMEOUT
    # The SDK says which call was in vain, and keeps what broke as the cause.
    if isinstance(error, _INFRASTRUCTURE) or isinstance(error.__cause__, NetworkError):
        return Outcome.INFRA_ERROR
    return blamed


def _reason(error: Exception) -> str:
    return error.message if isinstance(error, AEnvError) else f"{type(error).__name__}: {error}"
