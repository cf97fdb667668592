"""`register_agent`: an agent as an environment, whose tool `chat` continues conversations.

An agent is a function, async or not, a generator, or an agent object of a framework (`framework_agents.py`).
"""

from __future__ import annotations

import asyncio
import inspect
import typing
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Protocol, TypeVar, overload

from pydantic_core import to_json

from ...base.errors import RegistrationError
from .content import Text, to_jsonable
from .decorators import register_tool
from .inject import Context
from .signature import Signature
from .threads import Threads

A = TypeVar("A")

MOST_SESSIONS = 1_000
"""Of one agent, which may serve for months. Of those that are silent, the longest unused is forgotten first."""
_CONTEXT = "aenv_context"
_DEFAULT = "default"
_DONE = object()
_ARGUMENTS = """
Args:
    message: What to say to the agent.
    session: The conversation to continue, by a name of your choice. Each has a history of its own.
"""


@dataclass(eq=False)
class ChatSession:
    """One session: what was said, and what the agent's framework keeps of it."""

    session: str
    in_thread: Callable[[Callable[[], Any]], Awaitable[Any]]
    """Runs a function that blocks; one that never returns keeps no other from running."""
    history: list[dict[str, str]] = field(default_factory=list)
    """Messages as `{"role": "user" | "assistant", "content": "…"}`, without the one that is being answered."""
    state: Any = None
    lock: asyncio.Lock = field(default_factory=asyncio.Lock)
    """Held while it answers: the next message sees what this one led to."""


class Speaker(Protocol):
    """What answers messages."""

    description: str | None
    parameters: Mapping[str, inspect.Parameter]
    """What it takes besides the message: arguments of the tool, and what is injected."""
    hints: Mapping[str, Any]

    def reply(self, message: str, conversation: ChatSession, given: Mapping[str, Any]) -> AsyncIterator[Any]:
        """The answer as it is, or each part of it, as an `AnswerPart`, when it comes."""
        ...


@dataclass(frozen=True)
class AnswerPart:
    """A part of an answer that comes in parts."""

    content: Any


@overload
def register_agent(agent: A, /) -> A: ...
@overload
def register_agent(
    agent: None = None, /, *, name: str = ..., description: str | None = ..., timeout: float | None = ...
) -> Callable[[A], A]: ...
def register_agent(
    agent: A | None = None, /, *, name: str = "chat", description: str | None = None, timeout: float | None = None
) -> A | Callable[[A], A]:
    """Offer an agent as the tool `chat`, which takes a `message` and, if the caller likes, a `session`.

    A function gets the message, and `history` or `session` where it has parameters of these names. What a
    generator yields is sent as progress while it comes. Further parameters are arguments of the tool. Objects:
    agents of the OpenAI Agents SDK, CAMEL, LangGraph, LangChain, pydantic-ai and smolagents.
    """

    def register(one: A) -> A:
        from .framework_agents import of_framework

        speaker: Speaker | None = of_framework(one)
        register_speaker(speaker or FunctionSpeaker(one), name, description, timeout)
        return one

    return register if agent is None else register(agent)


def register_speaker(
    speaker: Speaker, name: str = "chat", description: str | None = None, timeout: float | None = None
) -> None:
    """Offer what answers messages as a tool."""
    said = description or speaker.description or "Talk to the agent, and get its answer."
    register_tool(name=name, description=said, timeout=timeout)(_tool(name, speaker))


def _tool(name: str, speaker: Speaker) -> Callable[..., Any]:
    """The function of the tool: it finds the conversation, and continues it."""
    conversations: dict[str, ChatSession] = {}
    threads = Threads()

    async def chat(**given: Any) -> Any:
        message, session, context = given.pop("message"), given.pop("session", _DEFAULT), given.pop(_CONTEXT)
        conversation = conversations.pop(session, None) or ChatSession(session, threads.run)
        conversations[session] = conversation  # the last one
        _forget(conversations)
        async with conversation.lock:
            answer = await _whole(speaker.reply(message, conversation, given), context)
            conversation.history += [_said("user", message), _said("assistant", answer)]
        return answer

    kind = inspect.Parameter.KEYWORD_ONLY
    own = [
        inspect.Parameter("message", kind, annotation=str),
        inspect.Parameter("session", kind, annotation=str, default=_DEFAULT),
        *(parameter.replace(kind=kind) for parameter in speaker.parameters.values()),
        inspect.Parameter(_CONTEXT, kind, annotation=Context),
    ]
    chat.__signature__ = inspect.Signature(own)  # type: ignore[attr-defined]
    chat.__annotations__ = {**speaker.hints, "message": str, "session": str, _CONTEXT: Context}
    chat.__name__, chat.__doc__ = name, _ARGUMENTS
    if isinstance(speaker, FunctionSpeaker):
        chat.__wrapped__ = speaker.function  # type: ignore[attr-defined]  # an error names the author's line
    return chat


