"""Agents of the OpenAI Agents SDK."""

import agent_trial
from agents import Agent, OpenAIChatCompletionsModel, Runner, set_tracing_disabled
from agents.mcp import MCPServerStreamableHttp
from openai import AsyncOpenAI

from aenv import Environment, SyncEnvironment
from aenv.integrations.openai_agents import tools

set_tracing_disabled(True)


def model() -> OpenAIChatCompletionsModel:
    return OpenAIChatCompletionsModel("script", AsyncOpenAI(base_url=agent_trial.URL, api_key=agent_trial.KEY))


async def talk(agent: Agent) -> agent_trial.Said:
    result = await Runner.run(agent, agent_trial.PROMPT, max_turns=40)
    return result.final_output, repr(result.to_input_list())


async def through_tools(env: Environment) -> agent_trial.Said:
    return await talk(Agent(name="a", tools=await tools(env), model=model()))


def through_blocking_tools(env: SyncEnvironment) -> agent_trial.Said:
    agent = Agent(name="a", tools=tools(env), model=model())
    return Runner.run_sync(agent, agent_trial.PROMPT, max_turns=40).final_output, ""


async def through_mcp(url: str) -> agent_trial.Said:
    async with MCPServerStreamableHttp({"url": url}) as server:
        return await talk(Agent(name="a", mcp_servers=[server], model=model()))


agent_trial.main(tools=through_tools, sync=through_blocking_tools, mcp=through_mcp)
