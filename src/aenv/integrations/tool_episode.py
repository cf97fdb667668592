"""Tasks of an environment as trainers see them: begin one, call tools, be rewarded.

Every integration stands on this. Not here: what a framework calls these things (the module of that framework).
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from aenv import Environment, EnvironmentError, NotJudged, ToolError
from aenv.rollouts.faults import is_infrastructure
from aenv.rollouts.rewards import read_reward


@dataclass(frozen=True)
class TrainingTask:
    """A task as `list_tasks` names it: an instance for it is created with these variables."""

    id: str
    variables: Mapping[str, str] = field(default_factory=dict)
    datasource: str = ""


@dataclass(frozen=True)
class Briefing:
    """What the agent is told of its task."""

    task: TrainingTask
    instruction: str
    system: str
    max_steps: int


@dataclass(frozen=True)
class Observation:
    """What a call gave: the text for the agent, and whether the episode is over."""

    text: str
    is_error: bool
    done: bool
    structured: Any = None


@dataclass(frozen=True)
class EpisodeOptions:
    """Which environment, and how its episodes begin and end.

    `final_tools` end the episode when they succeed, as a result with `"done": true` does. `variables` are added to
    those of each task. `in_place` begins an episode with the environment's own reset, which gets the seed, in the
    instance of the episode before: quicker than a new instance, for environments that register a reset.
    """

    env_name: str
    final_tools: Sequence[str] = ()
    split: str = ""
    variables: Mapping[str, str] = field(default_factory=dict)
    max_steps: int | None = None
    in_place: bool = False
    aenv_url: str | None = None
    api_key: str | None = None


DEFAULT_STEPS = 30


class ToolEpisode:
    """Episodes of one environment, one after the other. Not for several callers at once: make one for each."""

    def __init__(self, options: EpisodeOptions) -> None:
        self.options = options
        self.briefing: Briefing | None = None
        self.steps = 0
        self._env: Environment | None = None
        self._tasks: list[TrainingTask] | None = None

    async def tasks(self) -> list[TrainingTask]:
        """The environment's tasks; one without a name where it lists none. Asked for once."""
        if self._tasks is None:
            async with self._environment({}) as env:
                functions = await env.list_functions()
                if "list_tasks" in {one["name"] for one in functions["functions"]}:
                    arguments = {"split": self.options.split} if self.options.split else {}
                    listed = await env.call_function("list_tasks", arguments)
                    self._tasks = [
                        TrainingTask(one["id"], one.get("variables", {}), one.get("datasource", ""))
                        for one in listed
                    ]
            self._tasks = self._tasks or [TrainingTask("")]
        return self._tasks

    async def begin(self, task: TrainingTask) -> Briefing:
        """Start an instance for this task; that of the episode before is given back."""
        await self.close()
        self._env = self._environment(task.variables, task.datasource)
        try:
            await self._env.initialize()
            told = await self._told()
        except BaseException:
            await self.close()
            raise
        return self._briefed(task, told)

    async def restart(self, seed: int | None, **options: Any) -> Briefing:
        """Begin again in the same instance, by the reset of the environment."""
        if self._env is None:
            self._env = self._environment({})
        told = await self._env.reset(seed=seed, **options)
        if not isinstance(told, dict) or "instruction" not in told:
            told = await self._told()
        return self._briefed(TrainingTask(str(told.get("id", ""))), told)

    async def tools(self) -> list[dict[str, Any]]:
        """The tools as OpenAI's chat completions take them; also before the first episode."""
        if self._env is not None:
            return await self._env.openai_tools()
        async with self._environment({}) as env:
            return await env.openai_tools()

    async def call(self, tool: str, arguments: dict[str, Any]) -> Observation:
        """Call a tool. A call that cannot be made is an observation too: a trainer's policy may say anything.

        What the infrastructure has lost is raised.
        """
        env, _ = self._begun()
        self.steps += 1
        try:
            result = await env.call_tool(tool, arguments)
        except ToolError as error:
            if is_infrastructure(error):  # says nothing about the policy
                raise
            return Observation(str(error), True, False)
        found = result.structured if isinstance(result.structured, dict) else {}
        ended = found.get("done") is True or (_short(tool) in self.options.final_tools and not result.is_error)
        text = str(found["observation"]) if "observation" in found else result.text
        return Observation(text, result.is_error, ended, result.structured)

    async def call_written(self, text: str) -> Observation:
        """Make the call that a text asks for: `{"tool": "calculate", "arguments": {"expression": "2 + 3"}}`."""
        try:
            asked = json.loads(text)
            tool, arguments = asked["tool"], asked.get("arguments", {})
            if not isinstance(tool, str) or not isinstance(arguments, dict):
                raise TypeError
        except (ValueError, TypeError, KeyError, AttributeError):
            self._begun()
            self.steps += 1
            hint = '{"tool": "NAME", "arguments": {}}'
            return Observation(f"not a tool call; write one such as {hint}", True, False)
        return await self.call(tool, arguments)

    @property
    def is_out_of_steps(self) -> bool:
        return self.briefing is not None and self.steps >= self.briefing.max_steps

    async def reward(self) -> float:
        """What the environment gives for the episode as it stands. Raises NotJudged where it gives no number."""
        env, _ = self._begun()
        judged = read_reward(await env.call_reward({}))
        if judged.number is None:
            if judged.outcome in ("invalid", "not_ready"):
                raise NotJudged(str(judged.outcome), judged.reason)
            raise EnvironmentError(judged.reason, self.options.env_name)
        return judged.number

    async def close(self) -> None:
        """Give the instance back; it may be closed twice."""
        env, self._env, self.briefing = self._env, None, None
        if env is not None:
            await env.release()

    def _environment(self, variables: Mapping[str, str], datasource: str = "") -> Environment:
        return Environment(
            self.options.env_name,
            datasource,
            environment_variables={**self.options.variables, **variables},
            aenv_url=self.options.aenv_url,
            api_key=self.options.api_key,
        )

    async def _told(self) -> dict[str, Any]:
        assert self._env
        functions = await self._env.list_functions()
        if "get_task" not in {one["name"] for one in functions["functions"]}:
            return {}
        told: dict[str, Any] = await self._env.call_function("get_task", {})
        return told

    def _briefed(self, task: TrainingTask, told: Mapping[str, Any]) -> Briefing:
        steps = self.options.max_steps or told.get("max_steps") or DEFAULT_STEPS
        self.steps = 0
        self.briefing = Briefing(task, str(told.get("instruction", "")), str(told.get("system", "")), int(steps))
        return self.briefing

    def _begun(self) -> tuple[Environment, Briefing]:
        if self._env is None or self.briefing is None:
            raise EnvironmentError("no episode has begun; reset first", self.options.env_name)
        return self._env, self.briefing


def _short(tool: str) -> str:
    return tool.rpartition("/")[2]
