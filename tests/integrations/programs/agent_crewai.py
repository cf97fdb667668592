"""Agents of CrewAI."""

import asyncio

import agent_trial
from crewai import LLM, Agent
from crewai_tools import MCPServerAdapter


async def through_mcp(url: str) -> agent_trial.Said:
    return await asyncio.to_thread(talk, url)


def talk(url: str) -> agent_trial.Said:
    model = LLM(model="openai/gpt-4o", base_url=agent_trial.URL, api_key=agent_trial.KEY)
    # Not `Agent(mcps=[…])`: on Python 3.11 that client of CrewAI fails when it closes its connection.
    with MCPServerAdapter({"url": url, "transport": "streamable-http"}) as tools:
        agent = Agent(role="worker", goal="Do what you are told.", backstory="You work.", llm=model, tools=tools)
        return agent.kickoff(agent_trial.PROMPT).raw, ""


agent_trial.main(mcp=through_mcp)
