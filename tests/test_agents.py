"""Agents as environments: functions and generators with a tool `chat`, conversations, and parts as they come."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from aenv import Context, Environment
from aenv.base.errors import RegistrationError
from aenv.client.result import Progress, ToolResult
from aenv.inside.author import conversations
from aenv.inside.author.conversations import register_agent
from aenv.inside.author.registry import Registry, collecting
from tests.gateways import make_project, running_gateway

Make = Callable[[str], Path]


def agent(code: str) -> str:
    return f"from __future__ import annotations\nfrom aenv import Context, register_agent\n{code}"


async def said(start: Any, path: Path, *messages: dict[str, Any]) -> list[ToolResult]:
    runtime = await start(path)
    async with Environment("agent-b@1.0.0", runtime_url=runtime.url) as env:
        return [await env.call_tool("chat", message) for message in messages]


class TestFunctions:
    async def test_an_agent_has_one_tool_that_takes_a_message(self, start: Any, project: Make) -> None:
        code = """
        @register_agent
        async def agent_b(message: str) -> str:
            '''Answers in capitals.'''
            return message.upper()
        """
        runtime = await start(project(agent(dedented(code))))
        async with Environment("agent-b@1.0.0", runtime_url=runtime.url) as env:
            [tool] = await env.list_tools()
            assert tool["name"] == "agent-b@1.0.0/chat" and tool["description"] == "Answers in capitals."
            schema = tool["inputSchema"]
            assert schema["required"] == ["message"] and {*schema["properties"]} == {"message", "session"}
            assert "conversation" in schema["properties"]["session"]["description"]
            response = await env.call_tool("chat", {"message": "Hello!"})
            assert response.content == [{"type": "text", "text": "HELLO!"}]

    async def test_each_session_has_a_history_of_its_own(self, start: Any, project: Make) -> None:
        code = """
        @register_agent
        def agent_b(message, history: list, session: str) -> str:
            return f"{session}: {[one['role'][0] + ' ' + one['content'] for one in history]} {message}"
        """
        sent = [{"message": "a"}, {"message": "b"}, {"message": "c", "session": "other"}]
        answers = [result.text for result in await said(start, project(agent(dedented(code))), *sent)]
        assert answers == ["default: [] a", "default: ['u a', 'a default: [] a'] b", "other: [] c"]

    async def test_further_parameters_are_arguments_and_the_context_is_given(
        self, start: Any, project: Make
    ) -> None:
        code = """
        @register_agent
        async def agent_b(text: str, ctx: Context, times: int = 1) -> dict:
            return {"said": text * times, "in": ctx.id}
        """
        [result] = await said(start, project(agent(dedented(code))), {"message": "ab", "times": 2})
        assert result.structured == {"said": "abab", "in": "local"}

    async def test_agents_that_never_answer_keep_no_other_from_answering(self, start: Any, project: Make) -> None:
        code = """
        import threading

        @register_agent(timeout=1)
        def agent_b(message: str) -> str:
            if message == "hang":
                threading.Event().wait()
            return message.upper()
        """
        runtime = await start(project(agent(dedented(code))))
        async with Environment("agent-b@1.0.0", runtime_url=runtime.url) as env:
            hanging = [
                {"message": "hang", "session": str(n)} for n in range(33)
            ]  # asyncio's own pool has at most 32
            for result in await asyncio.gather(*(env.call_tool("chat", one) for one in hanging)):
                assert result.is_error and "1 s" in result.text
            assert (await env.call_tool("chat", {"message": "hi"})).text == "HI"

    async def test_an_answer_that_failed_is_not_part_of_the_conversation(self, start: Any, project: Make) -> None:
        code = """
        @register_agent
        async def agent_b(message: str, history: list) -> str:
            if message == "fail":
                raise ValueError("no idea")
            return str(len(history))
        """
        sent = [{"message": "fail"}, {"message": "x"}, {"wrong": "x"}]
        failed, answered, wrong = await said(start, project(agent(dedented(code))), *sent)
        assert failed.is_error and "no idea" in failed.text
        assert (answered.text, wrong.is_error) == ("0", True)


class TestStreams:
    @pytest.mark.parametrize("kind", ["async def", "def"])
    async def test_parts_come_as_progress_and_the_answer_is_whole(
        self, start: Any, project: Make, kind: str
    ) -> None:
        code = f"""
        @register_agent
        {kind} agent_b(message: str, history: list):
            for word in (message, " is", " what you said"):
                yield word
            if history:
                yield " " + history[-1]["content"]
        """
        runtime = await start(project(agent(dedented(code))))
        async with Environment("agent-b@1.0.0", runtime_url=runtime.url) as env:
            *parts, result = [one async for one in env.stream("chat", {"message": "Hi"})]
            assert [one.message for one in parts if isinstance(one, Progress)] == ["Hi", " is", " what you said"]
            assert isinstance(result, ToolResult) and result.text == "Hi is what you said"
            again = await env.call_tool("chat", {"message": "So"})  # also for a client that wants no progress
            assert again.text == "So is what you said Hi is what you said"


async def test_a_blocking_agent_that_was_given_up_writes_into_no_other_conversation() -> None:
    begun, released, ended = threading.Event(), threading.Event(), threading.Event()

    class MultiStepAgent:
        """Keeps its steps as agents of smolagents do."""

        def __init__(self) -> None:
            self.memory = SimpleNamespace(steps=[])

        def run(self, message: str, reset: bool) -> str:
            if reset:
                self.memory.steps = []
            if message == "hang":
                begun.set()
                released.wait()
            elif not released.is_set():
                released.set()
                ended.wait()
            self.memory.steps.append(message)
            if message == "hang":
                ended.set()
            return " ".join(self.memory.steps)

    MultiStepAgent.__module__ = "smolagents.agents"
    with collecting(Registry()) as registry:
        register_agent(MultiStepAgent())
    chat = registry.tools["chat"].function
    hanging = asyncio.create_task(chat(message="hang", session="a", aenv_context=Context()))
    await asyncio.to_thread(begun.wait)
    hanging.cancel()
    with pytest.raises(asyncio.CancelledError):
        await hanging
    answers = [await chat(message=word, session="b", aenv_context=Context()) for word in ("one", "two")]
    assert answers == ["one", "one two"]


def test_what_is_no_agent_is_refused_with_what_would_be_one() -> None:
    with collecting(Registry()):
        with pytest.raises(RegistrationError, match="type int is not an agent"):
            register_agent(7)
        with pytest.raises(RegistrationError, match="parameter 'message'"):
            register_agent(lambda: "x")
        with pytest.raises(RegistrationError, match="the class 'Registry' is not an agent; register an object"):
            register_agent(Registry)
        assert callable(register_agent(name="ask", description="Ask it.")(lambda message: message))
        with pytest.raises(RegistrationError, match=f"tool 'ask' is registered already, by {__file__}:"):
            register_agent(name="ask")(lambda message: message)


async def test_an_object_that_is_called_is_an_agent_also_where_its_module_is_called_as_a_framework() -> None:
    class Agent:
        """Of a module of the user's own."""

        async def __call__(self, message: str, times: int = 1) -> str:
            return message.upper() * times

    Agent.__module__ = "agents.mine"
    with collecting(Registry()) as registry:
        register_agent(Agent())
    chat = registry.tools["chat"].function
    assert await chat(message="a", times=2, aenv_context=Context()) == "AA"


