"""What writes down a rollout while it goes on: messages and calls, each as one line of the journal."""

from __future__ import annotations

import hashlib
import time
from collections.abc import Mapping
from typing import Any

from ..client.result import ToolResult
from .journal import Journal, encoded
from .trajectory import AgentCallKind, Message, SampledTokens, Trajectory, TrajectoryHead

MAX_KEPT_BYTES = 1 << 20
"""Of one step. Of a longer one the answer, the arguments or the message is cut; an answer has its sha256 then."""


class Recorder:
    """The steps of one attempt. It fills a `Trajectory`, and the journal where there is one."""

    def __init__(self, journal: Journal, head: TrajectoryHead, tools: list[dict[str, Any]]) -> None:
        self._journal = journal
        self._next = 0
        self._answer: tuple[int, str] | None = None
        self.trajectory = Trajectory(head, tools, run=journal.run)
        journal.append(head.as_json())

    @property
    def rollout(self) -> str:
        return self.trajectory.head.rollout

    def begin(self) -> int:
        """The index of a step that begins now."""
        self._next += 1
        return self._next

    def message(self, message: Message, tokens: SampledTokens | None = None) -> None:
        """Something was said: a message of the system, the user or the assistant, with what the model sampled."""
        kept = message
        if message.get("role") == "tool" and self._answer and message.get("content") == self._answer[1]:
            # The call has it already.
            kept = {name: value for name, value in message.items() if name != "content"}
            kept["content_of_step"] = self._answer[0]
        line: dict[str, Any] = {"message": kept}
        if tokens:
            line["tokens"] = tokens.as_json()
        self._write(self.begin(), line)

    def call(
        self,
        index: int,
        seconds: float,
        kind: AgentCallKind,
        name: str,
        arguments: Mapping[str, Any],
        *,
        result: ToolResult | None = None,
        value: Any = None,
        error: str = "",
    ) -> None:
        """A call that has ended: with a tool's result, a function's value, or the error that there is instead."""
        line: dict[str, Any] = {kind: name, "arguments": arguments}
        if result is not None:
            line["content"], value = result.content, result.structured
            if result.is_error:
                line["is_error"] = True
            if isinstance(value, dict) and isinstance(value.get("reward"), int | float):
                line["reward"] = float(value["reward"])
            self._answer = index, result.text
        if value is not None:
            line["value"] = value
        if error:
            line["error"] = error
        line["seconds"] = round(seconds, 6)
        self._write(index, line)

    def own_messages(self, messages: list[Message]) -> None:
        """The agent tells the conversation itself."""
        self.trajectory.own_messages = messages
        self._journal.append({"type": "messages", "rollout": self.rollout, "messages": messages})

    def unrecorded(self, by: str) -> None:
        """The agent reaches the instance on a way on which nothing is recorded."""
        if by not in self.trajectory.unrecorded:
            self.trajectory.unrecorded.append(by)
            self._journal.append({"type": "unrecorded", "rollout": self.rollout, "by": by})

    def retry(self, outcome: str, reason: str) -> None:
        """This attempt is given up, and another follows."""
        self._journal.append({"type": "retry", "rollout": self.rollout, "outcome": outcome, "error": reason})

    def _write(self, index: int, line: dict[str, Any]) -> None:
        head = {"type": "step", "rollout": self.rollout, "step": index, "at": round(time.time(), 3)}
        data = encoded({**head, **line})
        if len(data) > MAX_KEPT_BYTES:
            data = encoded({**head, **_cut(line)})
        self.trajectory.lines.append(self._journal.write(data))


def _cut(line: Mapping[str, Any]) -> dict[str, Any]:
    """The line with its long parts cut; what was there is known by length and digest."""
    kept = dict(line)
    answer: dict[str, Any] = {name: kept.pop(name) for name in ("content", "value", "error") if name in kept}
    data = encoded(answer)
    if len(data) > MAX_KEPT_BYTES // 2:
        begin = data[:1000].decode("utf-8", "ignore")
        kept |= {"content": [{"type": "text", "text": f"{begin}…"}], "cut_bytes": len(data)}
        kept["sha256"] = hashlib.sha256(data).hexdigest()
    else:
        kept |= answer
    for name in ("arguments", "message"):
        size = len(encoded(kept.get(name)))
        if size > MAX_KEPT_BYTES // 2:
            role = {"role": kept[name].get("role")} if name == "message" else {}
            kept[name] = {**role, "content" if role else "cut_bytes": f"{size} bytes, not kept" if role else size}
    return kept
