"""Preparing: the self-check of many tasks, made before an agent needs their verdicts."""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from typing import Any

from ..base.errors import AEnvError, InvalidRequest, NotJudged
from ..base.outcomes import Outcome
from . import live, locations
from .runner import surface_of
from .task import Task, TaskSelection
from .task_instances import InstanceSource, TaskInstances

READY = ("held", "known")
_NONE = "none"


@dataclass(frozen=True)
class CheckedTask:
    """How the self-check of one task stands, and why."""

    task: str
    self_check: str
    """A word of the gateway's, "none" where there is no self-check, or the outcome that stood in its way."""
    reason: str
    seconds: float

    @property
    def is_ready(self) -> bool:
        """Whether verdicts of the task can be trusted."""
        return self.self_check in READY

    def as_json(self) -> dict[str, Any]:
        return {**vars(self), "seconds": round(self.seconds, 3)}


def prepared(
    opened: AbstractAsyncContextManager[InstanceSource],
    wanted: TaskSelection,
    concurrency: int,
    tell: Callable[[CheckedTask], None],
) -> list[CheckedTask]:
    """Open the place, and prepare. KeyboardInterrupt when it was stopped, in order."""

    async def main() -> list[CheckedTask]:
        async with opened as there:
            return await prepare(there, wanted, concurrency, tell)

    return locations.run(main)


async def prepare(
    place: InstanceSource, wanted: TaskSelection, concurrency: int, tell: Callable[[CheckedTask], None]
) -> list[CheckedTask]:
    """How the self-check of each task stands; one that has been checked takes a moment."""
    found: list[CheckedTask] = []
    async with TaskInstances(place) as instances:
        surface = await surface_of(instances, wanted)
        waiting = iter(surface.tasks)
        async with live.shown(f"{surface.environment} self-check", len(surface.tasks)) as shown:

            async def worker() -> None:
                for one in waiting:  # shared: the worker that is free takes the next
                    row = await _prepared(instances, one)
                    found.append(row)
                    tell(row)
                    shown(live.counted(passed=row.is_ready))

            async with asyncio.TaskGroup() as group:
                for _ in range(min(concurrency, len(surface.tasks))):
                    group.create_task(worker())
    if all(row.self_check == _NONE for row in found):
        raise InvalidRequest(f"{place.name!r} has no self-check; 'selfCheck' in its config.json asks for one")
    return found


async def _prepared(instances: TaskInstances, task: Task) -> CheckedTask:
    started = time.perf_counter()
    status, reason = _NONE, "the environment has no self-check"
    try:
        async with asyncio.timeout(instances.place.limit), instances.one(task) as env:
            try:
                await env.check_task()
            except NotJudged as error:
                status, reason = str(error.outcome), error.reason
            status, reason = env.checked or (status, reason)
    except TimeoutError:
        status, reason = str(Outcome.TIMEOUT), f"it took longer than {instances.place.limit:g} s"
    except AEnvError as error:
        status, reason = str(Outcome.INFRA_ERROR), error.message
    return CheckedTask(task.id, status, reason, time.perf_counter() - started)


def told(found: list[CheckedTask]) -> str:
    """How many tasks stand how, and every task whose verdicts cannot be trusted yet, with the reason."""
    counts = Counter(row.self_check for row in found)
    lines = [f"{len(found)} tasks: " + ", ".join(f"{count} {status}" for status, count in counts.items())]
    lines += [f"  {row.self_check} {row.task}: {row.reason}" for row in found if not row.is_ready]
    return "\n".join(lines)
