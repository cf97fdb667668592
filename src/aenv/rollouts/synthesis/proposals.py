"""Proposals: tasks that a source suggests, in the form in which their environment takes them; not yet checked."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from ...base.errors import InvalidRequest
from ..task import Task

SPLIT = "synthetic"


@dataclass(frozen=True)
class GoldCall:
    """A call of the reference solution: of a tool, or of a function of the environment."""

    kind: str
    name: str
    arguments: Mapping[str, Any] = field(default_factory=dict)

    @classmethod
    def read(cls, entry: Any, where: str) -> GoldCall:
        kinds = [kind for kind in ("tool", "function") if isinstance(entry, dict) and kind in entry]
        if len(kinds) != 1 or not isinstance(entry[kinds[0]], str) or {*entry} - {kinds[0], "arguments"}:
            raise InvalidRequest(f'{where} must be a call such as {{"tool": "submit", "arguments": {{}}}}')
        arguments = entry.get("arguments", {})
        if not isinstance(arguments, dict):
            raise InvalidRequest(f"{where}: field 'arguments' must be an object")
        return cls(kinds[0], entry[kinds[0]], arguments)

    def as_json(self) -> dict[str, Any]:
        return {self.kind: self.name, "arguments": dict(self.arguments)}


@dataclass(frozen=True)
class TaskForm:
    """How an environment takes tasks that it does not list: in one variable, as JSON of a schema."""

    variable: str
    schema: Mapping[str, Any]
    expressions: str = ""
    """The field with calculations, of which a later one may hold the value of an earlier one."""

    @classmethod
    def read(cls, told: Any) -> tuple[TaskForm, Mapping[str, Any]]:
        """From the answer of `task_form`, with the instance's own task in that form."""
        if not isinstance(told, dict) or not isinstance(told.get("variable"), str) or not told["variable"]:
            raise InvalidRequest("task_form must return an object with the name of a 'variable'")
        schema, content, expressions = told.get("schema"), told.get("task"), told.get("expressions", "")
        if not isinstance(schema, dict) or not isinstance(content, dict) or not isinstance(expressions, str):
            raise InvalidRequest(
                "task_form: 'schema' and 'task' must be objects, and 'expressions' a field's name"
            )
        return cls(told["variable"], schema, expressions), content


@dataclass(frozen=True)
class Proposal:
    """A task that may be kept: what the instance is given, and where it comes from."""

    task: Task
    source: str
    parent: str | None
    draw: int
    """Which draw of the source it is, from 0."""
    content: Mapping[str, Any]
    """What makes it this task and no other; compared with that of others."""
    gold: tuple[GoldCall, ...] = ()
    """The reference solution, where the source gives one."""

    @property
    def structure(self) -> str:
        return structure_of(self.content)


@dataclass(frozen=True)
class BadProposal:
    """A draw that gave no task, and why."""

    reason: str


class ProposalSource(Protocol):
    """Suggests tasks, the same ones in the same order for the same seed."""

    def proposals(self) -> AsyncIterator[Proposal | BadProposal]: ...

    def described(self) -> dict[str, Any]:
        """What decides what it suggests, for the identity of a run."""
        ...


def structure_of(content: Mapping[str, Any]) -> str:
    """A hash that is equal for tasks of the same content, however their texts are spaced."""
    return hashlib.sha256(json.dumps(_plain(content), sort_keys=True).encode()).hexdigest()


def _plain(value: Any) -> Any:
    if isinstance(value, dict | Mapping):
        return {name: _plain(one) for name, one in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(one) for one in value]
    return " ".join(value.split()).casefold() if isinstance(value, str) else value


def of_form(form: TaskForm, content: Mapping[str, Any], source: str, parent: str | None, draw: int) -> Proposal:
    """A task in the environment's own form."""
    variables = {form.variable: json.dumps(content, ensure_ascii=False, sort_keys=True)}
    return Proposal(Task(_id(source, parent, content), variables, split=SPLIT), source, parent, draw, content)


def of_variables(
    task: Task, source: str, parent: str | None, draw: int, gold: Sequence[GoldCall] = ()
) -> Proposal:
    """A task that its variables, and what the agent is told, make."""
    content = {
        "variables": dict(task.variables),
        "datasource": task.datasource,
        "told": {name: value for name, value in task.told.items() if name in ("instruction", "system")},
    }
    named = Task(_id(source, parent, content), task.variables, task.datasource, task.split or SPLIT, task.told)
    return Proposal(named, source, parent, draw, content, tuple(gold))


def _id(source: str, parent: str | None, content: Mapping[str, Any]) -> str:
    """Named after what it is made of, so that the same task has the same id in every set."""
    legal = re.sub(r"[^A-Za-z0-9._-]", "-", parent)[:40] + "-" if parent else ""
    return f"{source}-{legal}{structure_of(content)[:10]}"
