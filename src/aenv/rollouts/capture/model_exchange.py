"""Exchanges with a model, as lines of a journal; and the conversations that they make."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from ...base.errors import InvalidRequest
from .. import bounded_json
from ..trajectory import Message, SampledTokens, Turn
from . import dialects
from .dialects import DIALECTS


@dataclass(frozen=True)
class ModelExchange:
    """One request to a model, and its reply. `error` says why there is no reply, or not a whole one."""

    number: int
    """From 1, in the order in which the exchanges of a rollout ended."""
    api: str
    """`chat/completions`, `responses` or `messages`."""
    request: Mapping[str, Any]
    """The body as the agent sent it, with what the capture adds."""
    reply: Mapping[str, Any] = field(default_factory=dict)
    status: int | None = None
    """What the model's server answered; None where it did not."""
    error: str = ""
    at: float = 0.0
    seconds: float = 0.0
    first_seconds: float | None = None
    """Until the first byte of a reply that came as a stream."""

    @property
    def is_whole(self) -> bool:
        return self.status == 200 and not self.error

    @property
    def prompt(self) -> list[Message]:
        """The conversation before the reply, as messages of chat completions."""
        return DIALECTS[self.api].prompt(self.request)

    @property
    def said(self) -> Message | None:
        return DIALECTS[self.api].said(self.reply) if self.is_whole else None

    @property
    def tools(self) -> list[dict[str, Any]]:
        """As in chat completions."""
        return DIALECTS[self.api].tools(self.request)

    @property
    def usage(self) -> tuple[int, int] | None:
        """Tokens read and written, where the server says."""
        return dialects.usage(self.reply)

    @property
    def tokens(self) -> SampledTokens | None:
        """What was sampled, where the server tells: ids, log-probabilities."""
        choices = self.reply.get("choices")
        choice = choices[0] if isinstance(choices, list) and choices and isinstance(choices[0], dict) else {}
        logprobs = choice.get("logprobs")
        content = logprobs.get("content") if isinstance(logprobs, dict) else None
        values = [one.get("logprob") for one in content or [] if isinstance(one, dict)]
        numbers = [value for value in values if isinstance(value, int | float)]
        found = SampledTokens(
            choice.get("token_ids") or (),
            numbers if len(numbers) == len(values) else (),
            self.reply.get("prompt_token_ids") or choice.get("prompt_token_ids") or (),
        )
        return found if found.ids or found.logprobs else None


class Prefixes:
    """How far lists begin alike: each list is known by the exchange that it came with."""

    def __init__(self) -> None:
        self._known: dict[bytes, tuple[int, int]] = {}

    def longest(self, messages: Sequence[Any], number: int) -> tuple[int, int]:
        """The exchange whose list begins like this one, and for how many messages; this list is known after it."""
        found, missing = (0, 0), []
        for count, digest in enumerate(_chain(messages), 1):
            if known := self._known.get(digest):
                found = known[0], count
            else:
                missing.append((digest, (number, count)))
        self._known.update(missing)
        return found


def as_line(exchange: ModelExchange, rollout: str, prefixes: Prefixes, tools: str) -> dict[str, Any]:
    """A line of the journal. What the list of messages shares with an earlier one is not written again.

    `tools` is the digest under which the request's tools are in the journal.
    """
    api, request = DIALECTS[exchange.api], dict(exchange.request)
    line: dict[str, Any] = {"type": "exchange", "rollout": rollout, "exchange": exchange.number}
    line |= {"at": round(exchange.at, 3), "seconds": round(exchange.seconds, 6), "api": exchange.api}
    messages = request.get(api.list_field)
    if isinstance(messages, list):
        of, count = prefixes.longest(messages, exchange.number)
        request[api.list_field] = messages[count:]
        line |= {"after": [of, count]} if count else {}
    if tools:
        request["tools"] = tools
    optional = {
        "status": exchange.status,
        "first_seconds": exchange.first_seconds and round(exchange.first_seconds, 6),
        "reply": exchange.reply,
        "error": exchange.error,
    }
    return {**line, "request": request, **{name: value for name, value in optional.items() if value}}


