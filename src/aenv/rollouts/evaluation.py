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

from ..errors import Forbidden, InvalidRequest, NotFound
from . import live, places, results, task
from .episodes import Agent, Episode, play
from .instances import Instances, Place
from .results import Result, ResultFile
from .statistics import Summary, summary
from .tables import columns
from .task import Task, Wanted


@dataclass(frozen=True)
class Options:
    """How to evaluate, beside whom and where."""

    seed: int = 0
    model: str | None = None
    out: Path = Path("results.jsonl")
    resume: bool = False
    trajectories: Path | None = None
    force_export: bool = False

    @classmethod
    def of(cls, agent: Agent, default: Path, /, **given: Any) -> Options:
        """From the options of `aenv eval`."""
        return cls(
            seed=given["seed"],
            model=given["model"] if agent.name == "llm" else None,
            out=given["resume"] or given["out"] or default,
            resume=given["resume"] is not None,
            trajectories=given["trajectories"],
            force_export=given["force_export"],
        )


def evaluated(
    opened: AbstractAsyncContextManager[Place],
    wanted: Wanted,
    concurrency: int,
    agent: Agent,
    options: Options,
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

    found = places.run(main)
    return found, spent(found, time.monotonic() - started)


def _nothing(result: Result) -> None:
    """For those who read the file."""


@dataclass(frozen=True)
class _Surface:
    """What the environment has for tasks."""

    tasks: list[Task]
    offers_task: bool
    environment: str
    eval_only: bool


async def evaluate(
    place: Place,
    wanted: Wanted,
    concurrency: int,
    agent: Agent,
    options: Options,
    tell: Callable[[Result], None],
) -> list[Result]:
    """Every result, those of an earlier run included; each is told, and written, when it is there.

    Tasks whose episode broke off with an error are played again when a file is resumed.
    """
    async with Instances(place) as instances:
        surface = await _surface(instances, wanted)
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
            kept = {id: known for id, known in file.known.items() if known["outcome"] != "error"}
            ids = {one.id for one in surface.tasks}
            before = [known for id, known in kept.items() if id in ids]
            for known in before:
                tell(known)
            left = [one for one in surface.tasks if one.id not in kept]
            done: list[Result] = []

            def ended(one: Task, episode: Episode) -> None:
                result = {**episode.result, **({"split": one.split} if one.split else {}), **about}
                file.append(result)
                if chats:
                    _write_chat(chats, result, episode)
                tell(result)
                done.append(result)
                shown(result)

            with live.shown(f"{about['environment']} {agent.name}", len(left)) as shown:
                await _play_all(instances, agent, left, concurrency, surface.offers_task, ended)
        return [*before, *done]


async def _play_all(
    instances: Instances,
    agent: Agent,
    tasks: list[Task],
    concurrency: int,
    offers_task: bool,
    ended: Callable[[Task, Episode], None],
) -> None:
    waiting = iter(tasks)

    async def worker() -> None:
        for one in waiting:  # shared: whoever is free takes the next
            ended(one, await play(instances, one, agent, offers_task=offers_task))

    async with asyncio.TaskGroup() as group:
        for _ in range(min(concurrency, len(tasks))):
            group.create_task(worker())


async def _surface(instances: Instances, wanted: Wanted) -> _Surface:
    async with instances.one() as env:
        functions = {one["name"] for one in (await env.list_functions())["functions"]}
        if "list_tasks" not in functions:
            raise NotFound(f"{instances.place.name!r} has no tasks: it registers no function 'list_tasks'")
        listed = await env.call_function("list_tasks", {"split": wanted.split} if wanted.split else {})
        tasks = task.chosen(task.read(listed), wanted)
        if not tasks:
            raise NotFound(f"{instances.place.name!r} lists no tasks")
        # As the gateway calls it: an alias or a range is no name that a result can be found by.
        name = f"{env.of.get('name') or env.env_name}@{env.of.get('version') or 'unknown'}"
        return _Surface(tasks, "get_task" in functions, name, env.of.get("eval_only") is True)


def _may_export(agent: Agent, options: Options, eval_only: bool) -> None:
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


def _file(options: Options, about: Mapping[str, Any]) -> AbstractContextManager[ResultFile]:
    return results.resumed(options.out, about) if options.resume else results.created(options.out)


def _trajectories(path: Path | None) -> AbstractContextManager[TextIO | None]:
    if path is None:
        return nullcontext()
    return path.open("a", encoding="utf-8")


def _write_chat(chats: TextIO, result: Result, episode: Episode) -> None:
    kept = ("task", "environment", "agent", "model", "reward", "outcome", "evalOnly")
    line = {key: result[key] for key in kept if key in result}
    chats.write(json.dumps({**line, "messages": episode.messages}, ensure_ascii=False) + "\n")
    chats.flush()


def table(found: list[Result]) -> str:
    """The results as a table: each split where there are several, and all of them."""
    splits = sorted({str(one.get("split") or "") for one in found})
    rows: list[tuple[str, ...]] = [
        ("split", "tasks", "pass", "fail", "invalid", "error", "pass rate", "95 % interval", "mean reward")
    ]
    if len(splits) > 1:
        rows += [_row(split or "-", [o for o in found if str(o.get("split") or "") == split]) for split in splits]
    rows.append(_row("all", found))
    return columns(rows)


def _row(name: str, found: list[Result]) -> tuple[str, ...]:
    all_of = summary(found)
    low, high = all_of.interval
    counts = [str(all_of.counts[outcome]) for outcome in ("pass", "fail", "invalid", "error")]
    mean = "-" if all_of.mean_reward is None else f"{all_of.mean_reward:.3f}"
    return (name, str(all_of.tasks), *counts, f"{all_of.pass_rate:.1%}", f"{low:.1%} to {high:.1%}", mean)


def spent(found: list[Result], seconds: float) -> str:
    """What it took, in a line."""
    tokens = [one["tokens"] for one in found if one.get("tokens")]
    all_of: Summary = summary(found)
    parts = [f"{len(found)} tasks in {seconds:.1f} s"]
    if tokens:
        parts.append(f"{sum(t['in'] for t in tokens)} tokens in, {sum(t['out'] for t in tokens)} out")
    if all_of.cost is not None:
        parts.append(f"${all_of.cost:.4f}")
    return ", ".join(parts)
