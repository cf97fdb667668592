"""Agents of Strands."""

import agent_trial
from mcp.client.streamable_http import streamable_http_client
from strands import Agent
from strands.models.openai import OpenAIModel
from strands.tools.mcp import MCPClient


async def through_mcp(url: str) -> agent_trial.Said:
    model = OpenAIModel(client_args={"base_url": agent_trial.URL, "api_key": agent_trial.KEY}, model_id="script")
    with MCPClient(lambda: streamable_http_client(url)) as client:
        agent = Agent(model=model, tools=client.list_tools_sync(), callback_handler=None)
        result = await agent.invoke_async(agent_trial.PROMPT)
    return str(result).strip(), repr(agent.messages)


agent_trial.main(mcp=through_mcp)
