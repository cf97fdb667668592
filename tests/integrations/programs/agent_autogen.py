"""Agents of AutoGen."""

import asyncio
from typing import Any

import agent_trial
from autogen_agentchat.agents import AssistantAgent
from autogen_core import CancellationToken
from autogen_ext.models.openai import OpenAIChatCompletionClient
from autogen_ext.tools.mcp import McpWorkbench, StreamableHttpServerParams

from aenv import Environment
from aenv.integrations.autogen import tools


async def talk(**given: Any) -> agent_trial.Said:
    info = {
        "vision": True,
        "function_calling": True,
        "json_output": False,
        "family": "unknown",
        "structured_output": False,
    }
    model = OpenAIChatCompletionClient(
        model="script", base_url=agent_trial.URL, api_key=agent_trial.KEY, model_info=info
    )
    agent = AssistantAgent("a", model, max_tool_iterations=40, **given)
    token = CancellationToken()
    try:
        result = await agent.run(task=agent_trial.PROMPT, cancellation_token=token)
    except asyncio.CancelledError:
        token.cancel()  # AutoGen's way: tools run in tasks that its own token ends
        raise
    return result.messages[-1].content, repr(result.messages)


async def through_tools(env: Environment) -> agent_trial.Said:
    return await talk(tools=await tools(env))


async def through_mcp(url: str) -> agent_trial.Said:
    async with McpWorkbench(StreamableHttpServerParams(url=url)) as workbench:
        return await talk(workbench=workbench)


agent_trial.main(tools=through_tools, mcp=through_mcp)
