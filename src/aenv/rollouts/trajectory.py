"""Trajectories: the record of a rollout, step by step. One schema, which docs/trajectories.md documents.

A journal holds one line of JSON for each thing that happened; `type` says what it is:

    run      a run has begun, or goes on: which environment, agent, model, seed
    tools    the tools of an environment, once for all rollouts that have them
    begin    an attempt at a rollout has its instance
    step     a message or a call, with its result and its time
    messages the agent's own conversation, which replaces the one that the steps tell
    retry    the attempt failed with the infrastructure, and another one follows
    exchange a request to a model and its reply, where they were captured (`capture/`)
    unrecorded the agent used a way into the instance on which nothing is recorded
    result   the rollout has ended (`results.py`)

Not here: the file (`journal.py`), what writes while a rollout goes on (`recorder.py`), other formats (`exports/`).
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any, Literal

from ..base.errors import InvalidRequest
from .results import RolloutResult, RunIdentity

if TYPE_CHECKING:
    from .capture.model_exchange import Conversation, ModelExchange

SCHEMA = "aenv-trajectory/1"

Message = dict[str, Any]
"""A message of OpenAI's chat completions."""
AgentCallKind = Literal["tool", "function", "reset"]


@dataclass(frozen=True)
class SampledTokens:
    """What a model has sampled, where its server tells: for trainers that must not tokenise again."""

    ids: Sequence[int] = ()
    logprobs: Sequence[float] = ()
    prompt_ids: Sequence[int] = ()

    @classmethod
    def read(cls, value: Mapping[str, Any]) -> SampledTokens:
        return cls(*(value.get(name) or () for name in ("ids", "logprobs", "prompt_ids")))

    def as_json(self) -> dict[str, Any]:
        parts = {"ids": self.ids, "logprobs": self.logprobs, "prompt_ids": self.prompt_ids}
        return {name: list(value) for name, value in parts.items() if value}


@dataclass(frozen=True)
class AgentCall:
    """A call of the agent's and what came of it; `error` is there where it gave no result."""

    kind: AgentCallKind
    name: str
    arguments: Mapping[str, Any]
    content: list[dict[str, Any]] = field(default_factory=list)
    """What a tool said."""
    is_error: bool = False
    value: Any = None
    """The structured answer of a tool; what a function or a reset returned."""
    error: str = ""
    cut_bytes: int = 0
    """How long the answer was where it was too long to be kept; then `digest` is its sha256."""
    digest: str = ""

    @property
    def text(self) -> str:
        """What an agent reads of it."""
        if self.kind == "tool" and not self.error:
            return "\n".join(str(part.get("text")) for part in self.content if part.get("type") == "text")
        return self.error or json.dumps(self.value, ensure_ascii=False)

    def as_json(self) -> dict[str, Any]:
        line: dict[str, Any] = {self.kind: self.name, "arguments": self.arguments}
        given = {"content": self.content, "value": self.value, "error": self.error, "is_error": self.is_error}
        line |= {name: value for name, value in given.items() if value not in (None, "", [], False)}
        return line | ({"cut_bytes": self.cut_bytes, "sha256": self.digest} if self.cut_bytes else {})


@dataclass(frozen=True)
class Step:
    """A message, or a call; `index` is the order in which they began."""

    index: int
    at: float
    """Seconds since 1970."""
    seconds: float = 0.0
    message: Message | None = None
    call: AgentCall | None = None
    reward: float | None = None
    """What the environment gave for this step alone."""
    tokens: SampledTokens | None = None


@dataclass(frozen=True)
class Turn:
    """A message of the conversation, with what the model sampled for it, where that is known."""

    message: Message
    tokens: SampledTokens | None = None
    at: float = 0.0
    is_sampled: bool = True
    """False for what an agent has put into the mouth of its model, such as examples."""

    @property
    def is_learned(self) -> bool:
        """Whether a trainer learns it: what the agent itself said."""
        return self.message.get("role") == "assistant" and self.is_sampled


