"""An agent on five word problems, four rollouts at a time."""

import asyncio
import re

from aenv import Environment
from aenv.rollouts import Runner


async def add_or_subtract(env: Environment, task: dict) -> str:
    """A simple agent; one that asks a model gets the same two arguments."""
    first, second, *_ = re.findall(r"\d+(?:\.\d+)?", task["instruction"])
    sign = "+" if "together" in task["instruction"] else "-"
    result = await env.call_tool("calculate", {"expression": f"{first} {sign} {second}"})
    await env.call_tool("submit_answer", {"answer": result.text})
    return f"The answer is {result.text}."  # a final message, or nothing


async def main() -> None:
    async with Runner(concurrency=4, variables={"GSM_DIFFICULTY": "1"}) as runner:
        results = await runner.run("gsm-tools@1.0.0", add_or_subtract, limit=5, out="run.jsonl")
    for one in results:
        print(one.task, one.outcome, one.reward, one.steps)


asyncio.run(main())
