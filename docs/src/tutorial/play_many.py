"""Play eight rollouts at once: one request makes all instances, or none."""

import asyncio

from aenv import Environment


async def play(env: Environment) -> float:
    low, high = 1, 1000
    while True:
        middle = (low + high) // 2
        result = await env.call_tool("guess", {"number": middle})
        if result.structured["observation"] == "correct":
            return await env.call_reward({})
        higher = result.structured["observation"] == "higher"
        low, high = (middle + 1, high) if higher else (low, middle - 1)


async def main() -> None:
    variables, labels = {"TASK": "large"}, {"experiment": "tutorial"}
    many = Environment.create_many(8, "guess@1.0.0", environment_variables=variables, labels=labels)
    async with many as envs:
        rewards = await asyncio.gather(*map(play, envs))
    print(f"{len(rewards)} rollouts, mean reward {sum(rewards) / len(rewards)}")


asyncio.run(main())