@dataclass(frozen=True)
class TrajectoryHead:
    """What is known when an attempt begins."""

    rollout: str
    task: str
    attempt: int | None = None
    attempts: int = 1
    """Which instance it is, from 1."""
    instance: str = ""
    variables: Mapping[str, str] = field(default_factory=dict)
    """What the instance was given, with `***` for what is secret."""
    datasource: str = ""
    validation: bool = False
    """Whether the instance was made with AENV_VALIDATION=1."""
    tools: str = ""
    """The sha256 of the tools."""
    at: float = 0.0
    task_sha256: str = ""
    """Of what makes the task: its variables, its datasource, and what its file tells the agent."""

    def as_json(self) -> dict[str, Any]:
        line = {"type": "begin", **vars(self)}
        return {name: value for name, value in line.items() if value not in (None, "", False)}


@dataclass
class Trajectory:
    """The record of one rollout: of its last attempt, where the infrastructure failed before."""

    head: TrajectoryHead
    tools: list[dict[str, Any]] = field(default_factory=list)
    """As MCP describes them."""
    lines: list[bytes] = field(default_factory=list, repr=False)
    """Steps, as the journal has them: read when they are asked for, since many rollouts are held at a time."""
    exchange_lines: list[bytes] = field(default_factory=list, repr=False)
    captured_tools: dict[str, list[dict[str, Any]]] = field(default_factory=dict, repr=False)
    """By their sha256: what captured requests told the model of tools."""
    own_messages: list[Message] | None = None
    """The conversation as the agent tells it, where it does."""
    result: RolloutResult | None = None
    """None for a rollout that was under way when its process ended."""
    run: RunIdentity | None = None
    """The run that it began in."""
    owner: str = ""
    """The process that played it (`run_owner.py`)."""
    unrecorded: list[str] = field(default_factory=list)
    """Ways on which the agent reached the instance beside its calls, such as `exec`: a replay lacks them."""

    @property
    def identity(self) -> RunIdentity:
        """Of its result, else the run that it began in."""
        return self.result.run if self.result else self.run or RunIdentity("")

    @cached_property
    def steps(self) -> list[Step]:
        """In the order in which they began."""
        return sorted((read_step(json.loads(line)) for line in self.lines), key=lambda step: step.index)

    @classmethod
    def of_turns(
        cls, head: TrajectoryHead, tools: list[dict[str, Any]], turns: Iterable[Turn], result: RolloutResult
    ) -> Trajectory:
        """A trajectory of which only the conversation is known, from a file of another format."""
        made = cls(head, tools, result=result)
        for number, turn in enumerate(turns, 1):
            line = {
                "type": "step",
                "rollout": head.rollout,
                "step": number,
                "at": turn.at,
                "message": turn.message,
            }
            if turn.tokens:
                line["tokens"] = turn.tokens.as_json()
            made.lines.append(json.dumps(line, ensure_ascii=False).encode("utf-8", "backslashreplace"))
        return made

    @cached_property
    def exchanges(self) -> list[ModelExchange]:
        """What was captured between the agent and its model, in the order in which it ended."""
        from .capture import model_exchange  # which imports this

        return model_exchange.read(map(json.loads, self.exchange_lines), self.captured_tools)

    @property
    def captured(self) -> Conversation | None:
        """The captured conversation with the most replies; `capture.model_exchange.conversations` has all."""
        from .capture import model_exchange  # which imports this

        return model_exchange.longest(self.exchanges)

    @property
    def calls(self) -> list[AgentCall]:
        return [step.call for step in self.steps if step.call]

    @property
    def turns(self) -> list[Turn]:
        """The conversation: as the agent tells it, else as it was captured, else as the steps do."""
        if self.own_messages is not None:
            told = [Turn(message) for message in self.own_messages]
        else:
            told = self.captured.turns if self.captured else list(_turns(self.steps))
        return [replace(one, message=shaped(one.message)) for one in told]

    @property
    def messages(self) -> list[Message]:
        """The conversation as chat messages."""
        return [turn.message for turn in self.turns]


