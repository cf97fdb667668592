"""An agent of the OpenAI Agents SDK plays a task."""

import asyncio

from aenv import Environment
from aenv.examples.agents import NAME, PROMPT, TASK, framework
from aenv.examples.agents.offline_model import model

with framework("the OpenAI Agents SDK", "openai-agents>=0.24"):
    from agents import Agent, OpenAIChatCompletionsModel, Runner, set_tracing_disabled
    from openai import AsyncOpenAI

    from aenv.integrations.openai_agents import tools


async def main() -> None:
    set_tracing_disabled(True)  # it would send what happens to OpenAI
    with model() as endpoint:
        client = AsyncOpenAI(base_url=endpoint.url, api_key=endpoint.key)
        async with Environment(NAME, environment_variables=TASK) as env:
            agent = Agent(
                name="solver",
                tools=await tools(env),
                model=OpenAIChatCompletionsModel(endpoint.name, client),
            )
            result = await Runner.run(agent, PROMPT)
            print("agent: ", result.final_output)
            print("reward:", (await env.call_reward({}))["reward"])


if __name__ == "__main__":
    asyncio.run(main())
