"""An agent of AutoGen plays a task."""

import asyncio

from aenv import Environment
from aenv.examples.agents import NAME, PROMPT, TASK, framework
from aenv.examples.agents.offline_model import model

with framework("AutoGen", "autogen-agentchat>=0.7.5", "autogen-ext[openai]>=0.7.5"):
    from autogen_agentchat.agents import AssistantAgent
    from autogen_core.models import ModelFamily, ModelInfo
    from autogen_ext.models.openai import OpenAIChatCompletionClient

    from aenv.integrations.autogen import tools

INFO = ModelInfo(
    vision=False, function_calling=True, json_output=False, structured_output=False, family=ModelFamily.UNKNOWN
)


async def main() -> None:
    with model() as endpoint:
        client = OpenAIChatCompletionClient(
            model=endpoint.name, base_url=endpoint.url, api_key=endpoint.key, model_info=INFO
        )
        async with Environment(NAME, environment_variables=TASK) as env:
            agent = AssistantAgent("solver", client, tools=await tools(env), max_tool_iterations=20)
            result = await agent.run(task=PROMPT)
            print("agent: ", result.messages[-1].content)
            print("reward:", (await env.call_reward({}))["reward"])


if __name__ == "__main__":
    asyncio.run(main())
