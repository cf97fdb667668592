"""Agents of smolagents."""

import asyncio
from typing import Any

import agent_trial
from smolagents import LogLevel, MCPClient, OpenAIModel, ToolCallingAgent

from aenv import Environment, SyncEnvironment
from aenv.integrations.smolagents import tools


def talk(with_tools: list[Any]) -> agent_trial.Said:
    model = OpenAIModel("script", api_base=agent_trial.URL, api_key=agent_trial.KEY)
    agent = ToolCallingAgent(with_tools, model=model, max_steps=40, verbosity_level=LogLevel.OFF)
    return str(agent.run(agent_trial.PROMPT)), repr(agent.memory.get_full_steps())


async def through_tools(env: Environment) -> agent_trial.Said:
    return await asyncio.to_thread(talk, await tools(env))


def through_blocking_tools(env: SyncEnvironment) -> agent_trial.Said:
    return talk(tools(env))


async def through_mcp(url: str) -> agent_trial.Said:
    def through_client() -> agent_trial.Said:
        server = {"url": url, "transport": "streamable-http"}
        with MCPClient(server, structured_output=False) as with_tools:
            return talk(with_tools)

    return await asyncio.to_thread(through_client)


agent_trial.main(tools=through_tools, sync=through_blocking_tools, mcp=through_mcp)