async def test_the_sessions_that_were_used_last_are_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(conversations, "MOST_SESSIONS", 3)
    begun, released = asyncio.Event(), asyncio.Event()

    async def agent_b(message: str, history: list[Any]) -> str:
        if message == "wait":
            begun.set()
            await released.wait()
        return str(len(history))

    with collecting(Registry()) as registry:
        register_agent(agent_b)
    chat = registry.tools["chat"].function

    async def said(session: str, message: str = "x") -> str:
        answer: str = await chat(message=message, session=session, aenv_context=Context())
        return answer

    assert [await said(name) for name in "aab"] == ["0", "2", "0"]
    waiting = asyncio.create_task(said("b", "wait"))  # it answers, so it is not forgotten
    await begun.wait()
    assert [await said(name) for name in "acdefa"] == ["4", "0", "0", "0", "0", "0"]
    released.set()
    assert await waiting == "2"
    assert await said("b") == "4"


@pytest.mark.slow  # a gateway with isolated instances
async def test_an_agent_is_served_by_a_gateway_like_any_environment(tmp_path: Path) -> None:
    code = agent("@register_agent\nasync def agent_b(message: str) -> str:\n    return f'You said: {message}'\n")
    project = make_project(tmp_path, "agent-b", code=code)
    async with (
        running_gateway(tmp_path / "home", project, engine="native") as gateway,
        Environment("agent-b@1.0.0", aenv_url=gateway.address.url) as agent_b,
    ):
        tools = await agent_b.list_tools()
        response = await agent_b.call_tool("chat", {"message": "Hello!"})
        assert [tool["name"] for tool in tools] == ["agent-b@1.0.0/chat"]
        assert response.content == [{"type": "text", "text": "You said: Hello!"}]


def dedented(code: str) -> str:
    lines = code.split("\n")
    return "\n".join(line.removeprefix(" " * 8) for line in lines)
