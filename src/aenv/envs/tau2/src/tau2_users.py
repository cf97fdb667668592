"""Users: who talks to the agent. One follows a script and needs no model; one is played by a model.

A user sees what the agent says and the results of its own tools, never the agent's tools, and never what the task
counts as solved.
"""

from __future__ import annotations

import ast
import json
import re
from dataclasses import dataclass, field
from typing import Any, Protocol

from tau2_models import Ask
from tau2_prompts import user_prompt
from tau2_speech import spoken
from tau2_toolkit import ToolSpec

from aenv import ModelFailed

Json = dict[str, Any]

STOP = "###STOP###"
TRANSFER = "###TRANSFER###"
STOP_TOKENS = (STOP, TRANSFER, "###OUT-OF-SCOPE###")

_WORD = re.compile(r"[a-z0-9]+")
_CONFIRM = re.compile(
    r"\byes\s*(/|or)\s*no\b|\bconfirm|\bproceed\b|\bgo ahead\b|\bis (that|this) (ok|okay|correct)\b"
)
_ASKED = re.compile(r"\byes\s*(/|or)\s*no\b|\bprovide\b|\btell me\b|\blet me know\b|\bneed your\b")
_HANDED_OVER = re.compile(r"\bbeing transferred\b|\btransferr(ed|ing) you\b|\btransfer you to a human\b")
_GIVEN = re.compile(r"`?\s{0,9}\(([^)]{0,2000})\)")  # bounded: a long message can open many and close none
_COMMON = {
    *("a", "an", "and", "are", "be", "can", "could", "do", "for", "have", "i", "in", "is", "it", "me", "my", "of"),
    *("on", "or", "please", "the", "to", "what", "you", "your"),
}


@dataclass(frozen=True)
class Turn:
    """What a user does: says something, or calls tools first."""

    text: str = ""
    calls: list[Json] = field(default_factory=list)


class User(Protocol):
    def turn(self, seen: list[Json]) -> Turn:
        """The next turn, after these messages. ModelFailed when there is none."""
        ...


class ScriptedUser:
    """Opens with the reason for the call, answers from what it knows, and runs a tool that the agent names."""

    def __init__(self, scenario: Json, tools: dict[str, ToolSpec], *, patience: int) -> None:
        instructions = scenario["instructions"]
        if isinstance(instructions, str):
            instructions = {"reason_for_call": instructions}
        self._reason = " ".join(spoken(instructions["reason_for_call"])) or "I need help."
        self._facts = [fact for key in ("known_info", "unknown_info") for fact in spoken(instructions.get(key))]
        self._tools = tools
        self._patience = patience
        self._idle = 0
        self._told: set[str] = set()
        self._has_opened = False

    def turn(self, seen: list[Json]) -> Turn:
        if not self._has_opened:
            self._has_opened = True
            return Turn(self._reason)
        last = seen[-1]
        if last["role"] == "tool":
            return Turn(_results(seen))
        message = last.get("content") or ""
        calls, missing = self._calls_named_in(message)
        if calls:
            self._idle = 0
            return Turn(calls=calls)
        if missing:
            return self._idling(missing)
        return self._answer(message)

    def _answer(self, message: str) -> Turn:
        lowered = message.lower()
        if _HANDED_OVER.search(lowered):
            return Turn(TRANSFER)
        is_asked = "?" in message or _ASKED.search(lowered) is not None
        if is_asked and _CONFIRM.search(lowered):
            self._idle = 0
            return Turn("Yes.")
        if not is_asked:
            return self._idling("OK.")
        wanted = _words(message)
        answers = [fact for fact in self._facts if wanted & _words(fact)] or self._facts
        if not self._told.issuperset(answers):
            self._told.update(answers)
            self._idle = 0
            return Turn(" ".join(answers))
        return self._idling(" ".join(answers) or "I do not know more than I said.")

    def _idling(self, text: str) -> Turn:
        """Nothing has happened in such a turn; after too many of them the user leaves."""
        self._idle += 1
        return Turn(STOP if self._idle > self._patience else text)

    def _calls_named_in(self, message: str) -> tuple[list[Json], str]:
        """The tools that a message names, in its order, with the arguments it gives; or what one of them lacks.

        A call that is named again is the same call: "run toggle_data, and say what toggle_data tells" wants one.
        """
        calls: dict[str, Json] = {}
        missing = ""
        for found in re.finditer(r"[a-z][a-z0-9_]*", message):
            spec = self._tools.get(found[0])
            if spec is None:
                continue
            arguments = _arguments(message, found.end(), list(spec.parameters["properties"]))
            lacking = [name for name in spec.parameters.get("required", []) if name not in arguments]
            if lacking:
                missing = missing or f"I cannot run {spec.name}: tell me its {', '.join(lacking)}."
            else:
                calls.setdefault(f"{spec.name}{arguments}", {"name": spec.name, "arguments": arguments})
        return list(calls.values()), missing


