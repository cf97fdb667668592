"""Agents of Agno."""

import agent_trial
from agno.agent import Agent
from agno.models.openai import OpenAIChat
from agno.tools.mcp import MCPTools


async def through_mcp(url: str) -> agent_trial.Said:
    model = OpenAIChat(id="script", base_url=agent_trial.URL, api_key=agent_trial.KEY)
    async with MCPTools(url=url, transport="streamable-http") as tools:
        result = await Agent(model=model, tools=[tools], telemetry=False).arun(agent_trial.PROMPT)
    return result.content, repr(result.messages)


agent_trial.main(mcp=through_mcp)
