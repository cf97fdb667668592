"""An agent of Inspect plays a task: its model, and its loop of tool calls."""

import asyncio

from aenv import Environment
from aenv.examples.agents import NAME, PROMPT, TASK, framework
from aenv.examples.agents.offline_model import model

with framework("Inspect", "inspect-ai>=0.3.285", "openai>=2"):
    from inspect_ai.model import ChatMessageUser, get_model

    from aenv.integrations.inspect_ai import tools


async def main() -> None:
    with model() as endpoint:
        chat = get_model(
            f"openai/{endpoint.name}", base_url=endpoint.url, api_key=endpoint.key, responses_api=False
        )
        async with Environment(NAME, environment_variables=TASK) as env:
            _, output = await chat.generate_loop([ChatMessageUser(content=PROMPT)], await tools(env))
            print("agent: ", output.completion)
            print("reward:", (await env.call_reward({}))["reward"])


if __name__ == "__main__":
    asyncio.run(main())