class ModelUser:
    """A user that a model plays."""

    def __init__(self, ask: Ask, guidelines: str, scenario: Json, tools: dict[str, ToolSpec]) -> None:
        self._ask = ask
        self._prompt = user_prompt(guidelines, scenario)
        self._tools = [spec.openai() for spec in tools.values()]

    def turn(self, seen: list[Json]) -> Turn:
        answer = self._ask([{"role": "system", "content": self._prompt}, *map(_flipped, seen)], self._tools)
        calls = [_call(each) for each in answer.get("tool_calls") or []]
        if calls:
            return Turn(calls=calls)
        text = answer.get("content")
        if not isinstance(text, str) or not text.strip():
            raise ModelFailed("the model that plays the user said nothing")
        return Turn(text)


def _flipped(message: Json) -> Json:
    """A message as the user's model sees it: its own are the assistant's."""
    if message["role"] == "tool":
        return {"role": "tool", "tool_call_id": message["id"], "content": message["content"]}
    if message["role"] == "assistant":
        return {"role": "user", "content": message["content"]}
    calls = [
        {
            "id": call["id"],
            "type": "function",
            "function": {"name": call["name"], "arguments": json.dumps(call["arguments"])},
        }
        for call in message.get("tool_calls") or []
    ]
    return {"role": "assistant", "content": message.get("content"), **({"tool_calls": calls} if calls else {})}


def _call(given: Any) -> Json:
    try:
        function = given["function"]
        arguments = json.loads(function.get("arguments") or "{}")
        name = str(function["name"])
    except (KeyError, TypeError, ValueError):
        raise ModelFailed("the model that plays the user made a tool call that cannot be read") from None
    return {"name": name, "arguments": arguments if isinstance(arguments, dict) else {}}


def _results(seen: list[Json]) -> str:
    """What the tools of the last turn gave, for the agent."""
    results: list[str] = []
    for message in reversed(seen):
        if message["role"] != "tool":
            names = [call["name"] for call in message["tool_calls"]]
            return "\n".join(f"{name}: {text}" for name, text in zip(names, reversed(results), strict=True))
        results.append(message["content"])
    return ""


def _words(text: str) -> set[str]:
    return set(_WORD.findall(text.lower())) - _COMMON


def _arguments(message: str, end: int, names: list[str]) -> Json:
    """What stands in parentheses behind a tool's name, as in Python or as JSON; nothing where it is unreadable."""
    found = _GIVEN.match(message, end)
    if found is None:
        return {}
    inner = found[1].strip()
    try:
        given: Json = json.loads(inner) if inner.startswith("{") else _as_in_python(inner, names)
        json.dumps(given, ensure_ascii=False).encode()  # what no JSON can hold, no answer could tell
    except (SyntaxError, TypeError, ValueError, MemoryError, RecursionError):
        return {}  # the last two: it is nested too deeply
    return given


def _as_in_python(inner: str, names: list[str]) -> Json:
    call = ast.parse(f"f({inner})", mode="eval").body
    if not isinstance(call, ast.Call):
        raise ValueError("it is more than the arguments of one call")
    given = dict(zip(names, (ast.literal_eval(argument) for argument in call.args), strict=False))
    return given | {each.arg: ast.literal_eval(each.value) for each in call.keywords if each.arg}
