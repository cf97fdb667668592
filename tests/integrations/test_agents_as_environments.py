"""Agent objects of frameworks as environments: each in its own Python, with a model that is a script."""

from __future__ import annotations

import json
import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from aenv import Environment
from tests.integrations import frameworks
from tests.model_servers import Reply, ScriptedModel, called, model
from tests.running import running_runtime

MARKS = ("first", "second", "third")
BEGIN = """
import os
from aenv import register_agent
url, key = os.environ["OPENAI_BASE_URL"], os.environ["OPENAI_API_KEY"]
"""
AGENTS = {
    "openai_agents": """
from agents import Agent, OpenAIChatCompletionsModel, set_tracing_disabled
from openai import AsyncOpenAI
set_tracing_disabled(True)
model = OpenAIChatCompletionsModel("script", AsyncOpenAI(base_url=url, api_key=key))
register_agent(Agent(name="a", model=model))
""",
    "camel": """
from camel.agents import ChatAgent
from camel.models import ModelFactory
from camel.types import ModelPlatformType

class Words:
    def count_tokens_from_messages(self, messages):
        return len(str(messages).split())
    def encode(self, text):
        return list(range(len(text.split())))
    def decode(self, token_ids):
        return " ".join(map(str, token_ids))

kind = ModelPlatformType.OPENAI_COMPATIBLE_MODEL
model = ModelFactory.create(
    model_platform=kind, model_type="script", url=url, api_key=key, token_counter=Words()
)
register_agent(ChatAgent("You answer.", model=model))
""",
    "langchain": """
from langchain.agents import create_agent
from langchain_openai import ChatOpenAI
chat = ChatOpenAI(model="script", base_url=url, api_key=key)
register_agent(create_agent(chat, []))
register_agent(name="plain")(chat)
""",
    "pydantic_ai": """
from pydantic_ai import Agent
from pydantic_ai.models.openai import OpenAIChatModel
from pydantic_ai.providers.openai import OpenAIProvider
register_agent(Agent(OpenAIChatModel("script", provider=OpenAIProvider(base_url=url, api_key=key))))
""",
    "smolagents": """
from smolagents import LogLevel, OpenAIModel, ToolCallingAgent
model = OpenAIModel("script", api_base=url, api_key=key)
register_agent(ToolCallingAgent([], model=model, verbosity_level=LogLevel.OFF))
""",
}


class Hearing(list[Reply]):
    """The replies of a model that says which marks it has heard."""

    def __init__(self, script: ScriptedModel, *, calls: bool) -> None:
        super().__init__()
        self._script = script
        self._calls = calls

    def pop(self, index: Any = 0) -> Reply:
        messages = self._script.asked[-1]["messages"]
        asked = json.dumps(messages)
        if "fail" in json.dumps([one for one in messages if one["role"] == "user"][-1]):
            return (400, '{"error": {"message": "no"}}')
        heard = " ".join(mark for mark in MARKS if mark in asked)
        answer = called("final_answer", json.dumps({"answer": heard})) if self._calls else {"content": heard}
        whole = {"role": "assistant", "content": None, **answer}
        usage = {"prompt_tokens": 1, "completion_tokens": 1, "total_tokens": 2}
        choice = {"index": 0, "message": whole, "finish_reason": "tool_calls" if self._calls else "stop"}
        about = {"id": "1", "object": "chat.completion", "created": 1, "model": "script"}
        return (200, json.dumps({**about, "choices": [choice], "usage": usage}))


@pytest.mark.parametrize("name", AGENTS)
async def test_an_agent_of_the_framework_chats_and_keeps_its_conversations_apart(
    name: str, tmp_path: Path, pytestconfig: pytest.Config
) -> None:
    async with chatting(name, tmp_path, pytestconfig) as env:
        for tool in await tools_of(env):
            assert await said(env, tool, "remember the first") == "first"
            assert await said(env, tool, "remember the second") == "first second"
            assert await said(env, tool, "remember the third", session="other") == "third"


@pytest.mark.parametrize("name", AGENTS)
async def test_a_message_without_an_answer_is_not_part_of_the_conversation(
    name: str, tmp_path: Path, pytestconfig: pytest.Config
) -> None:
    async with chatting(name, tmp_path, pytestconfig) as env:
        for tool in await tools_of(env):
            assert await said(env, tool, "remember the first") == "first"
            assert (await env.call_tool(tool, {"message": "remember the second, and fail"})).is_error
            assert await said(env, tool, "remember the third") == "first third"


@asynccontextmanager
async def chatting(name: str, folder: Path, config: pytest.Config) -> AsyncIterator[Environment]:
    """An environment with the agents of the framework, and a model that says which marks it has heard."""
    python = frameworks.python_of(name, config)
    (folder / "src").mkdir()
    (folder / "config.json").write_text('{"name": "agent", "version": "1.0.0"}')
    (folder / "src" / "agent_environment.py").write_text(BEGIN + AGENTS[name])
    async with model() as script:
        script.replies = Hearing(script, calls=name == "smolagents")
        path = os.pathsep.join([str(frameworks.ROOT / "src"), str(frameworks.ROOT)])
        variables = {"OPENAI_BASE_URL": script.url, "OPENAI_API_KEY": "sk-script", "PYTHONPATH": path}
        async with (
            running_runtime(folder, variables=variables, python=str(python)) as runtime,
            Environment("agent@1.0.0", runtime_url=runtime.url) as env,
        ):
            yield env


async def tools_of(env: Environment) -> list[str]:
    return [tool["name"].rpartition("/")[2] for tool in await env.list_tools()]


async def said(env: Environment, tool: str, message: str, **options: str) -> str:
    result = await env.call_tool(tool, {"message": message, **options})
    assert not result.is_error, result.text
    return result.text