def _turns(steps: Sequence[Step]) -> Iterator[Turn]:
    """Messages as they were said. An agent that does not say its calls has them said in its place."""
    speaks = any(step.message and step.message.get("tool_calls") for step in steps)
    answers = {step.index: step.call.text for step in steps if step.call}
    for step in steps:
        if step.message:
            of = step.message.get("content_of_step")
            kept = {name: value for name, value in step.message.items() if name != "content_of_step"}
            yield Turn(kept if of is None else {**kept, "content": answers.get(of, "")}, step.tokens, step.at)
        elif step.call and not speaks:
            yield from (Turn(message, None, step.at) for message in as_messages(f"call_{step.index}", step.call))


def said_calls(message: Message) -> list[dict[str, Any]]:
    """The calls in a message that have the shape of chat completions. Others may write anything there."""
    calls, found = message.get("tool_calls"), []
    for call in calls if isinstance(calls, list) else []:
        function = call.get("function") if isinstance(call, dict) else None
        if not isinstance(function, dict) or not isinstance(function.get("name"), str):
            continue
        if not isinstance(arguments := function.get("arguments"), str):
            function = {**function, "arguments": json.dumps(arguments or {}, ensure_ascii=False)}
        found.append({**call, "id": str(call.get("id") or ""), "function": function})
    return found


def shaped(message: Message) -> Message:
    """The message with no other calls than those."""
    if "tool_calls" not in message:
        return message
    kept = {name: value for name, value in message.items() if name != "tool_calls"}
    return {**kept, "tool_calls": calls} if (calls := said_calls(message)) else kept


def as_messages(id: str, call: AgentCall) -> tuple[Message, Message]:
    """A call and its answer, as messages of a chat."""
    called = {"name": call.name, "arguments": json.dumps(call.arguments, ensure_ascii=False)}
    calls = [{"id": id, "type": "function", "function": called}]
    said = {"role": "assistant", "content": None, "tool_calls": calls}
    return said, {"role": "tool", "tool_call_id": id, "content": call.text}


def read_step(line: Mapping[str, Any]) -> Step:
    """From a line of the type `step`. InvalidRequest names the field that is wrong."""
    index, at = line.get("step"), line.get("at", 0.0)
    if not isinstance(index, int) or not isinstance(at, int | float):
        raise InvalidRequest("fields 'step' and 'at' must be numbers")
    message, tokens = line.get("message"), line.get("tokens")
    if message is not None and not (isinstance(message, dict) and isinstance(message.get("role"), str)):
        raise InvalidRequest("field 'message' must be an object with a 'role'")
    if tokens is not None and not isinstance(tokens, dict):
        raise InvalidRequest("field 'tokens' must be an object")
    kinds: tuple[AgentCallKind, ...] = ("tool", "function", "reset")
    kind: AgentCallKind | None = next((kind for kind in kinds if kind in line), None)
    return Step(
        index,
        float(at),
        float(line.get("seconds") or 0.0),
        message,
        _call(kind, line) if kind else None,
        line.get("reward"),
        SampledTokens.read(tokens) if tokens else None,
    )


def _call(kind: AgentCallKind, line: Mapping[str, Any]) -> AgentCall:
    name, arguments, content = line[kind], line.get("arguments"), line.get("content", [])
    if not isinstance(name, str) or not isinstance(arguments, dict) or not isinstance(content, list):
        raise InvalidRequest(f"a call needs {kind!r} as a text, 'arguments' as an object, 'content' as a list")
    return AgentCall(
        kind,
        name,
        arguments,
        content,
        line.get("is_error") is True,
        line.get("value"),
        str(line.get("error") or ""),
        int(line.get("cut_bytes") or 0),
        str(line.get("sha256") or ""),
    )


def read_head(line: Mapping[str, Any]) -> TrajectoryHead:
    """From a line of the type `begin`. InvalidRequest names the field that is wrong."""
    for name in ("rollout", "task"):
        if not isinstance(line.get(name), str):
            raise InvalidRequest(f"field {name!r} must be a text")
    known = {name: line[name] for name in TrajectoryHead.__dataclass_fields__ if name in line}
    return TrajectoryHead(**known)
