"""Environments of aenv as Gymnasium environments; needs `pip install 'gymnasium>=1.0'`.

    import aenv.integrations.gymnasium
    env = gymnasium.make("aenv/gsm-tools@1.0.0")

Importing registers the built-in environments; `register("my-env@1.0.0")` adds others. Actions and observations are
texts unless `codec` gives other spaces. A vector environment makes its calls at the same time, over the wire.
"""

from __future__ import annotations

import asyncio
import json
import re
import string
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from importlib import resources
from typing import Any, Protocol

import gymnasium
import numpy
from gymnasium.envs import registration
from gymnasium.vector import AutoresetMode, VectorEnv
from gymnasium.vector.utils import batch_space

from aenv import AEnvError
from aenv.integrations.loop_thread import LOOP
from aenv.integrations.tool_episode import Briefing, EpisodeOptions, Observation, ToolEpisode, TrainingTask
from aenv.rollouts.faults import is_infrastructure

NAMESPACE = "aenv"
# What the built-in environments need to know where an episode ends; others say it with `"done": true`.
_FINAL_TOOLS = {"gsm-tools": ("submit_answer",)}
_TEXT = string.printable + "·…–—’“”×÷−€"
_LONGEST = 100_000


class Codec(Protocol):
    """Between a policy's spaces and an environment's tools."""

    observation_space: gymnasium.Space[Any]
    action_space: gymnasium.Space[Any]

    def call(self, action: Any) -> tuple[str, dict[str, Any]]:
        """The tool and the arguments that an action means."""
        ...

    def begun(self, briefing: Briefing) -> Any:
        """The first observation of an episode."""
        ...

    def seen(self, observation: Observation) -> Any:
        """The observation that a tool's result is."""
        ...


class TextCodec:
    """Texts: an action is `{"tool": …, "arguments": {…}}`, an observation what the tool says."""

    def __init__(self) -> None:
        self.observation_space = gymnasium.spaces.Text(_LONGEST, min_length=0, charset=_TEXT)
        self.action_space = gymnasium.spaces.Text(2_000, min_length=0, charset=_TEXT)

    def call(self, action: Any) -> tuple[str, dict[str, Any]]:
        """For symmetry with other codecs; texts that are not calls are answered, not refused (`call_written`)."""
        asked = json.loads(action)
        return asked["tool"], asked.get("arguments", {})

    def begun(self, briefing: Briefing) -> str:
        return _within(briefing.instruction)

    def seen(self, observation: Observation) -> str:
        return _within(observation.text)


def _within(text: str) -> str:
    """The text with what the space's alphabet has not replaced."""
    return "".join(letter if letter in _TEXT else "?" for letter in text[:_LONGEST])


@dataclass(frozen=True)
class VectorStep:
    """What a step gave in one instance of a vector."""

    observation: Any
    reward: float
    is_done: bool = False
    is_cut: bool = False
    is_lost: bool = False
    """Whether the instance was lost: the episode is cut, and says nothing about the policy."""


@dataclass
class Slot:
    """One episode of a vector, and whether its next step begins another."""

    episode: ToolEpisode
    random: numpy.random.Generator = field(default_factory=numpy.random.default_rng)
    over: bool = False
    last: Any = None
    """What the policy of a vector saw last of it, in its own space."""

    async def begin(self, options: Mapping[str, Any] | None) -> Briefing:
        asked = dict(options or {})
        wanted = asked.pop("task", None)
        if self.episode.options.in_place and wanted is None:
            return await self.episode.restart(int(self.random.integers(2**31)), **asked)
        tasks = await self.episode.tasks()
        if wanted is None:
            return await self.episode.begin(tasks[int(self.random.integers(len(tasks)))])
        known = {task.id: task for task in tasks}
        return await self.episode.begin(known.get(wanted) or TrainingTask(wanted))

    async def step(self, codec: Codec, action: Any) -> tuple[Observation, float, bool]:
        """What was seen, the reward, and whether the steps are used up."""
        if isinstance(codec, TextCodec):
            seen = await self.episode.call_written(str(action))
        else:
            tool, arguments = codec.call(action)
            seen = await self.episode.call(tool, arguments)
        is_cut = not seen.done and self.episode.is_out_of_steps
        return seen, await self.episode.reward() if seen.done or is_cut else 0.0, is_cut

    async def begin_alone(self, codec: Codec) -> Any:
        """Begin another episode among others; the first observation.

        An instance that was lost between two episodes in the same place is replaced: it would end all the others.
        """
        try:
            briefing = await self.begin(None)
        except AEnvError as error:
            if not self.episode.options.in_place or not is_infrastructure(error):
                raise
            await self.episode.close()
            briefing = await self.begin(None)
        self.last = codec.begun(briefing)
        return self.last

    async def step_alone(self, codec: Codec, action: Any) -> VectorStep:
        """A step among others: an instance that is lost ends its own episode, which is cut, and no other.

        What was seen last is seen once more then: no codec knows how to say in numbers that nothing was.
        """
        try:
            seen, reward, is_cut = await self.step(codec, action)
        except AEnvError as error:
            if not is_infrastructure(error):
                raise
            await self.episode.close()
            return VectorStep(self.last, 0.0, is_done=False, is_cut=True, is_lost=True)
        self.last = codec.seen(seen)
        return VectorStep(self.last, reward, seen.done, is_cut)


