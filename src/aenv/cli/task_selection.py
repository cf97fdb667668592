"""The tasks of an environment that a command plays: the options that choose them, and what the options mean."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from . import connection, local_project, parameters

if TYPE_CHECKING:
    from ..rollouts.task import TaskSelection
    from ..rollouts.task_instances import InstanceSource

T = TypeVar("T")

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


@dataclass(frozen=True)
class ChosenTasks:
    """What the options say."""

    tasks: tuple[str, ...]
    split: str
    limit: int | None
    variables: Mapping[str, str | Mapping[str, str]]
    """By name: a value, or the name of a secret."""
    concurrency: int
    timeout: float


def options(command: Callable[..., T]) -> Callable[..., T]:
    """Adds the options that choose the tasks and say how they are played; the command gets `chosen`."""

    @functools.wraps(command)
    def with_tasks(
        tasks: tuple[str, ...],
        split: str,
        limit: int | None,
        variable: Mapping[str, str],
        secrets: Mapping[str, Mapping[str, str]],
        concurrency: int,
        timeout: float,
        **given: Any,
    ) -> T:
        chosen = ChosenTasks(tasks, split, limit, {**variable, **secrets}, concurrency, timeout)
        return command(chosen=chosen, **given)

    decorated: Callable[..., T] = with_tasks
    for option in reversed(_OPTIONS):
        decorated = option(decorated)
    return decorated


@dataclass(frozen=True)
class SelectedTasks:
    """What the options mean."""

    name: str
    opened: AbstractAsyncContextManager[InstanceSource]
    """Where instances are made, once it is entered."""
    wanted: TaskSelection
    concurrency: int


def selected(
    env: str, gateway: connection.Gateway, chosen: ChosenTasks, *, self_check: bool = True
) -> SelectedTasks:
    """The selected tasks of the environment with the name `env`, or of the project in that folder."""
    from ..rollouts import locations
    from ..rollouts.own_gateway import served
    from ..rollouts.task import TaskSelection
    from ..rollouts.task_instances import InstanceSource

    is_folder = "/" in env or env in (".", "..") or Path(env, "config.json").is_file()
    found = local_project.load(Path(env)) if is_folder else None
    name = str(found.ref if found else env)
    place = InstanceSource(name, gateway.url, gateway.api_key, chosen.variables, chosen.timeout)
    place = replace(place, self_check=self_check)
    opened = served(place, found) if found else locations.known(place)
    return SelectedTasks(
        name,
        opened,
        TaskSelection.of(chosen.tasks or None, chosen.split, chosen.limit),
        chosen.concurrency,
    )
