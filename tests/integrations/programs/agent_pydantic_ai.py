"""Agents of Pydantic AI."""

import agent_trial
from pydantic_ai import Agent
from pydantic_ai.mcp import MCPToolset
from pydantic_ai.models.openai import OpenAIChatModel
from pydantic_ai.providers.openai import OpenAIProvider

from aenv import Environment, SyncEnvironment
from aenv.integrations.pydantic_ai import tools


def model() -> OpenAIChatModel:
    return OpenAIChatModel("script", provider=OpenAIProvider(base_url=agent_trial.URL, api_key=agent_trial.KEY))


async def through_tools(env: Environment) -> agent_trial.Said:
    result = await Agent(model(), tools=await tools(env)).run(agent_trial.PROMPT)
    return result.output, result.all_messages_json().decode()


def through_blocking_tools(env: SyncEnvironment) -> agent_trial.Said:
    result = Agent(model(), tools=tools(env)).run_sync(agent_trial.PROMPT)
    return result.output, result.all_messages_json().decode()


async def through_mcp(url: str) -> agent_trial.Said:
    agent = Agent(model(), toolsets=[MCPToolset(url)])
    async with agent:
        return (await agent.run(agent_trial.PROMPT)).output, ""


agent_trial.main(tools=through_tools, sync=through_blocking_tools, mcp=through_mcp)
