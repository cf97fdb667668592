"""An agent over a few tasks: a model where OPENAI_BASE_URL names one, else the reference solution."""

from __future__ import annotations

import asyncio
import json
import os
import urllib.request
from typing import Any

from aenv import Environment

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
                await solve(env, told, url)
            else:
                await env.call_function("play_gold")
            rewards.append((await env.call_reward({}))["reward"])
            print(f"{told['id']}: {told['instruction']}\n  reward {rewards[-1]}")
    print(f"{sum(rewards):g} of {len(rewards)}")


async def solve(env: Environment, told: dict[str, Any], url: str) -> None:
    """Let a model call tools until it has said all it wants to say."""
    tools = [
        {
            "type": "function",
            "function": {
                "name": tool["name"].rpartition("/")[2],
                "description": tool["description"],
                "parameters": tool["inputSchema"],
            },
        }
        for tool in await env.list_tools()
    ]
    messages: list[dict[str, Any]] = [
        {"role": "system", "content": told["system"]},
        {"role": "user", "content": told["instruction"]},
    ]
    for _ in range(told["max_steps"]):
        said = await asyncio.to_thread(ask, url, {"messages": messages, "tools": tools})
        messages.append(said)
        if not said.get("tool_calls"):
            return
        for call in said["tool_calls"]:
            function = call["function"]
            result = await env.call_tool(function["name"], json.loads(function["arguments"] or "{}"))
            text = "\n".join(part.get("text", "") for part in result.content)
            messages.append({"role": "tool", "tool_call_id": call["id"], "content": text})


def ask(url: str, body: dict[str, Any]) -> dict[str, Any]:
    """The model's next message."""
    request = urllib.request.Request(
        f"{url.rstrip('/')}/chat/completions",
        json.dumps({"model": os.environ.get("OPENAI_MODEL", "gpt-4o-mini"), **body}).encode(),
        {"content-type": "application/json", "authorization": f"Bearer {os.environ.get('OPENAI_API_KEY', '')}"},
    )
    with urllib.request.urlopen(request, timeout=120) as reply:
        message: dict[str, Any] = json.load(reply)["choices"][0]["message"]
    return message


asyncio.run(main())
