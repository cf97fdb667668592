"""SkyRL: environments of aenv as text environments; needs `pip install 'skyrl-gym>=0.3'`.

    skyrl_gym.register(id="aenv", entry_point="aenv.integrations.skyrl:AenvTextEnv")
    env = skyrl_gym.make("aenv", env_config=None, extras={"env_name": "gsm-tools@1.0.0", "task": "1-3", ...})

A model's text holds its call as JSON, alone or in `<tool_call>…</tool_call>`.
"""

from __future__ import annotations

import re
from dataclasses import fields
from typing import Any

from skyrl_gym.envs.base_text_env import BaseTextEnv, BaseTextEnvStepOutput

from aenv.integrations.loop_thread import LOOP
from aenv.integrations.tool_episode import EpisodeOptions, ToolEpisode, TrainingTask

_TAGGED = re.compile(r"<tool_call>\s*(.*?)\s*</tool_call>", re.DOTALL)
_OPTIONS = {field.name for field in fields(EpisodeOptions)}


class AenvTextEnv(BaseTextEnv):
    """One episode. `extras` names environment, task and the options of `EpisodeOptions`."""

    def __init__(self, env_config: Any = None, extras: dict[str, Any] | None = None) -> None:
        super().__init__()
        given = dict(extras or {})
        if "env_name" not in given:
            raise ValueError("extras must have env_name, such as 'gsm-tools@1.0.0'")
        self._episode = ToolEpisode(EpisodeOptions(**{name: given[name] for name in _OPTIONS & set(given)}))
        self._task: str | None = given.get("task")
        self._reward = 0.0

    def init(self, prompt: list[dict[str, str]]) -> tuple[list[dict[str, str]], dict[str, Any]]:
        """The prompt, and after it what the task says."""
        briefing = LOOP.run(self._begin())
        self.max_turns = briefing.max_steps
        told = [{"role": "user", "content": briefing.instruction}]
        system = [{"role": "system", "content": briefing.system}] if briefing.system and not prompt else []
        return [*system, *prompt, *told], {"task": briefing.task.id}

    def step(self, action: str) -> BaseTextEnvStepOutput:
        found = _TAGGED.search(action)
        seen, reward, over = LOOP.run(self._step(found[1] if found else action.strip()))
        self.turns += 1
        self._reward = reward
        return BaseTextEnvStepOutput(
            observations=[] if over else [{"role": "user", "content": seen.text}],
            reward=reward,
            done=over,
            metadata={"is_error": seen.is_error},
        )

    def get_metrics(self) -> dict[str, Any]:
        return {"reward": self._reward, "turns": self.turns}

    def close(self) -> None:
        LOOP.run(self._episode.close())

    async def _begin(self) -> Any:
        known = {task.id: task for task in await self._episode.tasks()}
        task = (
            next(iter(known.values())) if self._task is None else known.get(self._task, TrainingTask(self._task))
        )
        return await self._episode.begin(task)

    async def _step(self, text: str) -> Any:
        seen = await self._episode.call_written(text)
        over = seen.done or self._episode.is_out_of_steps
        return seen, await self._episode.reward() if over else 0.0, over
