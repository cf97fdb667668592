"""Preparing: the self-check of many tasks, made before an agent needs their verdicts."""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from typing import Any

from ..base.errors import AEnvError, InvalidRequest, NotJudged
from ..base.outcomes import Outcome
from . import live, locations
from .evaluation import surface_of
from .task import Task, TaskSelection
from .task_instances import InstanceSource, TaskInstances

Prepared = dict[str, Any]
READY = ("held", "known")
_NONE = "none"


def prepared(
    opened: AbstractAsyncContextManager[InstanceSource],
    wanted: TaskSelection,
    concurrency: int,
    tell: Callable[[Prepared], None],
) -> list[Prepared]:
    """Open the place, and prepare. KeyboardInterrupt when it was stopped, in order."""

    async def main() -> list[Prepared]:
        async with opened as there:
            return await prepare(there, wanted, concurrency, tell)

    return locations.run(main)


async def prepare(
    place: InstanceSource, wanted: TaskSelection, concurrency: int, tell: Callable[[Prepared], None]
) -> list[Prepared]:
    """`{"task", "self_check", "reason", "seconds"}` of each task; one that has been checked takes a moment."""
    found: list[Prepared] = []
    async with TaskInstances(place) as instances:
        surface = await surface_of(instances, wanted)
        waiting = iter(surface.tasks)
        async with live.shown(f"{surface.environment} self-check", len(surface.tasks)) as shown:

            async def worker() -> None:
                for one in waiting:  # shared: the worker that is free takes the next
                    row = await _prepared(instances, one)
                    found.append(row)
                    tell(row)
                    shown({"outcome": Outcome.REWARD, "reward": 0.0, "passed": row["self_check"] in READY})

            async with asyncio.TaskGroup() as group:
                for _ in range(min(concurrency, len(surface.tasks))):
                    group.create_task(worker())
    if all(row["self_check"] == _NONE for row in found):
        raise InvalidRequest(f"{place.name!r} has no self-check; 'selfCheck' in its config.json asks for one")
    return found


async def _prepared(instances: TaskInstances, task: Task) -> Prepared:
    started = time.perf_counter()
    row: Prepared = {"task": task.id, "self_check": "", "reason": ""}
    try:
        async with asyncio.timeout(instances.place.limit), instances.one(task) as env:
            try:
                await env.check_task()
            except NotJudged as error:
                row.update(self_check=str(error.outcome), reason=error.reason)
            if env.checked:
                row["self_check"], row["reason"] = env.checked
            elif not row["self_check"]:
                row.update(self_check=_NONE, reason="the environment has no self-check")
    except TimeoutError:
        row.update(self_check=str(Outcome.TIMEOUT), reason=f"it took longer than {instances.place.limit:g} s")
    except AEnvError as error:
        row.update(self_check=str(Outcome.INFRA_ERROR), reason=error.message)
    return {**row, "seconds": round(time.perf_counter() - started, 3)}


def told(found: list[Prepared]) -> str:
    """How many tasks stand how, and every task whose verdicts cannot be trusted yet, with the reason."""
    counts = Counter(row["self_check"] for row in found)
    lines = [f"{len(found)} tasks: " + ", ".join(f"{count} {status}" for status, count in counts.items())]
    lines += [f"  {row['self_check']} {row['task']}: {row['reason']}" for row in found if is_unready(row)]
    return "\n".join(lines)


def is_unready(row: Prepared) -> bool:
    return row["self_check"] not in READY
