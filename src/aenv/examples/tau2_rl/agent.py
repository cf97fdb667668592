"""One episode of tau2, turn by turn: a model talks to the customer and calls tools; the reward is tau2's.

    reward = await run_agent_return_reward({"domain": "telecom", "task_id": "…"})

The model is where `base_url` says, as AReaL hands it over, else where OPENAI_BASE_URL says.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from typing import Any, Protocol

from aenv import Chat, Environment, NotJudged

ENVIRONMENT = "tau2@1.0.0"
_MOST_TURNS = 200
_OWN = "tau2_"


class AnsweringModel(Protocol):
    """What answers chat completions: `aenv.Chat`, or a script."""

    async def complete(self, body: Mapping[str, Any]) -> Any:
        """An object whose `message` is what the model says."""
        ...


async def run_agent_return_reward(
    data: Mapping[str, Any],
    *,
    base_url: str | None = None,
    api_key: str | None = None,
    model: str | None = None,
    http_client: Any = None,
) -> float:
    """Play the task that `data` names (`domain`, `task_id`, `solo_mode`), and give its reward: 1.0 or 0.0.

    Raises NotJudged where the episode says nothing about the agent: such an episode is not a reward of 0.
    `http_client` is what AReaL hands over; connections are our own.
    """
    url = base_url or os.environ.get("OPENAI_BASE_URL")
    if not url:
        raise ValueError("no model: give base_url=…, or set OPENAI_BASE_URL to an OpenAI-compatible server")
    name = model or os.environ.get("OPENAI_MODEL", "default")
    async with Chat(url, api_key or os.environ.get("OPENAI_API_KEY")) as chat:
        return await play(data, chat, name)


class Tau2Agent:
    """The same as a class, which is what AReaL's workflows name: `aenv.examples.tau2_rl.agent.Tau2Agent`."""

    def __init__(self, model: str | None = None) -> None:
        self._model = model

    async def run(self, data: Mapping[str, Any], **extra: Any) -> float:
        """One episode. AReaL gives `base_url`, `api_key` and `http_client`."""
        return await run_agent_return_reward(data, model=self._model, **extra)


async def play(data: Mapping[str, Any], chat: AnsweringModel, model: str) -> float:
    """The reward of one episode with this model."""
    async with Environment(ENVIRONMENT, environment_variables=_variables(data)) as env:
        await _converse(env, chat, model)
        judged = await env.call_reward({})
    if judged.get("invalid"):
        raise NotJudged("invalid", str(judged["invalid"]))
    return float(judged["total_reward"])


def _variables(data: Mapping[str, Any]) -> dict[str, str]:
    """Those of this process for tau2 (a user's model, say), and what the row of a dataset names."""
    variables = {name: value for name, value in os.environ.items() if name.startswith("TAU2_")}
    named = {"TAU2_DOMAIN": data.get("domain"), "TAU2_TASK_ID": data.get("task_id")}
    if data.get("solo_mode"):
        named["TAU2_SOLO_MODE"] = "true"
    return {**variables, **{name: str(value) for name, value in named.items() if value is not None}}


async def _converse(env: Environment, chat: AnsweringModel, model: str) -> None:
    """Until the episode is over: tool calls are made, and what else the model says goes to the customer."""
    status = await env.call_function("tau2_get_status", {})
    messages: list[dict[str, Any]] = [
        {"role": "system", "content": await env.call_function("tau2_get_system_prompt", {})},
        {"role": "user", "content": status["last_observation"]},
    ]
    # The environment's own tools are for the loop; the model has those of the domain.
    tools = [tool for tool in await env.openai_tools() if not tool["function"]["name"].startswith(_OWN)]
    for _ in range(_MOST_TURNS):
        if (await env.call_function("tau2_get_status", {}))["done"]:
            return
        said = (await chat.complete({"model": model, "messages": messages, "tools": tools})).message
        messages.append(said)
        for call in said.get("tool_calls") or []:
            content = await _called(env, call["function"])
            messages.append({"role": "tool", "tool_call_id": call["id"], "content": content})
        if not said.get("tool_calls"):
            answer = await env.call_function("tau2_send_message", {"message": said.get("content") or ""})
            messages.append({"role": "user", "content": answer["observation"]})


async def _called(env: Environment, function: Mapping[str, Any]) -> str:
    try:
        arguments = json.loads(function.get("arguments") or "{}")
    except ValueError:
        return "Error: the arguments are not JSON"
    result = await env.call_tool(function["name"], arguments)
    found = result.structured if isinstance(result.structured, dict) else {}
    return str(found.get("observation", result.text))
