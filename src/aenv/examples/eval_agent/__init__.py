"""An agent of your own, evaluated: two simple ones on the word problems of `gsm-tools`, with a journal each.

    python -m aenv.examples.eval_agent --tasks 10 --repeat 2 --out runs

Nothing is downloaded, and no model is asked. Exchange `add_up` for an agent that asks yours.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from aenv import Environment
from aenv.rollouts import RolloutResult, Runner

ENVIRONMENT = "gsm-tools@1.0.0"


async def add_up(env: Environment, task: dict[str, Any]) -> str:
    """Add all numbers of the problem: right for the simplest ones."""
    numbers = re.findall(r"\d+(?:\.\d+)?", task["instruction"])
    total = await env.call_tool("calculate", {"expression": " + ".join(numbers) or "0"})
    await env.call_tool("submit_answer", {"answer": total.text})
    return f"All numbers together are {total.text}."


async def multiply(env: Environment, task: dict[str, Any]) -> str:
    """Multiply the first two numbers of the problem."""
    numbers = re.findall(r"\d+(?:\.\d+)?", task["instruction"])
    product = await env.call_tool("calculate", {"expression": " * ".join(numbers[:2]) or "0"})
    await env.call_tool("submit_answer", {"answer": product.text})
    return f"The product is {product.text}."


AGENTS = {"add_up": add_up, "multiply": multiply}


async def evaluate(tasks: int, repeat: int, out: Path, difficulty: int = 1) -> dict[str, list[RolloutResult]]:
    """The results of both agents on the same tasks; a second call with the same folder goes on there."""
    variables = {"GSM_COUNT": str(tasks), "GSM_DIFFICULTY": str(difficulty)}
    async with Runner(concurrency=8, variables=variables) as runner:
        return {
            name: await runner.run(ENVIRONMENT, agent, repeat=repeat, split="test", out=out / f"{name}.jsonl")
            for name, agent in AGENTS.items()
        }
