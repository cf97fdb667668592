"""An agent of LangChain, which is a graph of LangGraph, plays a task."""

import asyncio

from aenv import Environment
from aenv.examples.agents import NAME, PROMPT, TASK, framework
from aenv.examples.agents.offline_model import model

with framework("LangChain", "langchain>=1.4", "langchain-openai>=1"):
    from langchain.agents import create_agent
    from langchain_openai import ChatOpenAI

    from aenv.integrations.langchain import tools


async def main() -> None:
    with model() as endpoint:
        chat = ChatOpenAI(model=endpoint.name, base_url=endpoint.url, api_key=endpoint.key)
        async with Environment(NAME, environment_variables=TASK) as env:
            agent = create_agent(chat, await tools(env))
            state = await agent.ainvoke({"messages": [("user", PROMPT)]})
            print("agent: ", state["messages"][-1].content)
            print("reward:", (await env.call_reward({}))["reward"])


if __name__ == "__main__":
    asyncio.run(main())