def read(lines: Iterable[Mapping[str, Any]], tools: Mapping[str, list[dict[str, Any]]]) -> list[ModelExchange]:
    """From the lines of one rollout, in their order; `tools` are those of the journal. InvalidRequest."""
    found: dict[int, ModelExchange] = {}
    for line in lines:
        api, request = DIALECTS.get(str(line.get("api"))), line.get("request")
        if api is None or not isinstance(request, dict) or not isinstance(line.get("exchange"), int):
            raise InvalidRequest("an exchange needs 'exchange' as a number, 'api' as a known one, and 'request'")
        request, name = dict(request), api.list_field
        if after := line.get("after"):
            earlier = found.get(after[0])
            begun = earlier.request.get(DIALECTS[earlier.api].list_field) if earlier else None
            if not isinstance(begun, list) or len(begun) < after[1]:
                raise InvalidRequest(f"field 'after' names exchange {after[0]}, which is not there")
            request[name] = [*begun[: after[1]], *request.get(name, [])]
        if isinstance(request.get("tools"), str):
            request["tools"] = tools.get(request["tools"], [])
        found[line["exchange"]] = ModelExchange(
            line["exchange"],
            api.name,
            request,
            line.get("reply") or {},
            line.get("status"),
            str(line.get("error") or ""),
            at=float(line.get("at") or 0.0),
            seconds=float(line.get("seconds") or 0.0),
            first_seconds=line.get("first_seconds"),
        )
    return list(found.values())


@dataclass(frozen=True)
class Conversation:
    """What an agent and a model said to each other, to its end. Only what the model sampled is to be learned."""

    turns: list[Turn]
    tools: list[dict[str, Any]]
    sampled: int
    """How many of the turns are replies of the model's."""


def conversations(exchanges: Iterable[ModelExchange]) -> list[Conversation]:
    """Those of the agent, in the order in which they ended. An exchange that a later one continues is part of it.

    An agent that shortens what was said, or asks for something aside, has begun another conversation.
    """
    whole: dict[str, list[Message]] = {}
    replies: dict[bytes, tuple[int, SampledTokens | None]] = {}
    found: dict[int, Conversation] = {}
    for exchange in exchanges:
        said = exchange.said
        if said is None:
            continue
        prompt = [*whole.get(str(exchange.request.get("previous_response_id")), []), *exchange.prompt]
        turns: list[Turn] = []
        sampled, digest = 1, b""
        for message, digest in zip(prompt, _chain(map(_essence, prompt)), strict=True):
            number, tokens = replies.get(digest, (0, None))
            if number:
                found.pop(number, None)  # it goes on here
                sampled += 1
            turns.append(Turn(message, tokens, is_sampled=bool(number)))
        last = next(_chain([_essence(said)], digest))
        replies[last] = exchange.number, exchange.tokens
        turns.append(Turn(said, exchange.tokens, exchange.at + exchange.seconds))
        found[exchange.number] = Conversation(turns, exchange.tools, sampled)
        if isinstance(id := exchange.reply.get("id"), str):
            whole[id] = [turn.message for turn in turns]
    return list(found.values())


def longest(exchanges: Iterable[ModelExchange]) -> Conversation | None:
    """The conversation with the most replies, the last of several."""
    found = conversations(exchanges)
    return max(reversed(found), key=lambda one: one.sampled) if found else None


def _chain(values: Iterable[Any], begin: bytes = b"") -> Iterator[bytes]:
    """For each value a digest of it and all before it."""
    digest = begin
    for value in values:
        text = json.dumps(value, sort_keys=True, default=str).encode()
        digest = hashlib.blake2b(digest + text, digest_size=16).digest()
        yield digest


def _essence(message: Message) -> list[Any]:
    """What must be the same: agents send replies back without what they do not need."""
    content = message.get("content")
    if isinstance(content, list) and all(isinstance(part, dict) and "text" in part for part in content):
        content = "".join(str(part["text"]) for part in content)
    calls = message.get("tool_calls")
    functions = (
        [call.get("function") for call in calls if isinstance(call, dict)] if isinstance(calls, list) else []
    )
    called = [(one.get("name"), _arguments(one)) for one in functions if isinstance(one, dict)]
    return [message.get("role"), content or "", called]


def _arguments(function: Mapping[str, Any]) -> Any:
    try:
        return bounded_json.loads(function.get("arguments") or "{}")
    except (TypeError, ValueError):
        return function.get("arguments")
