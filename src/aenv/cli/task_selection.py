"""The tasks of an environment that a command plays: the options that choose them, and what the options mean."""

from __future__ import annotations

from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from . import connection, local_project, parameters

if TYPE_CHECKING:
    from ..rollouts.task import TaskSelection
    from ..rollouts.task_instances import InstanceSource

_OPTIONS = (
    click.option(
        "--tasks",
        multiple=True,
        metavar="ID,…|FILE",
        help="Tasks to play: ids separated by commas, a file with one id on each line, or a task file "
        "(.jsonl); repeatable.",
    ),
    click.option("--split", default="", metavar="NAME", help="Play only the tasks of this split."),
    click.option("--limit", type=parameters.Number(1), help="Play only the first N tasks."),
    parameters.pairs("--variable", form="NAME=VALUE", help="Environment variable of every instance; repeatable."),
    parameters.SECRETS,
    click.option("--concurrency", type=parameters.Number(1, 1000), default=4, help="Episodes to run in parallel."),
    click.option("--timeout", default="30m", type=parameters.DURATION, help="Maximum duration of one episode."),
)

without_self_check = click.option(
    "--no-self-check",
    is_flag=True,
    help="Do not wait for the self-check of a task before its reward. The results say so.",
)


def options(command: Any) -> Any:
    """Adds the options that choose the tasks and say how they are played."""
    for option in reversed(_OPTIONS):
        command = option(command)
    return command


@dataclass(frozen=True)
class SelectedTasks:
    """What the options mean."""

    name: str
    opened: AbstractAsyncContextManager[InstanceSource]
    """Where instances are made, once it is entered."""
    wanted: TaskSelection
    concurrency: int


def selected(env: str, gateway: connection.Gateway, **given: Any) -> SelectedTasks:
    """The selected tasks of the environment with the name `env`, or of the project in that folder."""
    from ..rollouts import locations
    from ..rollouts.own_gateway import served
    from ..rollouts.task import TaskSelection
    from ..rollouts.task_instances import InstanceSource

    is_folder = "/" in env or env in (".", "..") or Path(env, "config.json").is_file()
    found = local_project.load(Path(env)) if is_folder else None
    name = str(found.ref if found else env)
    place = InstanceSource(
        name, gateway.url, gateway.api_key, {**given["variable"], **given["secrets"]}, given["timeout"]
    )
    place = replace(place, self_check=not given.get("no_self_check"))
    opened = served(place, found) if found else locations.known(place)
    return SelectedTasks(
        name,
        opened,
        TaskSelection.of(given["tasks"] or None, given["split"], given["limit"]),
        given["concurrency"],
    )
