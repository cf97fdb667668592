"""Agents of Inspect: its model, its loop of tool calls."""

from typing import Any

import agent_trial
from inspect_ai.model import ChatMessageUser, get_model
from inspect_ai.tool import mcp_connection, mcp_server_http

from aenv import Environment
from aenv.integrations.inspect_ai import tools


async def talk(with_tools: list[Any]) -> agent_trial.Said:
    model = get_model("openai/script", base_url=agent_trial.URL, api_key=agent_trial.KEY, responses_api=False)
    messages, output = await model.generate_loop([ChatMessageUser(content=agent_trial.PROMPT)], with_tools)
    return output.completion, repr(messages)


async def through_tools(env: Environment) -> agent_trial.Said:
    return await talk(await tools(env))


async def through_mcp(url: str) -> agent_trial.Said:
    server = mcp_server_http(url=url)
    async with mcp_connection([server]):
        return await talk([server])


agent_trial.main(tools=through_tools, mcp=through_mcp)
