"""Tasks: what an environment's `list_tasks` says, and which of them are meant.

docs/tasks.md has the whole contract. Not here: playing them (`episodes.py`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from difflib import get_close_matches
from pathlib import Path
from typing import Any

from ..base.errors import InvalidRequest, NotFound


@dataclass(frozen=True)
class Task:
    """One task: an instance for it is created with these variables and this datasource."""

    id: str
    variables: Mapping[str, str] = field(default_factory=dict)
    datasource: str = ""
    split: str = ""


@dataclass(frozen=True)
class TaskSelection:
    """Which tasks were asked for: ids or files of them, a split, at most so many."""

    tasks: Sequence[str] = ()
    split: str = ""
    limit: int | None = None

    @property
    def is_everything(self) -> bool:
        return not self.tasks and not self.split and self.limit is None


def read(listed: Any) -> list[Task]:
    """The tasks in the answer of `list_tasks`; InvalidRequest names the entry and the field that is wrong."""
    if not isinstance(listed, list):
        raise InvalidRequest(f"list_tasks must return a list, and returned {_kind(listed)}")
    tasks = [_task(f"list_tasks()[{index}]", entry) for index, entry in enumerate(listed)]
    seen: set[str] = set()
    for task in tasks:
        if task.id in seen:
            raise InvalidRequest(f"list_tasks names the task {task.id!r} twice; ids are unique")
        seen.add(task.id)
    return tasks


def _task(where: str, entry: Any) -> Task:
    if not isinstance(entry, dict):
        raise InvalidRequest(f'{where} must be an object such as {{"id": "1", "variables": {{}}}}')
    id, variables = entry.get("id"), entry.get("variables", {})
    if not isinstance(id, str) or not id or not id.isprintable():
        raise InvalidRequest(f"{where}.id must be a text of printable characters, and is {id!r}")
    if not isinstance(variables, dict) or not all(isinstance(value, str) for value in variables.values()):
        raise InvalidRequest(f"{where}.variables must be an object whose values are texts")
    for name in ("datasource", "split"):
        if not isinstance(entry.get(name, ""), str):
            raise InvalidRequest(f"{where}.{name} must be a text")
    return Task(id, variables, entry.get("datasource", ""), entry.get("split", ""))


def _kind(value: Any) -> str:
    return "nothing" if value is None else f"a {type(value).__name__}"


def chosen(tasks: Sequence[Task], wanted: TaskSelection) -> list[Task]:
    """Those of `tasks` that are wanted, in the order in which they were asked for."""
    known = {task.id: task for task in tasks}
    found: dict[str, Task] = {}
    for id in (id for text in wanted.tasks for id in _ids(text, known)):
        if id not in known:
            near = get_close_matches(id, known, n=3) or list(known)[:3]
            raise NotFound(f"no task {id!r}; there are {', '.join(map(repr, near))} and more")
        found[id] = known[id]
    return list(found.values() if wanted.tasks else tasks)[: wanted.limit]


def _ids(text: str, known: Mapping[str, Task]) -> list[str]:
    """`a,b`, or the lines of a file of that name; an id is itself, also when it has a comma."""
    if text in known:
        return [text]
    if _is_file(text):
        lines = (line.strip() for line in Path(text).read_text(encoding="utf-8").splitlines())
        return [line for line in lines if line and not line.startswith("#")]
    return [id.strip() for id in text.split(",") if id.strip()]


def _is_file(text: str) -> bool:
    try:
        return Path(text).is_file()
    except (OSError, ValueError):  # longer than a name can be, or with a zero character: a list of ids
        return False
