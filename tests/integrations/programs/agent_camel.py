"""Agents of CAMEL."""

from typing import Any

import agent_trial
from camel.agents import ChatAgent
from camel.models import ModelFactory
from camel.toolkits import MCPToolkit
from camel.types import ModelPlatformType

from aenv import Environment, SyncEnvironment
from aenv.integrations.camel import tools


def agent(with_tools: list[Any]) -> ChatAgent:
    model = ModelFactory.create(
        model_platform=ModelPlatformType.OPENAI_COMPATIBLE_MODEL,
        model_type="script",
        url=agent_trial.URL,
        api_key=agent_trial.KEY,
        token_counter=Words(),
    )
    return ChatAgent("You do what you are told.", model=model, tools=with_tools)


class Words:
    """Counts words: CAMEL's own counter fetches a file from the network."""

    def count_tokens_from_messages(self, messages: list[Any]) -> int:
        return sum(len(str(message).split()) for message in messages)

    def encode(self, text: str) -> list[int]:
        return list(range(len(text.split())))

    def decode(self, token_ids: list[int]) -> str:
        return " ".join(map(str, token_ids))


def said(agent: ChatAgent, response: Any) -> agent_trial.Said:
    return response.msgs[0].content, repr(agent.memory.get_context()[0])


async def through_tools(env: Environment) -> agent_trial.Said:
    made = agent(await tools(env))
    return said(made, await made.astep(agent_trial.PROMPT))


def through_blocking_tools(env: SyncEnvironment) -> agent_trial.Said:
    made = agent(tools(env))
    return said(made, made.step(agent_trial.PROMPT))


async def through_mcp(url: str) -> agent_trial.Said:
    async with MCPToolkit(config_dict={"mcpServers": {"instance": {"url": url}}}) as toolkit:
        made = agent(toolkit.get_tools())
        return said(made, await made.astep(agent_trial.PROMPT))


agent_trial.main(tools=through_tools, sync=through_blocking_tools, mcp=through_mcp)
