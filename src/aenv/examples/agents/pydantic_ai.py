"""An agent of Pydantic AI plays a task."""

import asyncio

from aenv import Environment
from aenv.examples.agents import NAME, PROMPT, TASK, framework
from aenv.examples.agents.offline_model import model

with framework("Pydantic AI", "pydantic-ai-slim[openai]>=2.66"):
    from pydantic_ai import Agent
    from pydantic_ai.models.openai import OpenAIChatModel
    from pydantic_ai.providers.openai import OpenAIProvider

    from aenv.integrations.pydantic_ai import tools


async def main() -> None:
    with model() as endpoint:
        provider = OpenAIProvider(base_url=endpoint.url, api_key=endpoint.key)
        async with Environment(NAME, environment_variables=TASK) as env:
            agent = Agent(OpenAIChatModel(endpoint.name, provider=provider), tools=await tools(env))
            result = await agent.run(PROMPT)
            print("agent: ", result.output)
            print("reward:", (await env.call_reward({}))["reward"])


if __name__ == "__main__":
    asyncio.run(main())
