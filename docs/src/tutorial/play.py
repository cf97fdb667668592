"""Play one rollout: create an instance, call its tool, ask for the reward."""

import asyncio

from aenv import Environment


async def main() -> None:
    async with Environment("guess@1.0.0", environment_variables={"TASK": "medium"}) as env:
        for number in (50, 25, 37, 43, 40, 41, 42):
            result = await env.call_tool("guess", {"number": number})
            print(number, result.structured["observation"])
        print("reward", await env.call_reward({}))


asyncio.run(main())
