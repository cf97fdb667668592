"""AReaL: episodes for its agent workflows, on a model that it serves; for `pip install 'areal>=1.0.4'`.

    workflow = "aenv.integrations.areal.AenvAgent"      # a class with `async run(data, **extra)`
    workflow_kwargs = {"env_name": "gsm-tools@1.0.0", "final_tools": ["submit_answer"]}

Nothing of AReaL is imported. It hands `run` the address and the key of its proxy, which records what the model
says; `run` gives the reward.
`run_in_session` is for agents outside of AReaL's workers: it opens and ends the proxy's session itself.
"""

from __future__ import annotations

import asyncio
import json
import os
from collections.abc import Mapping
from typing import Any, Protocol
from urllib.error import HTTPError
from urllib.request import Request, urlopen

from aenv import Chat
from aenv.integrations import chat_agent
from aenv.integrations.tool_episode import EpisodeOptions, ToolEpisode, TrainingTask

_PASSING = (408, 429, 502, 503, 504)  # what AReaL's own client asks again after
_FIRST_PAUSE, _LONGEST_PAUSE = 0.25, 5.0  # seconds


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

        Without `base_url`, by the one at OPENAI_BASE_URL: AReaL's mode `subproc` tells it so.
        `data` has `task_id`, `variables` or both; the name `id` is understood too.
        """
        url, key = _model(extra)
        episode = ToolEpisode(self._options)
        try:
            task = await _task(episode, data)
            async with Chat(url, key) as chat:
                return await chat_agent.play(episode, chat, self._model, task, **self._sampling)
        finally:
            await episode.close()


class SessionAgent(Protocol):
    """What AReaL runs: one call is one episode."""

    async def run(self, data: dict[str, Any], **extra: Any) -> float:
        """The reward."""
        ...


async def run_in_session(agent: SessionAgent, data: dict[str, Any], *, proxy_url: str, admin_key: str) -> float:
    """Run an agent within a session of AReaL's proxy, and tell the proxy its reward.

    Waits until the proxy has room for a session. An episode without a reward (NotJudged, a failure of the
    platform) ends its session without one, and is raised.
    """
    base = proxy_url.rstrip("/")
    task = str(data.get("task_id", data.get("id", "")))
    session = await _started(f"{base}/rl/start_session", admin_key, {"task_id": task})
    key = session["api_key"]
    try:
        reward = float(await agent.run(data, base_url=base, api_key=key))
        await _post(f"{base}/rl/set_reward", key, {"interaction_id": None, "reward": reward})
        return reward
    finally:
        await asyncio.shield(_post(f"{base}/rl/end_session", key, {}))


async def _started(url: str, admin_key: str, body: Mapping[str, Any]) -> Any:
    """A session. The proxy refuses those that its trainer has no room for yet, and offers nothing to wait for.

    It is asked for as long as AReaL's own client asks, which is until the caller gives up.
    """
    pause = _FIRST_PAUSE
    while True:
        try:
            return await _post(url, admin_key, body)
        except HTTPError as error:
            if error.code not in _PASSING:
                raise
        await asyncio.sleep(pause)
        pause = min(2 * pause, _LONGEST_PAUSE)


async def _post(url: str, key: str, body: Mapping[str, Any]) -> Any:
    headers = {"authorization": f"Bearer {key}", "content-type": "application/json"}

    def ask() -> Any:
        with urlopen(Request(url, json.dumps(body).encode(), headers), timeout=60) as reply:
            return json.loads(reply.read() or b"null")

    return await asyncio.to_thread(ask)


def _model(given: Mapping[str, Any]) -> tuple[str, str | None]:
    """Address and key of the model's server; a key of the environment's only goes to the environment's address."""
    if url := given.get("base_url"):
        return url, given.get("api_key")
    if url := os.environ.get("OPENAI_BASE_URL"):
        return url, os.environ.get("OPENAI_API_KEY")
    raise ValueError("no model: AReaL gives base_url=… (mode inline) or sets OPENAI_BASE_URL (mode subproc)")


async def _task(episode: ToolEpisode, data: Mapping[str, Any]) -> TrainingTask:
    id, variables = str(data.get("task_id", data.get("id", ""))), data.get("variables")
    if variables is not None:
        return TrainingTask(id, variables)
    known = {task.id: task for task in await episode.tasks()}
    if id not in known:
        near = ", ".join(list(known)[:3])
        raise ValueError(f"no task {id!r} in {episode.options.env_name}; there are {near} and others")
    return known[id]
