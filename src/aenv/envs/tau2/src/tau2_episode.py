"""Episodes: one task, from the first message to the end. Who talks to whom, what is counted, and what is recorded.

Not here: rewards (`tau2_evaluation.py`), variables and data (`tau2_session.py`).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tau2_prompts import GREETING
from tau2_tables import copied
from tau2_users import STOP_TOKENS, User
from tau2_world import Answer, World

from aenv import ModelFailed

Json = dict[str, Any]

MAX_ERRORS = 10
_MOST_USER_CALLS = 30  # turns in a row in which a user calls tools and says nothing


class Episode:
    """A conversation in a world. `make_user` is called once the world is set up; solo episodes have no user."""

    def __init__(self, task: Json, world: World, make_user: Callable[[World], User], *, max_steps: int) -> None:
        self.task = task
        self.world = world
        self.steps = 0
        self.errors = 0
        self.termination: str | None = None
        self.failure: str | None = None
        """Why the user could not go on; then the episode says nothing about the agent."""
        self.last_observation = ""
        self._max_steps = max_steps
        initial = task.get("initial_state") or {}
        self.messages: list[Json] = list(initial.get("message_history") or [])
        world.set_state(initial, self.messages)
        self._number = len(self.messages)
        self._user = None if world.solo else make_user(world)
        self._begin()

    @property
    def is_done(self) -> bool:
        return self.termination is not None

    def call(self, name: str, arguments: Json) -> Answer:
        """The agent calls a tool."""
        answer = self._called([{"name": name, "arguments": arguments}], "assistant")[0]
        self.last_observation = answer.content
        self._count_step()
        return answer

    def send(self, text: str) -> str:
        """The agent says something; what the user answers. In solo mode there is no user: that ends it."""
        if self.is_done:
            return self.last_observation
        self.say(text)
        if self._user is None:
            self.termination = "agent_stop" if STOP_TOKENS[0] in text else "agent_error"
            self.last_observation = "there is no user in solo mode; use tools, and end with 'done'"
        else:
            self._let_user_speak()
        self._count_step()
        return self.last_observation

    def say(self, text: str) -> None:
        """Record what the agent says, without an answer of the user."""
        self.messages.append({"role": "assistant", "content": text})

    def call_as_user(self, name: str, arguments: Json) -> Answer:
        """The user calls a tool, because the validator of the task says so."""
        return self._called([{"name": name, "arguments": arguments}], "user")[0]

    def stop(self) -> None:
        """The agent is done."""
        if not self.is_done:
            self.termination = "agent_stop"

    def _begin(self) -> None:
        if self._user is None:
            self.last_observation = self.task.get("ticket") or ""
            return
        if not self.messages:
            self.say(GREETING)
        last = self.messages[-1]
        if last["role"] == "assistant" and last.get("content"):
            self._let_user_speak()
        else:
            self.last_observation = last.get("content") or ""

    def _let_user_speak(self) -> None:
        assert self._user is not None
        for _ in range(_MOST_USER_CALLS):
            try:
                turn = self._user.turn(self._seen_by_user())
            except ModelFailed as error:
                self._fail(str(error))
                return
            if not turn.calls:
                self.messages.append({"role": "user", "content": turn.text})
                self.last_observation = turn.text
                if any(token in turn.text for token in STOP_TOKENS):
                    self.termination = "user_stop"
                return
            self._called(turn.calls, "user")
        self._fail(f"the user called tools {_MOST_USER_CALLS} times in a row, and said nothing")

    def _fail(self, reason: str) -> None:
        self.failure = reason
        self.termination = "user_error"
        self.last_observation = f"the user simulator failed: {reason}"

    def _seen_by_user(self) -> list[Json]:
        """What both say, and the user's own tools."""
        return [
            message
            for message in self.messages
            if message["role"] == "user"
            or (message["role"] == "assistant" and message.get("content"))
            or (message["role"] == "tool" and message.get("requestor") == "user")
        ]

    def _called(self, calls: list[Json], requestor: str) -> list[Answer]:
        """Run the calls of one message and record all of it."""
        # Copied: tools may keep what they are given, and change it later.
        numbered = [{"id": self._new_id(), **copied(call), "requestor": requestor} for call in calls]
        role = "user" if requestor == "user" else "assistant"
        self.messages.append({"role": role, "content": None, "tool_calls": numbered})
        answers = []
        for call in numbered:
            answer = self.world.execute(call["name"], copied(call["arguments"]), requestor)
            self.errors += answer.error
            result = {"id": call["id"], "content": answer.content, "error": answer.error}
            self.messages.append({"role": "tool", "requestor": requestor, **result})
            answers.append(answer)
        return answers

    def _new_id(self) -> str:
        self._number += 1
        return f"call_{self._number}"

    def _count_step(self) -> None:
        """Limits win over whatever else has ended the same step."""
        self.steps += 1
        if self.steps >= self._max_steps:
            self.termination = "max_steps"
        elif self.errors >= MAX_ERRORS:
            self.termination = "too_many_errors"