def _forget(conversations: dict[str, ChatSession]) -> None:
    """Keep so many; the last one is about to answer."""
    if len(conversations) > MOST_SESSIONS:
        *silent, _ = (name for name, one in conversations.items() if not one.lock.locked())
        for name in silent[: len(conversations) - MOST_SESSIONS]:
            del conversations[name]


async def _whole(pieces: AsyncIterator[Any], context: Context) -> Any:
    """The answer in one. Parts are told at once."""
    parts: list[Any] = []
    async for piece in pieces:
        if not isinstance(piece, AnswerPart):
            return piece
        parts.append(piece.content)
        context.progress(len(parts), None, _text(piece.content))
    if all(isinstance(part, str) for part in parts):
        return "".join(parts)
    return [Text(part) if isinstance(part, str) else part for part in parts]


class FunctionSpeaker:
    """A function, or another callable, that answers."""

    def __init__(self, function: Any) -> None:
        if not callable(function):
            raise RegistrationError(
                f"an object of type {type(function).__name__} is not an agent: register a function, or an agent "
                "of the OpenAI Agents SDK, CAMEL, LangGraph, LangChain, pydantic-ai or smolagents"
            )
        if isinstance(function, type):
            raise RegistrationError(f"the class {function.__name__!r} is not an agent; register an object of it")
        # Of an object its method, which has the annotations.
        self.function: Callable[..., Any] = function if inspect.isroutine(function) else function.__call__
        function = self.function
        signature = Signature(function)
        self.description: str | None = signature.description
        taken = {
            name: parameter
            for name, parameter in inspect.signature(function).parameters.items()
            if parameter.kind is not parameter.VAR_KEYWORD
        }
        free = [name for name in taken if name not in (*signature.injected, "history", "session")]
        if not free:
            raise RegistrationError(f"agent {signature.name!r} takes no message; give it a parameter 'message'")
        self._message = "message" if "message" in free else free[0]
        self._takes = [name for name in ("history", "session") if name in taken]
        left_out = (self._message, *self._takes)
        self.parameters: Mapping[str, inspect.Parameter] = {
            name: parameter for name, parameter in taken.items() if name not in left_out
        }
        hints = typing.get_type_hints(function, include_extras=True)
        self.hints: Mapping[str, Any] = {name: hint for name, hint in hints.items() if name in self.parameters}

    async def reply(self, message: str, conversation: ChatSession, given: Mapping[str, Any]) -> AsyncIterator[Any]:
        about: dict[str, Any] = {
            "history": [dict(one) for one in conversation.history],
            "session": conversation.session,
        }
        own: dict[str, Any] = {self._message: message, **{name: about[name] for name in self._takes}, **given}
        if inspect.iscoroutinefunction(self.function):
            answer = await self.function(**own)
        elif inspect.isasyncgenfunction(self.function) or inspect.isgeneratorfunction(self.function):
            answer = self.function(**own)
        else:
            answer = await conversation.in_thread(lambda: self.function(**own))
            if inspect.isawaitable(answer):
                answer = await answer
        if isinstance(answer, AsyncIterator):
            async for part in answer:
                yield AnswerPart(part)
        elif isinstance(answer, Iterator):
            while (part := await conversation.in_thread(partial(next, answer, _DONE))) is not _DONE:
                yield AnswerPart(part)
        else:
            yield answer


def _said(role: str, content: Any) -> dict[str, str]:
    return {"role": role, "content": _text(content)}


def _text(content: Any) -> str:
    return content if isinstance(content, str) else to_json(to_jsonable(content)).decode()
