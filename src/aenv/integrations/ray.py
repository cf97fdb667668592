"""Ray: episodes in actors and in `ray.data`, and environments for RLlib; needs `pip install 'ray>=2.40'`.

    results = play_tasks("gsm-tools@1.0.0", agent, actors=4, split="train")
    ray.data.from_items([{"task": "1-0"}]).map(TaskPlayer, fn_constructor_args=("gsm-tools@1.0.0", agent))
    PPOConfig().environment(register_rllib("my-env@1.0.0", codec=MyCodec()))

An agent is an async function that gets the episode: `await episode.call("submit_answer", {"answer": "12"})`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import ray
from ray.util import ActorPool

from aenv import AEnvError
from aenv.integrations.loop_thread import LOOP
from aenv.integrations.tool_episode import EpisodeOptions, ToolEpisode

EpisodeAgent = Callable[[ToolEpisode], Awaitable[Any]]
"""Plays an episode that has begun: `episode.briefing` says what to do, `episode.call` calls tools."""


@dataclass(frozen=True)
class RayEpisode:
    """How an episode went. Where it could not be judged or the platform failed, `error` says why."""

    task: str
    reward: float | None
    steps: int
    error: str = ""


class EpisodeWorker:
    """Plays episodes one after the other; `ray.remote(EpisodeWorker)` makes an actor of it."""

    def __init__(self, env_name: str, agent: EpisodeAgent, **options: Any) -> None:
        self._episode = ToolEpisode(EpisodeOptions(env_name, **options))
        self._agent = agent

    def tasks(self) -> list[str]:
        """The names of the environment's tasks."""
        return [task.id for task in LOOP.run(self._episode.tasks())]

    def play(self, task: str) -> RayEpisode:
        """One episode; its instance is gone afterwards."""
        return LOOP.run(self._play(task))

    async def _play(self, task: str) -> RayEpisode:
        known = {one.id: one for one in await self._episode.tasks()}
        if task not in known:
            near = ", ".join(list(known)[:3])
            raise ValueError(f"no task {task!r} in {self._episode.options.env_name}; there are {near} and others")
        try:
            await self._episode.begin(known[task])
            await self._agent(self._episode)
            return RayEpisode(task, await self._episode.reward(), self._episode.steps)
        except AEnvError as error:
            return RayEpisode(task, None, self._episode.steps, f"{type(error).__name__}: {error}")
        finally:
            await asyncio.shield(self._episode.close())


class TaskPlayer:
    """For `Dataset.map`: a row with a `task` gets `reward`, `steps` and `error`."""

    def __init__(self, env_name: str, agent: EpisodeAgent, options: dict[str, Any] | None = None) -> None:
        self._worker = EpisodeWorker(env_name, agent, **(options or {}))

    def __call__(self, row: dict[str, Any]) -> dict[str, Any]:
        return {**row, **asdict(self._worker.play(str(row["task"])))}


def play_tasks(
    env_name: str, agent: EpisodeAgent, tasks: Sequence[str] | None = None, *, actors: int = 2, **options: Any
) -> list[RayEpisode]:
    """An episode for each task, all of them unless named, in so many actors; in the order of the tasks."""
    remote = ray.remote(EpisodeWorker)
    workers = [remote.remote(env_name, agent, **options) for _ in range(actors)]
    chosen = list(tasks) if tasks is not None else ray.get(workers[0].tasks.remote())
    return list(ActorPool(workers).map(lambda worker, task: worker.play.remote(task), chosen))


def register_rllib(env_name: str, **options: Any) -> str:
    """Let RLlib know an environment, by the name that this gives; the options are those of `AenvGym`."""
    from ray.tune.registry import register_env

    def make(config: Any) -> Any:
        from aenv.integrations.gymnasium import AenvGym  # in the worker, which may run on another machine

        return AenvGym(env_name, **{**options, **dict(config)})

    name = f"aenv/{env_name}"
    register_env(name, make)
    return name