class AenvGym(gymnasium.Env[Any, Any]):
    """One environment of aenv. `reset(seed=…)` draws a task; `options={"task": id}` names one.

    The reward comes with the last step, from the environment; a step before gives 0. An episode is terminated by a
    result that says so, and truncated after the task's `max_steps`.
    """

    metadata: dict[str, Any] = {"render_modes": []}  # noqa: RUF012 - Gymnasium's own form

    def __init__(
        self,
        env_name: str,
        *,
        codec: Codec | None = None,
        render_mode: str | None = None,
        **options: Any,
    ) -> None:
        self.render_mode = render_mode
        self.codec = codec or TextCodec()
        self.observation_space = self.codec.observation_space
        self.action_space = self.codec.action_space
        self._slot = Slot(ToolEpisode(options_of(env_name, options)))

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed)
        self._slot.random = self.np_random
        briefing = LOOP.run(self._slot.begin(options))
        return self.codec.begun(briefing), {"task": briefing.task.id, "system": briefing.system}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        seen, reward, is_cut = LOOP.run(self._slot.step(self.codec, action))
        return self.codec.seen(seen), reward, seen.done, is_cut, {"is_error": seen.is_error}

    def close(self) -> None:
        LOOP.run(self._slot.episode.close())


class AenvVector(VectorEnv[Any, Any, Any]):
    """Many instances of one environment; a step calls all of them at the same time. Resets in the next step."""

    metadata: dict[str, Any] = {"autoreset_mode": AutoresetMode.NEXT_STEP}  # noqa: RUF012 - Gymnasium's own form

    def __init__(self, env_name: str, *, num_envs: int = 1, codec: Codec | None = None, **options: Any) -> None:
        self.num_envs = num_envs
        self.codec = codec or TextCodec()
        self.single_observation_space = self.codec.observation_space
        self.single_action_space = self.codec.action_space
        self.observation_space = batch_space(self.single_observation_space, num_envs)
        self.action_space = batch_space(self.single_action_space, num_envs)
        self._slots = [Slot(ToolEpisode(options_of(env_name, options))) for _ in range(num_envs)]

    def reset(
        self, *, seed: int | Sequence[int | None] | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Any, dict[str, Any]]:
        seeds = _seeds(seed, self.num_envs)
        for slot, number in zip(self._slots, seeds, strict=True):
            if number is not None:
                slot.random = numpy.random.default_rng(number)
            slot.over = False
        briefings = LOOP.run(self._all(slot.begin(options) for slot in self._slots))
        tasks = numpy.array([briefing.task.id for briefing in briefings], dtype=object)
        for slot, briefing in zip(self._slots, briefings, strict=True):
            slot.last = self.codec.begun(briefing)
        return self._batched([slot.last for slot in self._slots]), {"task": tasks}

    def step(self, actions: Any) -> tuple[Any, Any, Any, Any, dict[str, Any]]:
        made = LOOP.run(
            self._all(self._next(slot, action) for slot, action in zip(self._slots, actions, strict=True))
        )
        lost = numpy.array([one.is_lost for one in made], dtype=bool)
        return (
            self._batched([one.observation for one in made]),
            numpy.array([one.reward for one in made], dtype=numpy.float64),
            numpy.array([one.is_done for one in made], dtype=bool),
            numpy.array([one.is_cut for one in made], dtype=bool),
            {"lost": lost} if lost.any() else {},
        )

    def close_extras(self, **kwargs: Any) -> None:
        LOOP.run(self._all(slot.episode.close() for slot in self._slots))

    async def _next(self, slot: Slot, action: Any) -> VectorStep:
        if slot.over:
            slot.over = False
            return VectorStep(await slot.begin_alone(self.codec), 0.0)
        made = await slot.step_alone(self.codec, action)
        slot.over = made.is_done or made.is_cut
        return made

    def _batched(self, observations: list[Any]) -> Any:
        if isinstance(self.single_observation_space, gymnasium.spaces.Text):
            return tuple(observations)
        return numpy.stack(observations)

    @staticmethod
    async def _all(works: Any) -> list[Any]:
        return list(await asyncio.gather(*works))


def _seeds(seed: int | Sequence[int | None] | None, count: int) -> list[int | None]:
    """One seed gives each environment another."""
    if isinstance(seed, int):
        return [seed + n for n in range(count)]
    return [None] * count if seed is None else list(seed)


def options_of(env_name: str, given: Mapping[str, Any]) -> EpisodeOptions:
    base = EpisodeOptions(env_name, final_tools=_FINAL_TOOLS.get(env_name.partition("@")[0], ()))
    return replace(base, **given)


def _allow_versions() -> None:
    """Let ids have an "@": references such as gsm-tools@1.0.0 are ids here, and Gymnasium's pattern knows none."""
    known = registration.ENV_ID_RE.pattern
    if not registration.ENV_ID_RE.fullmatch("aenv/x@1.0.0"):
        registration.ENV_ID_RE = re.compile(known.replace(r"(?P<name>[\w:.-]+?)", r"(?P<name>[\w:.@-]+?)"))


def register(env_name: str) -> str:
    """Let `gymnasium.make` and `make_vec` know an environment; gives its id, "aenv/my-env@1.0.0"."""
    id = f"{NAMESPACE}/{env_name}"
    registration.registry.pop(id, None)  # to register again must not warn
    registration.register(
        id,
        entry_point="aenv.integrations.gymnasium:AenvGym",
        vector_entry_point="aenv.integrations.gymnasium:AenvVector",
        kwargs={"env_name": env_name},
    )
    return id


def _register_built_in() -> None:
    for folder in resources.files("aenv.envs").iterdir():
        described = folder / "config.json"
        if described.is_file():
            project = json.loads(described.read_text(encoding="utf-8"))
            register(f"{project['name']}@{project['version']}")


_allow_versions()
_register_built_in()
