"""Rollouts from a program: an agent over all tasks, twice, with a record of every step."""

import asyncio

from my_agents import halving

from aenv.rollouts import Runner


async def main() -> None:
    async with Runner(concurrency=4) as runner:
        results = await runner.run("guess", halving, repeat=2, out="rollouts.jsonl")
    for one in results:
        print(one.task, one.attempt, one.outcome, one.reward, one.steps)


asyncio.run(main())
