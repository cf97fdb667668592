"""An agent at a terminal: a scripted one, or any OpenAI-compatible model where OPENAI_BASE_URL is set.

python example.py [TASK]
"""

from __future__ import annotations

import asyncio
import json
import os
import sys
from typing import Any

from aenv import Chat, Environment

SCRIPT = (
    ("keystrokes", {"keystrokes": "ls -l; cat notes.txt", "append_enter": True}),
    ("execute_command", {"command": "mkdir -p out && mv notes.txt out/"}),
    ("keystrokes", {"keystrokes": "echo 'Hello, terminal!' > out/hello.txt", "append_enter": True}),
    ("capture_pane", {}),
)


async def main(task: str) -> None:
    variables = {"TERMINALBENCH_TASK_ID": task}
    async with Environment("terminalbench@1.0.0", environment_variables=variables, ttl="30m") as env:
        asked = await env.call_function("get_task")
        print(asked["instruction"], "\n")
        if url := os.environ.get("OPENAI_BASE_URL"):
            async with Chat(url, os.environ.get("OPENAI_API_KEY")) as chat:
                await _model(env, chat, asked)
        else:
            for tool, arguments in SCRIPT:
                await _act(env, tool, arguments)
        print(json.dumps(await env.call_reward({}), indent=2))


async def _act(env: Environment, tool: str, arguments: dict[str, Any]) -> str:
    text: str = (await env.call_tool(tool, arguments)).content[0]["text"]
    print(f"> {tool} {json.dumps(arguments)}\n{text}\n")
    return text


async def _model(env: Environment, chat: Chat, asked: dict[str, Any]) -> None:
    messages: list[dict[str, Any]] = [
        {"role": "system", "content": asked["system"]},
        {"role": "user", "content": asked["instruction"]},
    ]
    body = {
        "model": os.environ.get("OPENAI_MODEL", "default"),
        "messages": messages,
        "tools": await env.openai_tools(),
    }
    for _ in range(asked["max_steps"]):
        answer = (await chat.complete(body)).message
        messages.append(answer)
        if not answer.get("tool_calls"):
            print(answer["content"])
            return
        for call in answer["tool_calls"]:
            function = call["function"]
            text = await _act(env, function["name"], json.loads(function["arguments"] or "{}"))
            messages.append({"role": "tool", "tool_call_id": call["id"], "content": text[-10_000:]})


asyncio.run(main(sys.argv[1] if len(sys.argv) > 1 else "greeting"))
