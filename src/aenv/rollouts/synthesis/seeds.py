"""Seeds: the tasks that new ones are made from, or must differ from, with what agents are told of them."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ...base.errors import AEnvError, InvalidRequest
from .. import live
from ..runner import surface_of
from ..task import Task, TaskSelection
from ..task_instances import InstanceSource, TaskInstances
from .proposals import TaskForm, of_variables


@dataclass(frozen=True)
class SeedTask:
    """A task, what its agent is told, and what it is in the environment's own form, where there is one."""

    task: Task
    told: Mapping[str, Any]
    content: Mapping[str, Any]

    @property
    def text(self) -> str:
        return str(self.told.get("instruction") or "")


@dataclass(frozen=True)
class SeedSet:
    """The seeds of an environment, and what it offers for making more."""

    environment: str
    digest: str | None
    eval_only: bool
    tasks: Sequence[SeedTask]
    form: TaskForm | None
    tools: Sequence[Mapping[str, Any]]
    functions: frozenset[str]


async def seed_set(
    place: InstanceSource, wanted: TaskSelection, concurrency: int, *, sealed: bool = True, force: bool = False
) -> SeedSet:
    """What `place` has. With `sealed`, new tasks are made of it, and its instances are asked for answers, too.

    InvalidRequest where it is then for evaluation alone, unless that is forced.
    """
    async with TaskInstances(place) as instances:
        async with instances.one() as env:
            functions = frozenset(one["name"] for one in (await env.list_functions())["functions"])
            tools = await env.known_tools()
            about = env.described
        eval_only = place.eval_only or about.eval_only
        if sealed and eval_only and not force:
            raise InvalidRequest(
                f"{about.ref} is for evaluation alone (evalOnly), and no new tasks are made of it; guard it with "
                "--guard, or pass --force"
            )
        tasks: list[Task] = []
        if wanted.is_complete or "list_tasks" in functions:
            tasks = (await surface_of(instances, wanted)).tasks
        sealed = sealed and "task_form" in functions
        # One instance even without tasks: the form does not depend on them.
        asked: list[Task | None] = [*tasks] or [None]
        told: dict[int, tuple[SeedTask | None, TaskForm | None]] = {}
        failed: list[AEnvError] = []
        waiting = iter(enumerate(asked))
        async with live.shown(f"{about.ref} reading tasks", len(asked)) as shown:

            async def worker() -> None:
                for index, one in waiting:  # shared: the worker that is free takes the next
                    try:
                        told[index] = await _read(instances, one, functions, sealed=sealed)
                    except AEnvError as error:
                        failed.append(error)
                        return
                    shown(live.counted(passed=True))

            async with asyncio.TaskGroup() as group:
                for _ in range(min(concurrency, len(asked))):
                    group.create_task(worker())
        if failed:
            raise failed[0]
    read = [told[index] for index in range(len(asked))]
    form = next((form for _, form in read if form), None)
    seeds = [seed for seed, _ in read if seed]
    return SeedSet(about.ref, place.digest, eval_only, seeds, form, tools, functions)


async def _read(
    instances: TaskInstances, one: Task | None, functions: frozenset[str], *, sealed: bool
) -> tuple[SeedTask | None, TaskForm | None]:
    if not sealed and (one is None or "get_task" not in functions):
        return (_seed(one, {}) if one else None), None
    async with instances.one(one, validation=sealed) as env:
        told = dict(await env.call_function("get_task")) if one and "get_task" in functions else {}
        form = content = None
        if sealed:
            form, content = TaskForm.read(await env.call_function("task_form"))
    return (_seed(one, told, content) if one else None), form


def _seed(one: Task, told: Mapping[str, Any], content: Mapping[str, Any] | None = None) -> SeedTask:
    known = {**told, **one.told}
    return SeedTask(one, known, content or of_variables(one, "seed", None, 0).content)
