"""`Runner`: an agent over many tasks, several rollouts at a time; and `rollout`, which is one.

    async with Runner(concurrency=64) as runner:
        results = await runner.run("gsm-tools@1.0.0", agent, repeat=4, limit=32, out="run.jsonl")

Every rollout has a typed result. What is in the file already, of a run that was interrupted, is not played again.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, AsyncExitStack, suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from ..base import config, settings
from ..base.errors import AEnvError, InvalidRequest, NotFound
from ..base.outcomes import Outcome
from ..client import where
from ..client.environment import Environment
from . import agent_source, episodes, held_loop, journal, live, locations, task
from .agents import Play, as_agent
from .capture import Capture
from .episodes import MAX_CALLS, Agent, Episode, PlayRules, Timeouts
from .journal import Journal, Mode, NotRecorded
from .results import RolloutResult, RunIdentity
from .task import Task, TaskSelection
from .task_instances import InstanceSource, TaskInstances, WatchedEnvironment

logger = logging.getLogger("aenv.rollouts.runner")

OnResult = Callable[[RolloutResult], None]
TaskLike = str | Path | Mapping[str, Any] | Task
"""The id of a task, a task file, an object of one, or a task."""


@dataclass(frozen=True)
class RunnerOptions:
    """What a run needs to know beside the place, the tasks and the agent."""

    seed: int = 0
    model: str | None = None
    out: Path | None = None
    mode: Mode = "either"
    repeat: int | None = None
    """Attempts at each task; None is one, of results that carry no number."""
    concurrency: int = 4
    retries: int = 2
    timeouts: Timeouts = field(default_factory=Timeouts)
    max_calls: int | None = MAX_CALLS
    capture: Capture | None = None


class Runner:
    """Plays rollouts, at most `concurrency` at a time. Leaving its block gives every instance back.

    `url` and `api_key` name the gateway as for `Environment`. A rollout whose infrastructure fails gets up to
    `retries` fresh instances. `variables` are given to every instance.

    With `capture`, the URL of a model's server, agents ask that model at `env.model.url` with `env.model.key`, and
    what they say to each other is recorded; `capture_key` is the server's own. An open `Capture` does as well.
    `model_url` and `model_key` are for the model that environments ask, as for `Environment`.
    """

    def __init__(
        self,
        concurrency: int = 4,
        *,
        retries: int = 2,
        timeouts: Timeouts | None = None,
        max_calls: int | None = MAX_CALLS,
        variables: Mapping[str, str | Mapping[str, str]] | None = None,
        self_check: bool = True,
        url: str | None = None,
        api_key: str | None = None,
        capture: str | Capture | None = None,
        capture_key: str | None = None,
        model_url: str | None = None,
        model_key: str | None = None,
    ) -> None:
        _check_whole("concurrency", concurrency, 1)
        _check_whole("retries", retries, 0)
        if max_calls is not None:
            _check_whole("max_calls", max_calls, 1)
        limits = timeouts or Timeouts()
        self._options = RunnerOptions(
            concurrency=concurrency, retries=retries, timeouts=limits, max_calls=max_calls
        )
        self._place = InstanceSource(
            "",
            url,
            api_key,
            dict(variables or {}),
            limits.whole,
            self_check=self_check,
            model_url=model_url,
            model_key=model_key,
        )
        self._own_capture = Capture(capture, capture_key) if isinstance(capture, str) else None
        self._capture = None if isinstance(capture, str) else capture
        self._stack = AsyncExitStack()
        self._places: dict[str, InstanceSource] = {}

    async def __aenter__(self) -> Runner:
        return self

    async def __aexit__(self, *exc: object) -> None:
        self._places.clear()
        await self._stack.aclose()

    async def run(
        self,
        env: str | Path,
        agent: Agent | Play | str,
        tasks: TaskLike | Iterable[TaskLike] | None = None,
        repeat: int = 1,
        limit: int | None = None,
        out: str | Path | None = None,
        *,
        split: str = "",
        seed: int = 0,
        model: str | None = None,
        resume: bool = False,
        on_result: OnResult | None = None,
    ) -> list[RolloutResult]:
        """The results of `tasks`, or of all that `env` lists, in their order, each played `repeat` times.

        `env` is the name of an environment, or the folder of a project. `agent` is a function of the environment
        and the task, which has the "instruction"; or a name as for `aenv eval`. With `out` every step is appended
        to that file, and a run that was interrupted goes on there: what was judged is not played again, and a line
        on stderr says so. A file with results of other code of the agent is refused; `resume` keeps them.
        """
        _check_whole("repeat", repeat, 1)
        if resume and out is None:
            raise InvalidRequest("resume needs the file to go on with: out")
        player = as_agent(agent, model, seed)
        wanted = TaskSelection.of(tasks, split, limit)
        options = replace(
            self._options,
            seed=seed,
            model=model,
            out=Path(out) if out is not None else None,
            mode="resume" if resume else "either",
            repeat=repeat if repeat > 1 else None,
            capture=await self._capturing(),
        )
        try:
            return await run(await self._located(env), wanted, player, options, on_result)
        finally:
            await player.close()

    async def _capturing(self) -> Capture | None:
        """What is between agents and their model; one of our own listens until the runner ends."""
        if self._own_capture and not self._capture:
            self._capture = await self._stack.enter_async_context(self._own_capture)
        return self._capture

    async def _located(self, env: str | Path) -> InstanceSource:
        """Where instances are made; the gateway of a folder serves it until the runner ends."""
        key = str(env)
        if key not in self._places:
            self._places[key] = await self._stack.enter_async_context(place_of(env, self._place))
        return self._places[key]


def _check_whole(name: str, value: object, least: int) -> None:
    if not isinstance(value, int) or value < least:
        raise InvalidRequest(f"{name} must be a whole number of {least} or more, and is {value!r}")


def place_of(env: str | Path, given: InstanceSource | None = None) -> AbstractAsyncContextManager[InstanceSource]:
    """Where instances of a named environment, or of the project in a folder, are made, once it is entered."""
    place = given or InstanceSource("")
    if _is_folder(env):
        from .own_gateway import served

        return served(place, config.load_project(Path(env)))
    # In the order of the SDK: the argument, the variable, the login, else the user's own platform.
    at = where.find(settings.client_settings(), place.url, place.api_key, runtime_url="")
    return locations.known(replace(place, name=str(env), url=at.url, api_key=at.api_key))


def _is_folder(env: str | Path) -> bool:
    """Whether it is the folder of a project; a name with a slash is always meant as one."""
    return isinstance(env, Path) or "/" in env or env in (".", "..") or Path(env, config.FILE_NAME).is_file()


async def rollout(
    env: str | Path | Environment,
    agent: Agent | Play | str,
    task: TaskLike | None = None,
    *,
    timeouts: Timeouts | None = None,
    seed: int = 0,
    out: str | Path | None = None,
) -> RolloutResult:
    """One rollout: on an instance that is made for it, or on `env` where that is an `Environment` of yours.

    An environment of yours is not released, and was made for its task: then `task` only tells the agent more.
    """
    if not isinstance(env, Environment):
        chosen = None if task is None else [task]
        async with Runner(1, timeouts=timeouts) as runner:
            found = await runner.run(env, agent, chosen, limit=1, seed=seed, out=out)
        return found[0]
    return await _on(env, as_agent(agent, seed=seed), _one_task(env, task), timeouts or Timeouts(), seed, out)


async def _on(
    env: Environment, agent: Agent, task: Task, timeouts: Timeouts, seed: int, out: str | Path | None
) -> RolloutResult:
    with suppress(AEnvError):  # an instance that cannot be made is an outcome of the rollout
        await env.initialize()
    described = WatchedEnvironment.over(env).described
    source = agent_source.digest(agent)
    about = RunIdentity(described.ref, None, agent.name, None, seed, described.eval_only, source)
    episode = Episode(task)
    try:
        with journal.opened(Path(out) if out is not None else None, about, mode="either") as file:
            with held_loop.noticed(timeouts.of_agent, watched_only=True):
                await episodes.play_on(env, episode, agent, PlayRules(about, timeouts, retries=0), file)
            assert episode.result
            return _recorded(file, episode.result)
    finally:
        await agent.close()


def _one_task(env: Environment, given: TaskLike | None) -> Task:
    """What a caller who has made the instance says of its task, which may be all that `get_task` says."""
    if isinstance(given, Task):
        return given
    told = dict(given) if isinstance(given, Mapping) else {} if given is None else {"id": str(given)}
    variables = InstanceSource("", variables=env.environment_variables or {}).told_variables(Task(""))
    more = {name: value for name, value in told.items() if name not in ("id", "variables", "datasource", "split")}
    return Task(str(told.get("id") or "task"), variables, env.datasource, str(told.get("split") or ""), more)


@dataclass(frozen=True)
class TaskSurface:
    """What the environment has for tasks."""

    tasks: list[Task]
    offers_task: bool
    environment: str
    eval_only: bool


async def surface_of(instances: TaskInstances, wanted: TaskSelection) -> TaskSurface:
    """What the environment has to play, from an instance of it."""
    async with live.creating(f"starting an instance of {instances.place.name}"), instances.one() as env:
        functions = {one["name"] for one in (await env.list_functions())["functions"]}
        listed: Sequence[Task] = ()
        if not wanted.is_complete:
            if "list_tasks" not in functions:
                raise NotFound(
                    f"{instances.place.name!r} has no tasks: it registers no function 'list_tasks'; see "
                    "docs/tasks.md, or begin with 'aenv init NAME --template benchmark'"
                )
            listed = task.read(
                await env.call_function("list_tasks", {"split": wanted.split} if wanted.split else {})
            )
        tasks = task.chosen(listed, wanted)
        if not tasks:
            raise NotFound(f"{instances.place.name!r} lists no tasks")
        described = env.described
        return TaskSurface(tasks, "get_task" in functions, described.ref, described.eval_only)


async def run(
    place: InstanceSource,
    wanted: TaskSelection,
    agent: Agent,
    options: RunnerOptions,
    on_result: OnResult | None = None,
) -> list[RolloutResult]:
    """Every result, those of an earlier run included; each is told, and written, when it is there.

    They are in the order of the tasks: all first attempts, then all second ones.

    Attempts that were not judged are played again when a file is gone on with.
    """
    tell = on_result or (lambda result: None)
    async with TaskInstances(place) as first:  # of its own: its instance is gone before many are asked for
        surface = await surface_of(first, wanted)
    async with TaskInstances(place) as instances:
        eval_only = place.eval_only or surface.eval_only
        source = agent_source.digest(agent)
        by = (agent.name, options.model, options.seed)
        about = RunIdentity(surface.environment, place.digest, *by, eval_only, source)
        with journal.opened(options.out, about, options.repeat or 1, options.mode) as file:
            wanted_tasks = {one.id: one for one in surface.tasks}
            kept = {
                key: known
                for key, known in file.known.results.items()
                if known.is_judged and _is_of(known, wanted_tasks.get(known.task))
            }
            if orphans := file.known.orphans:
                await place.environment().end_others(orphans)
            before = list(kept.values())
            for known in before:
                tell(known)
            # All tasks once, then all of them again: a run that is stopped has tried each as often.
            numbers = range(1, (options.repeat or 1) + 1)
            every = [(one, number) for number in numbers for one in surface.tasks]
            if before:
                had = f"{str(options.out)!r} has {len(before)} of {len(every)} rollouts already"
                logger.warning("%s: they are not played again; name another file to play them", had)
            left = [
                Episode(one, number if options.repeat else None)
                for one, number in every
                if (one.id, number) not in kept
            ]
            done: list[RolloutResult] = []
            rules = PlayRules(
                about,
                options.timeouts,
                options.retries,
                options.max_calls,
                options.capture,
                surface.offers_task,
            )

            def ended(episode: Episode) -> None:
                assert episode.result
                done.append(_recorded(file, episode.result))
                tell(done[-1])
                shown(done[-1])

            async with live.shown(f"{about.environment} {agent.name}", len(every), before) as shown:
                with held_loop.noticed(options.timeouts.of_agent):
                    await _play_all(instances, agent, left, options.concurrency, rules, file, ended)
        found = {one.key: one for one in (*before, *done)}
        return [found[one.id, number] for one, number in every]


def _is_of(known: RolloutResult, task: Task | None) -> bool:
    """Whether a result is of that task, and not of another one that had its id. Older files do not tell."""
    digest = known.trajectory.head.task_sha256 if known.trajectory else ""
    return task is not None and digest in ("", task.digest)


def _recorded(file: Journal, result: RolloutResult) -> RolloutResult:
    """The result, once it is written. One that cannot be written is not on record, and says so."""
    try:
        file.append(result.as_json())
    except NotRecorded as error:
        logger.warning("the result of task %r is not on record: %s", result.task, error)
        lost = replace(
            result, outcome=Outcome.INFRA_ERROR, reward=None, passed=None, parts={}, reason=error.message
        )
        with suppress(NotRecorded):
            file.append(lost.as_json())
        return lost
    return result


async def _play_all(
    instances: TaskInstances,
    agent: Agent,
    left: list[Episode],
    concurrency: int,
    rules: PlayRules,
    file: Journal,
    ended: Callable[[Episode], None],
) -> None:
    waiting = iter(left)

    async def worker() -> None:
        for episode in waiting:  # shared: the worker that is free takes the next
            try:
                await episodes.play(instances, episode, agent, rules, file)
            finally:
                ended(episode)  # also what was cancelled

    async with asyncio.TaskGroup() as group:
        for _ in range(min(concurrency, len(left))):
            group.create_task(worker())
