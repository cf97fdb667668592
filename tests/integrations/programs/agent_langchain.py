"""Agents of LangChain, which are graphs of LangGraph."""

from typing import Any

import agent_trial
from langchain.agents import create_agent
from langchain_mcp_adapters.client import MultiServerMCPClient
from langchain_openai import ChatOpenAI

from aenv import Environment, SyncEnvironment
from aenv.integrations.langchain import tools

GIVEN = {"messages": [("user", agent_trial.PROMPT)]}
LIMITS = {"recursion_limit": 100}


def agent(with_tools: list[Any]) -> Any:
    return create_agent(ChatOpenAI(model="script", base_url=agent_trial.URL, api_key=agent_trial.KEY), with_tools)


def said(state: dict[str, Any]) -> agent_trial.Said:
    return state["messages"][-1].content, repr(state["messages"])


async def through_tools(env: Environment) -> agent_trial.Said:
    return said(await agent(await tools(env)).ainvoke(GIVEN, LIMITS))


def through_blocking_tools(env: SyncEnvironment) -> agent_trial.Said:
    return said(agent(tools(env)).invoke(GIVEN, LIMITS))


async def through_mcp(url: str) -> agent_trial.Said:
    client = MultiServerMCPClient({"instance": {"url": url, "transport": "streamable_http"}})
    return said(await agent(await client.get_tools()).ainvoke(GIVEN, LIMITS))


agent_trial.main(tools=through_tools, sync=through_blocking_tools, mcp=through_mcp)
