"""The log of a synthesis under way: what a model wrote and how checks ended, so that the same command goes on."""

from __future__ import annotations

import fcntl
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ...base.errors import Conflict, InvalidRequest
from .. import bounded_json
from ..journal import Journal
from ..results import RolloutResult


@dataclass(frozen=True)
class CheckedAttempt:
    """How one attempt at a proposal ended: with nothing done, with its gold, or with an agent."""

    stage: str
    task: str
    attempt: int
    passed: bool | None
    """Whether the reward was full; None where it was not judged."""
    reason: str = ""
    text: str = ""
    """What the agent was told."""
    calls: tuple[Mapping[str, Any], ...] = ()
    """The calls of tools that were made, of one that passed."""

    @classmethod
    def of(cls, stage: str, result: RolloutResult) -> CheckedAttempt:
        said = result.trajectory.messages if result.trajectory and stage == "empty" else []
        calls = result.trajectory.calls if result.trajectory and stage == "solve" and result.passed else []
        made = tuple({"tool": one.name, "arguments": dict(one.arguments)} for one in calls if one.kind == "tool")
        text = str(said[0].get("content") or "") if said else ""
        return cls(stage, result.task, result.number, result.passed, result.reason, text, made)


class WorkLog:
    """What is known of a run that goes on; without a file it knows what this process did."""

    def __init__(self, file: Journal | None = None) -> None:
        self._file = file or Journal()
        self._replies: dict[int, str] = {}
        self._checked: dict[tuple[str, str, int], CheckedAttempt] = {}

    def reply(self, request: int) -> str | None:
        return self._replies.get(request)

    def replied(self, request: int, content: str) -> None:
        self._replies[request] = content
        self._file.append({"type": "reply", "request": request, "content": content})

    def attempts(self, stage: str, task: str, repeat: int) -> list[CheckedAttempt] | None:
        """All attempts at a task in a stage; None where some are still to be made."""
        found = [self._checked.get((stage, task, number)) for number in range(1, repeat + 1)]
        return [one for one in found if one] if all(found) else None

    def checked(self, one: CheckedAttempt) -> None:
        self._checked[one.stage, one.task, one.attempt] = one
        self._file.append({"type": "checked", **vars(one)})

    def take(self, line: Any) -> None:
        """What a line of the file says."""
        match line:
            case {"type": "reply", "request": int() as request, "content": str() as content}:
                self._replies[request] = content
            case {"type": "checked", "calls": list() as calls}:
                known = {name: value for name, value in line.items() if name != "type"}
                one = CheckedAttempt(**{**known, "calls": tuple(calls)})
                self._checked[one.stage, one.task, one.attempt] = one
            case _:
                raise InvalidRequest("it is not a line of a log of 'aenv synth'")


@contextmanager
def opened(path: Path | None, inputs: str) -> Iterator[WorkLog]:
    """The log beside the file of a task set, which goes on where it is of the same inputs."""
    if path is None:
        yield WorkLog()
        return
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("ab+") as file:
        try:
            fcntl.flock(file.fileno(), fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise Conflict(f"another 'aenv synth' writes to {str(path)!r}; wait for it") from None
        file.seek(0)
        content = file.read()
        whole = content[: content.rfind(b"\n") + 1]  # a torn last line was under way when its process ended
        file.truncate(len(whole))
        log = WorkLog(Journal(file.fileno(), path))
        for number, line in enumerate(whole.splitlines(), 1):
            where = f"{str(path)!r} line {number}"
            try:
                entry = bounded_json.loads(line)
                if number > 1:
                    log.take(entry)
                    continue
            except (ValueError, TypeError, InvalidRequest) as error:
                raise InvalidRequest(f"{where}: {error}; remove the file to begin again") from None
            if entry != {"type": "synthesis", "inputs": inputs}:
                raise Conflict(
                    f"{where}: it was begun with other inputs (environment, seeds, source, agent or seed); "
                    "go on with the same ones, or name another file"
                )
        if not whole:
            log._file.append({"type": "synthesis", "inputs": inputs})
        yield log
