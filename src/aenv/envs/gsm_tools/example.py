"""An agent over a few tasks: a model where OPENAI_BASE_URL names one, else the reference solution."""

from __future__ import annotations

import asyncio
import json
import os
from typing import Any

from aenv import Chat, Environment

NAME = "gsm-tools@1.0.0"


async def main() -> None:
    async with Environment(NAME, environment_variables={"GSM_COUNT": "5"}) as env:
        tasks = await env.call_function("list_tasks", {"split": "train"})
    url = os.environ.get("OPENAI_BASE_URL")
    rewards = []
    for task in tasks:
        variables = {**task["variables"], **({} if url else {"AENV_VALIDATION": "1"})}
        async with Environment(NAME, environment_variables=variables) as env:
            told = await env.call_function("get_task")
            if url:
                async with Chat(url, os.environ.get("OPENAI_API_KEY")) as chat:
                    await solve(env, told, chat)
            else:
                await env.call_function("play_gold")
            rewards.append((await env.call_reward({}))["reward"])
            print(f"{told['id']}: {told['instruction']}\n  reward {rewards[-1]}")
    print(f"{sum(rewards):g} of {len(rewards)}")


async def solve(env: Environment, told: dict[str, Any], chat: Chat) -> None:
    """Let a model call tools until it has said all it wants to say."""
    messages: list[dict[str, Any]] = [
        {"role": "system", "content": told["system"]},
        {"role": "user", "content": told["instruction"]},
    ]
    body = {
        "model": os.environ.get("OPENAI_MODEL", "gpt-4o-mini"),
        "messages": messages,
        "tools": await env.openai_tools(),
    }
    for _ in range(told["max_steps"]):
        said = (await chat.complete(body)).message
        messages.append(said)
        if not said.get("tool_calls"):
            return
        for call in said["tool_calls"]:
            function = call["function"]
            result = await env.call_tool(function["name"], json.loads(function["arguments"] or "{}"))
            text = "\n".join(part.get("text", "") for part in result.content)
            messages.append({"role": "tool", "tool_call_id": call["id"], "content": text})


asyncio.run(main())
