"""What `aenv replay` and `aenv rescore` share: the rollouts of a journal, and the environment they are of."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from . import output, task_selection

if TYPE_CHECKING:
    from ..rollouts.trajectory import Trajectory, TrajectoryHead
    from .connection import Gateway
    from .task_selection import ChosenTasks, SelectedTasks

environment = click.option(
    "--env", metavar="ENV|DIR", help="Environment or project folder to use.  [default: that of the run]"
)


def selected(
    file: Path,
    env: str | None,
    gateway: Gateway,
    chosen: ChosenTasks,
    *,
    finished: bool = False,
    self_check: bool = True,
) -> tuple[SelectedTasks, list[Trajectory]]:
    """Where to replay, and what: the last rollout of each task and attempt, or every one that has calls."""
    from ..rollouts import journal

    known = journal.read(file)
    if finished:
        found = [one.trajectory for one in known.results.values() if one.trajectory]
    else:
        found = [one for one in known.trajectories.values() if one.lines]
    name = env or next((run.environment for run in known.runs), "")
    if not found or not name:
        raise output.Failure(
            f"{str(file)!r} has no rollouts with their steps", hint="aenv eval ENV --agent AGENT --out FILE"
        )
    return task_selection.selected(name, gateway, chosen, self_check=self_check), found


def name(head: TrajectoryHead) -> str:
    return head.task + (f" attempt {head.attempt}" if head.attempt else "")


def told(head: TrajectoryHead) -> dict[str, Any]:
    """What a line of JSON says of whose replay it is."""
    return {"task": head.task, **({"attempt": head.attempt} if head.attempt else {}), "rollout": head.rollout}
