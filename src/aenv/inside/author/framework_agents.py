"""Agent objects of frameworks, recognised by their classes and called as their own documentation says.

No framework is imported here: the code that made the object has imported it.
"""

from __future__ import annotations

import asyncio
import copy
import inspect
import sys
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from typing import Any

from .conversations import ChatSession

Answer = Callable[[Any, str, ChatSession], Awaitable[Any]]


class FrameworkSpeaker:
    """An agent object, with the function that asks it."""

    description: str | None = None
    parameters: Mapping[str, inspect.Parameter] = {}
    hints: Mapping[str, Any] = {}

    def __init__(self, agent: Any, answer: Answer) -> None:
        self._agent = agent
        self._answer = answer

    async def reply(self, message: str, conversation: ChatSession, given: Mapping[str, Any]) -> AsyncIterator[Any]:
        yield await self._answer(self._agent, message, conversation)


def of_framework(agent: Any) -> FrameworkSpeaker | None:
    """What answers for an agent object; None for what is not an agent of a known framework."""
    for kind in type(agent).__mro__:
        package = kind.__module__.split(".")[0]
        answer = _KNOWN.get((package, kind.__name__))
        # Modules of one's own are called "agents", too.
        if answer and (answer is not _openai or hasattr(sys.modules.get(package), "Runner")):
            return FrameworkSpeaker(agent, answer)
    return None


async def _openai(agent: Any, message: str, conversation: ChatSession) -> Any:
    items = [*(conversation.state or []), {"role": "user", "content": message}]
    result = await sys.modules["agents"].Runner.run(agent, items)
    conversation.state = result.to_input_list()
    return result.final_output


async def _camel(agent: Any, message: str, conversation: ChatSession) -> Any:
    if conversation.state is None:
        conversation.state = agent.clone(with_memory=False)  # each conversation has a memory of its own
    memory = conversation.state.memory
    before = [found.memory_record for found in memory.retrieve()]
    try:
        response = await conversation.state.astep(message)
        if not response.msgs:
            raise RuntimeError(f"the agent gave no answer: {response.info.get('termination_reasons')}")
        return response.msgs[0].content
    except BaseException:
        # CAMEL remembers a message that it has not answered, too.
        memory.clear()
        memory.write_records(before)
        raise


async def _langgraph(graph: Any, message: str, conversation: ChatSession) -> Any:
    new = {"role": "user", "content": message}
    keeps = bool(getattr(graph, "checkpointer", None))  # then the graph has what was said before
    before = [] if keeps else conversation.state or []
    config = {"configurable": {"thread_id": conversation.session}}
    result = await graph.ainvoke({"messages": [*before, new]}, config=config)
    conversation.state = result["messages"]
    return _content(result["messages"][-1])


async def _langchain(runnable: Any, message: str, conversation: ChatSession) -> Any:
    result = await runnable.ainvoke([*conversation.history, {"role": "user", "content": message}])
    if isinstance(result, dict) and "messages" in result:
        result = result["messages"][-1]
    return _content(result)


async def _pydantic_ai(agent: Any, message: str, conversation: ChatSession) -> Any:
    result = await agent.run(message, message_history=conversation.state)
    conversation.state = result.all_messages()
    return result.output


async def _smolagents(agent: Any, message: str, conversation: ChatSession) -> Any:
    # The agent has one memory, and one interpreter of code: one message at a time. A copy with the steps of the
    # conversation is asked: a thread that was given up goes on, and must not write into another one.
    async with _turns.setdefault(id(agent), asyncio.Lock()):
        before = conversation.state or []
        asked = copy.copy(agent)
        asked.memory = copy.copy(agent.memory)
        asked.memory.steps = list(before)
        answer = await conversation.in_thread(lambda: asked.run(message, reset=not before))
        conversation.state = list(asked.memory.steps)
    return answer


def _content(message: Any) -> Any:
    """What a message of LangChain says: text, or the text of its blocks."""
    content = getattr(message, "content", message)
    if isinstance(content, list):
        texts = [one if isinstance(one, str) else one.get("text", "") for one in content]
        return "".join(texts)
    return content


_turns: dict[int, asyncio.Lock] = {}
_KNOWN: dict[tuple[str, str], Answer] = {
    ("agents", "Agent"): _openai,
    ("camel", "ChatAgent"): _camel,
    ("langgraph", "Pregel"): _langgraph,
    ("langchain_core", "Runnable"): _langchain,
    ("pydantic_ai", "AbstractAgent"): _pydantic_ai,
    ("smolagents", "MultiStepAgent"): _smolagents,
}
