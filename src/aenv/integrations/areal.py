"""AReaL: episodes for its agent workflows, on a model that AReaL serves. It needs nothing of AReaL installed.

    workflow = "aenv.integrations.areal.AenvAgent"      # a class with `async run(data, **extra)`
    workflow_kwargs = {"env_name": "gsm-tools@1.0.0", "final_tools": ["submit_answer"]}

AReaL hands `run` the address and the key of its proxy, which records what the model says; `run` gives the reward.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from aenv import Chat
from aenv.integrations import chat_agent
from aenv.integrations.tool_episode import EpisodeOptions, ToolEpisode, TrainingTask


class AenvAgent:
    """What AReaL calls an agent: one `run` is one episode."""

    def __init__(
        self, env_name: str, *, model: str = "default", sampling: Mapping[str, Any] | None = None, **options: Any
    ) -> None:
        self._options = EpisodeOptions(env_name, **options)
        self._model = model
        self._sampling = dict(sampling or {})

    async def run(self, data: dict[str, Any], **extra: Any) -> float:
        """The reward of the task that `data` names, played by the model at `base_url`.

        `data` has `task_id`, `variables` or both; the name `id` is understood too.
        """
        if "base_url" not in extra:
            raise ValueError(
                "run needs base_url=…, the address of the model's server; AReaL's inline mode gives it"
            )
        episode = ToolEpisode(self._options)
        try:
            task = await _task(episode, data)
            async with Chat(extra["base_url"], extra.get("api_key")) as chat:
                return await chat_agent.play(episode, chat, self._model, task, **self._sampling)
        finally:
            await episode.close()


async def _task(episode: ToolEpisode, data: Mapping[str, Any]) -> TrainingTask:
    id, variables = str(data.get("task_id", data.get("id", ""))), data.get("variables")
    if variables is not None:
        return TrainingTask(id, variables)
    known = {task.id: task for task in await episode.tasks()}
    if id not in known:
        near = ", ".join(list(known)[:3])
        raise ValueError(f"no task {id!r} in {episode.options.env_name}; there are {near} and others")
    return known[id]
