"""An agent in a simulated world: scripted by default, a model of yours when OPENAI_BASE_URL is set.

    python src/aenv/envs/simulation/example.py [greenhouse | help-desk | trading-post]

With OPENAI_BASE_URL, OPENAI_API_KEY and OPENAI_MODEL the model acts; without, a plan for the greenhouse does.
"""

from __future__ import annotations

import asyncio
import json
import os
import sys
from typing import Any

from aenv import Chat, Environment

PLAN: list[dict[str, Any]] = [
    {"action": "water"},
    {"action": "heater", "arguments": {"on": True}},
    {"action": "wait"},
    {"action": "wait"},
    {"action": "water"},
    {"action": "heater", "arguments": {"on": False}},
    {"action": "wait"},
    {"action": "wait"},
]


async def main(scenario: str) -> None:
    """Play one episode and print what happens."""
    variables = {"SIMULATION_SCENARIO": scenario}
    async with Environment("simulation@1.0.0", environment_variables=variables) as env:
        task = await env.call_function("get_task", {})
        print(f"task: {task['instruction']}\n")
        plan = list(PLAN) if scenario == "greenhouse" else []
        for _ in range(task["max_steps"]):
            seen = json.loads((await env.call_tool("observe", {})).text)
            step = await ask(task, seen) if os.environ.get("OPENAI_BASE_URL") else take(plan)
            if step is None:
                break
            result = await env.call_tool("act", step)
            print(f"{step['action']} {step.get('arguments', {})}\n  {result.text}")
        await env.call_tool("finish", {})
        print(f"\nreward: {await env.call_reward({})}")


def take(plan: list[dict[str, Any]]) -> dict[str, Any] | None:
    """The next step of a plan; None at its end."""
    return plan.pop(0) if plan else None


async def ask(task: dict[str, Any], seen: dict[str, Any]) -> dict[str, Any] | None:
    """What a model wants to do; None when it is done."""
    form = '{"action": name or "finish", "arguments": {...}}'
    told = f"{task['system']}\n{task['instruction']}\nReply with JSON: {form}"
    messages = [{"role": "system", "content": told}, {"role": "user", "content": json.dumps(seen)}]
    body = {
        "model": os.environ.get("OPENAI_MODEL", "gpt-4o-mini"),
        "messages": messages,
        "response_format": {"type": "json_object"},
    }
    async with Chat(os.environ["OPENAI_BASE_URL"], os.environ.get("OPENAI_API_KEY")) as chat:
        step: dict[str, Any] = json.loads((await chat.complete(body)).message["content"])
    return None if step.get("action") == "finish" else step


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1] if len(sys.argv) > 1 else "greenhouse"))
