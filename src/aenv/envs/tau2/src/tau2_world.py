"""Worlds: one environment of a domain (agent's side, user's side, policy), how calls run in it, and its set-up.

Not here: rewards (`tau2_evaluation.py`), who talks to whom (`tau2_episode.py`).
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Protocol

from tau2_toolkit import Toolkit, text_of


@dataclass(frozen=True)
class Answer:
    """What a tool call gave."""

    content: str
    error: bool = False


class World:
    """One environment. Domains that carry state from one side to the other override `sync`."""

    def __init__(self, agent: Toolkit, user: Toolkit | None, policy: str, *, solo: bool = False) -> None:
        self.agent = agent
        self.user = user
        self.policy = policy
        self.solo = solo
        if solo and user is not None:
            common = sorted(agent.kinds().keys() & user.kinds().keys())
            if common:
                raise ValueError(f"Tool names overlap: {', '.join(common)}")
        self.sync()

    def sync(self) -> None:
        """Carry over what one side changed and the other must see."""

    def execute(self, name: str, arguments: dict[str, Any], requestor: str = "assistant") -> Answer:
        """Run a tool as the agent ("assistant") or the user. Failures are answers; what they changed stays."""
        try:
            result = self._side(name, requestor).call(name, _acceptable(arguments))
            self.sync()
            return Answer(text_of(result))
        except Exception as error:  # boundary: whatever a tool raises is its answer
            return Answer(f"Error: {error}", error=True)

    def run_function(self, side: str, name: str, arguments: dict[str, Any]) -> Any:
        """Call a tool or a plain function that a task names, then sync. Errors come through."""
        toolkit = self.agent if side == "assistant" else self.user
        if toolkit is None:
            raise ValueError(f"this domain has no user side for {name!r}")
        result = toolkit.call(name, arguments)
        self.sync()
        return result

    def set_state(self, initial: dict[str, Any] | None, history: list[dict[str, Any]]) -> None:
        """Bring a fresh world to where a task begins, then run the history's writes again.

        A write that now answers otherwise than recorded raises ValueError.
        """
        initial = initial or {}
        if self.solo and any(message["role"] == "user" for message in history):
            raise ValueError("User messages are not allowed in solo mode")
        self._merge(initial.get("initialization_data") or {})
        for action in initial.get("initialization_actions") or []:
            self.run_function(action["env_type"], action["func_name"], action.get("arguments") or {})
        for call, recorded in calls_of(history):
            self._replay(call, recorded)
        self.sync()

    def _merge(self, data: dict[str, Any]) -> None:
        # A side that has been merged into is then the database of both sides: so the benchmark does it, and the
        # hashes of its tasks depend on it.
        if data.get("agent_data") is not None:
            self.agent.db = self.agent.db.merged(data["agent_data"])
            if self.user is not None:
                self.user.db = self.agent.db
        if data.get("user_data") is not None and self.user is not None:
            self.user.db = self.user.db.merged(data["user_data"])
            self.agent.db = self.user.db

    def _replay(self, call: dict[str, Any], recorded: dict[str, Any]) -> None:
        kinds = {**(self.user.kinds() if self.user else {}), **self.agent.kinds()}
        if kinds.get(call["name"]) != "write":
            return
        answer = self.execute(call["name"], call["arguments"], call.get("requestor", "assistant"))
        if _parsed(answer.content) != _parsed(recorded["content"]):
            was = recorded["content"]
            raise ValueError(f"replaying {call['name']!r} gave {answer.content!r}, and was recorded with {was!r}")

    def _side(self, name: str, requestor: str) -> Toolkit:
        if requestor == "user":
            if self.solo:
                raise ValueError("User tool calls are not allowed in solo mode")
            if self.user is None:
                raise ValueError("User tools not available")
            toolkit = self.user
        elif requestor == "assistant":
            borrowed = self.solo and self.user is not None and name in self.user.kinds()
            toolkit = self.user if borrowed and self.user is not None else self.agent
        else:
            raise ValueError(f"Invalid requestor: {requestor}")
        if name not in toolkit.kinds():
            raise ValueError(f"Tool '{name}' not found.")
        return toolkit


class Source(Protocol):
    """A domain's files, loaded once per process and never changed. Worlds copy what they change."""

    @property
    def tasks(self) -> list[dict[str, Any]]: ...
    @property
    def first(self) -> dict[str, Any]:
        """The first task of the default split."""
        ...

    @property
    def splits(self) -> dict[str, list[str]]: ...
    @property
    def default_split(self) -> str | None: ...

    def open(self, *, solo: bool) -> World: ...

    def find(self, task_id: str) -> dict[str, Any]:
        """One task. KeyError where there is none of that id."""
        ...


def calls_of(messages: list[dict[str, Any]]) -> Iterator[tuple[dict[str, Any], dict[str, Any]]]:
    """Each tool call with its result. Results follow their calls in order, or it is an error."""
    waiting: list[dict[str, Any]] = []
    for message in messages:
        if message["role"] == "tool":
            if not waiting:
                raise ValueError(f"tool result {message.get('id')!r} has no call before it")
            call = waiting.pop(0)
            if call.get("id", "") != message.get("id", ""):
                raise ValueError(f"tool result {message.get('id')!r} follows call {call.get('id')!r}")
            yield call, message
            continue
        if waiting:
            raise ValueError(f"tool call {waiting[0]['name']!r} has no result")
        waiting = list(message.get("tool_calls") or [])
    if waiting:
        raise ValueError(f"tool call {waiting[0]['name']!r} has no result")


def _acceptable(arguments: dict[str, Any]) -> dict[str, Any]:
    # Names that the benchmark's own dispatcher takes for itself, and how it refuses them.
    for key in arguments:
        if key in ("tool_name", "self"):
            raise TypeError(f"Environment.make_tool_call() got multiple values for argument '{key}'")
        if key == "requestor":
            owner = "tau2.environment.environment.Environment.make_tool_call()"
            raise TypeError(f"{owner} got multiple values for keyword argument '{key}'")
    return arguments


def _parsed(content: Any) -> Any:
    try:
        return json.loads(content)
    except (TypeError, ValueError):
        return content
