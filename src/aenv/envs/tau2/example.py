"""An agent that serves a customer of τ²-bench, with or without a model.

    TAU2_DATA_DIR=... python example.py                        # an agent that follows a script, on the mock domain
    OPENAI_BASE_URL=... OPENAI_MODEL=... python example.py     # a model; OPENAI_API_KEY if the server wants one
    TAU2_DOMAIN=airline TAU2_TASK_ID=3 python example.py

The scripted agent knows no answer: it tries the tools that need no arguments, asks who is there, and says goodbye.
"""

from __future__ import annotations

import asyncio
import json
import os
from typing import Any

from aenv import Chat, Environment

Json = dict[str, Any]
OWN = ("tau2_send_message", "tau2_done")


async def main() -> None:
    variables = {name: value for name, value in os.environ.items() if name.startswith("TAU2_")}
    variables.setdefault("TAU2_DOMAIN", "mock")
    async with Environment("tau2@1.0.0", environment_variables=variables) as env:
        info = await env.call_function("tau2_get_task_info", {})
        print(f"task {info['task_id']} of {info['domain']}, with {len(info['tools'])} tools")
        if url := os.environ.get("OPENAI_BASE_URL"):
            async with Chat(url, os.environ.get("OPENAI_API_KEY")) as chat:
                await by_model(env, chat)
        else:
            await by_script(env)
        print(json.dumps(await env.call_reward({}), indent=2))


async def by_script(env: Environment) -> None:
    """Nothing but what any agent could do without knowing the task."""
    status = await env.call_function("tau2_get_status", {})
    print(f"user: {status['last_observation']}")
    for tool in await env.call_function("tau2_get_available_tools", {}):
        function = tool["function"]
        if not function["parameters"].get("required") and function["name"] != "done":
            print(f"{function['name']}: {await answer_of(env, function['name'], {})}")
    info = await env.call_function("tau2_get_task_info", {})
    if not status["done"] and not info["solo_mode"]:
        for text in ("Could you please tell me your name or your user id?", "Thank you for calling. Goodbye."):
            print(f"agent: {text}")
            print(f"user: {await answer_of(env, 'tau2_send_message', {'message': text})}")
    await env.call_tool("tau2_done", {})


async def by_model(env: Environment, chat: Chat) -> None:
    """The usual loop: the model calls tools, and what it says goes to the user."""
    tools = [tool for tool in await env.openai_tools() if not _is_ours(tool) or _name(tool) in OWN]
    task = await env.call_function("get_task", {})
    messages: list[Json] = [
        {"role": "system", "content": task["system"]},
        {"role": "user", "content": task["instruction"]},
    ]
    body = {"model": os.environ.get("OPENAI_MODEL", "default"), "messages": messages, "tools": tools}
    for _ in range(task["max_steps"]):
        message = (await chat.complete(body)).message
        messages.append(message)
        for call in message.get("tool_calls") or []:
            name, arguments = call["function"]["name"], json.loads(call["function"]["arguments"] or "{}")
            content = await answer_of(env, name, arguments)
            print(f"{name}: {content}")
            messages.append({"role": "tool", "tool_call_id": call["id"], "content": content})
        if not message.get("tool_calls"):
            said = message.get("content") or "Is there anything else?"
            messages.append({"role": "user", "content": await answer_of(env, OWN[0], {"message": said})})
        if (await env.call_function("tau2_get_status", {}))["done"]:
            return


async def answer_of(env: Environment, name: str, arguments: Json) -> str:
    """What a tool observed, or why it could not be called."""
    result = await env.call_tool(name, arguments)
    return result.text if result.is_error else str(result.structured.get("observation", result.text))


def _name(tool: Json) -> str:
    return str(tool["function"]["name"])


def _is_ours(tool: Json) -> bool:
    return _name(tool).startswith("tau2_")


if __name__ == "__main__":
    asyncio.run(main())
