"""An agent that asks a chat model, for trainers that serve one: its tool calls are made until the episode ends."""

from __future__ import annotations

import json
from typing import Any

from aenv import Chat
from aenv.integrations.tool_episode import ToolEpisode, TrainingTask


async def play(episode: ToolEpisode, chat: Chat, model: str, task: TrainingTask, **sampling: Any) -> float:
    """An episode's reward. It ends when no tool is called, when a result says so, or after so many steps."""
    briefing = await episode.begin(task)
    messages: list[dict[str, Any]] = [
        *([{"role": "system", "content": briefing.system}] if briefing.system else []),
        {"role": "user", "content": briefing.instruction},
    ]
    tools = await episode.tools()
    while not episode.is_out_of_steps:
        said = (await chat.complete({**sampling, "model": model, "messages": messages, "tools": tools})).message
        messages.append(said)
        if not said.get("tool_calls"):
            break
        over = False
        for call in said["tool_calls"]:
            content, ended = await _called(episode, call["function"])
            messages.append({"role": "tool", "tool_call_id": call["id"], "content": content})
            over = over or ended
        if over:
            break
    return await episode.reward()


async def _called(episode: ToolEpisode, function: dict[str, Any]) -> tuple[str, bool]:
    try:
        arguments = json.loads(function.get("arguments") or "{}")
    except ValueError:
        arguments = None
    if not isinstance(arguments, dict):
        return "the arguments are not a JSON object", False
    seen = await episode.call(function["name"], arguments)
    return seen.text, seen.done
