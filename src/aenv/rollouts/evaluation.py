"""An evaluation: an agent over tasks, several at a time, with results that outlive an interruption."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Callable, Mapping
from contextlib import AbstractAsyncContextManager, AbstractContextManager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TextIO

from ..base.errors import Forbidden, InvalidRequest, NotFound
from ..base.outcomes import Outcome
from . import live, locations, results, summaries, task
from .episodes import Agent, Episode, play
from .results import Result, ResultFile
from .task import Task, TaskSelection
from .task_instances import InstanceSource, TaskInstances


@dataclass(frozen=True)
class EvaluationOptions:
    """How to evaluate, beside whom and where."""

    seed: int = 0
    model: str | None = None
    out: Path = Path("results.jsonl")
    resume: bool = False
    repeat: int | None = None
    trajectories: Path | None = None
    force_export: bool = False

    @classmethod
    def of(cls, agent: Agent, default: Path, /, **given: Any) -> EvaluationOptions:
        """From the options of `aenv eval`."""
        return cls(
            seed=given["seed"],
            model=given["model"] if agent.name == "llm" else None,
            out=given["resume"] or given["out"] or default,
            resume=given["resume"] is not None,
            repeat=given["repeat"],
            trajectories=given["trajectories"],
            force_export=given["force_export"],
        )


def evaluated(
    opened: AbstractAsyncContextManager[InstanceSource],
    wanted: TaskSelection,
    concurrency: int,
    agent: Agent,
    options: EvaluationOptions,
    tell: Callable[[Result], None] | None,
) -> tuple[list[Result], str]:
    """Open the place, evaluate, and say what it took. KeyboardInterrupt when it was stopped, in order."""
    started = time.monotonic()

    async def main() -> list[Result]:
        try:
            async with opened as there:
                return await evaluate(there, wanted, concurrency, agent, options, tell or _nothing)
        finally:
            await agent.close()

    found = locations.run(main)
    return found, summaries.spent(found, time.monotonic() - started)


def _nothing(result: Result) -> None:
    """For those who read the file."""


@dataclass(frozen=True)
class TaskSurface:
    """What the environment has for tasks."""

    tasks: list[Task]
    offers_task: bool
    environment: str
    eval_only: bool


async def evaluate(
    place: InstanceSource,
    wanted: TaskSelection,
    concurrency: int,
    agent: Agent,
    options: EvaluationOptions,
    tell: Callable[[Result], None],
) -> list[Result]:
    """Every result, those of an earlier run included; each is told, and written, when it is there.

    Attempts that were not judged are played again when a file is resumed.
    """
    async with TaskInstances(place) as instances:
        surface = await surface_of(instances, wanted)
        eval_only = place.eval_only or surface.eval_only
        _may_export(agent, options, eval_only)
        about = {
            "environment": surface.environment,
            "digest": place.digest,
            "agent": agent.name,
            **({"model": options.model} if options.model else {}),
            "seed": options.seed,
            **({"evalOnly": True} if eval_only else {}),
        }
        with _file(options, about) as file, _trajectories(options.trajectories) as chats:
            kept = {key: known for key, known in file.known.items() if known["outcome"] == Outcome.REWARD}
            ids = {one.id for one in surface.tasks}
            before = [known for (id, _), known in kept.items() if id in ids]
            for known in before:
                tell(known)
            # All tasks once, then all of them again: an evaluation that is stopped has tried each as often.
            numbers = range(1, (options.repeat or 1) + 1)
            every = [(one, number) for number in numbers for one in surface.tasks]
            left = [
                Episode(one, number if options.repeat else None)
                for one, number in every
                if (one.id, number) not in kept
            ]
            done: list[Result] = []

            def ended(episode: Episode) -> None:
                split = episode.task.split
                variables = {"variables": place.told_variables(episode.task)}
                result = {**episode.result, **({"split": split} if split else {}), **variables, **about}
                file.append(result)
                if chats:
                    _write_chat(chats, result, episode)
                tell(result)
                done.append(result)
                shown(result)

            async with live.shown(f"{about['environment']} {agent.name}", len(every), before) as shown:
                await _play_all(instances, agent, left, concurrency, surface.offers_task, ended)
        return [*before, *done]


async def _play_all(
    instances: TaskInstances,
    agent: Agent,
    episodes: list[Episode],
    concurrency: int,
    offers_task: bool,
    ended: Callable[[Episode], None],
) -> None:
    waiting = iter(episodes)

    async def worker() -> None:
        for episode in waiting:  # shared: the worker that is free takes the next
            try:
                await play(instances, episode, agent, offers_task=offers_task)
            finally:
                ended(episode)  # also what was cancelled

    async with asyncio.TaskGroup() as group:
        for _ in range(min(concurrency, len(episodes))):
            group.create_task(worker())


async def surface_of(instances: TaskInstances, wanted: TaskSelection) -> TaskSurface:
    """What the environment has to play, from an instance of it."""
    async with live.creating(f"starting an instance of {instances.place.name}"), instances.one() as env:
        functions = {one["name"] for one in (await env.list_functions())["functions"]}
        if "list_tasks" not in functions:
            raise NotFound(f"{instances.place.name!r} has no tasks: it registers no function 'list_tasks'")
        listed = await env.call_function("list_tasks", {"split": wanted.split} if wanted.split else {})
        tasks = task.chosen(task.read(listed), wanted)
        if not tasks:
            raise NotFound(f"{instances.place.name!r} lists no tasks")
        # As the gateway calls it: an alias or a range is no name that a result can be found by.
        name = f"{env.of.get('name') or env.env_name}@{env.of.get('version') or 'unknown'}"
        return TaskSurface(tasks, "get_task" in functions, name, env.of.get("eval_only") is True)


def _may_export(agent: Agent, options: EvaluationOptions, eval_only: bool) -> None:
    if options.trajectories is None:
        return
    if agent.name == "oracle":
        raise InvalidRequest(
            "--trajectories: the oracle plays inside the environment, so there is no conversation"
        )
    if eval_only and not options.force_export:
        raise Forbidden(
            "--trajectories: this environment is for evaluation alone (evalOnly), and its episodes no data for "
            "training; --force-export writes them nevertheless"
        )


def _file(options: EvaluationOptions, about: Mapping[str, Any]) -> AbstractContextManager[ResultFile]:
    if not options.resume:
        return results.created(options.out)
    return results.resumed(options.out, about, options.repeat or 1)


def _trajectories(path: Path | None) -> AbstractContextManager[TextIO | None]:
    if path is None:
        return nullcontext()
    return path.open("a", encoding="utf-8")


def _write_chat(chats: TextIO, result: Result, episode: Episode) -> None:
    kept = ("task", "attempt", "environment", "agent", "model", "reward", "outcome", "passed", "error", "evalOnly")
    line = {key: result[key] for key in kept if key in result}
    chats.write(json.dumps({**line, "messages": episode.spent.messages}, ensure_ascii=False) + "\n")
    chats.flush()
