"""Tasks: what an environment's `list_tasks` says, and which of them are meant.

docs/tasks.md has the whole contract. Not here: playing them (`episodes.py`).
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from difflib import get_close_matches
from pathlib import Path
from typing import Any

from ..base.errors import InvalidRequest, NotFound
from . import bounded_json


@dataclass(frozen=True)
class Task:
    """One task: an instance for it is created with these variables and this datasource."""

    id: str
    variables: Mapping[str, str] = field(default_factory=dict)
    datasource: str = ""
    split: str = ""
    told: Mapping[str, Any] = field(default_factory=dict)
    """What the agent is told in place of what `get_task` says; only tasks of a task file have it."""

    @property
    def digest(self) -> str:
        """Of all that makes it the same task again."""
        text = json.dumps([dict(self.variables), self.datasource, dict(self.told)], sort_keys=True, default=str)
        return hashlib.sha256(text.encode("utf-8", "backslashreplace")).hexdigest()

    @classmethod
    def read(cls, entry: Any, where: str = "the task") -> Task:
        """From the object of a task file. InvalidRequest names the field that is wrong."""
        task = _task(where, entry)
        unknown = next((name for name in entry if name not in FIELDS), None)
        if unknown is not None:
            near = get_close_matches(unknown, FIELDS, n=1)
            hint = f"did you mean {near[0]!r}?" if near else f"the fields are {', '.join(FIELDS)}"
            raise InvalidRequest(f"{where}: field {unknown!r} is not known; {hint}")
        for name in ("instruction", "system"):
            if not isinstance(entry.get(name, ""), str):
                raise InvalidRequest(f"{where}: field {name!r} must be a text")
        most = entry.get("max_steps", 1)
        if not isinstance(most, int) or isinstance(most, bool) or most < 1:
            raise InvalidRequest(f"{where}: field 'max_steps' must be a whole number above 0, and is {most!r}")
        if not isinstance(entry.get("meta", {}), dict):
            raise InvalidRequest(f"{where}: field 'meta' must be an object")
        return replace(task, told={name: entry[name] for name in TOLD if name in entry})


FIELDS = ("id", "variables", "datasource", "split", "instruction", "system", "max_steps", "meta")
"""Of an object in a task file; `meta` is its writer's own."""
TOLD = ("instruction", "system", "max_steps", "meta")


@dataclass(frozen=True)
class TaskSelection:
    """Which tasks were asked for: ids, files or tasks themselves, a split, at most so many."""

    tasks: Sequence[str | Task] = ()
    split: str = ""
    limit: int | None = None

    @property
    def is_everything(self) -> bool:
        return not self.tasks and not self.split and self.limit is None

    @property
    def is_complete(self) -> bool:
        """Whether it has the tasks themselves, so that the environment need not list any."""
        return bool(self.tasks) and all(isinstance(one, Task) for one in self.tasks)

    @classmethod
    def of(cls, tasks: Any, split: str = "", limit: int | None = None) -> TaskSelection:
        """From what callers give: None for all, a file, or ids, objects and tasks in a list."""
        if limit is not None and limit < 1:
            raise InvalidRequest(f"limit must be above 0, and is {limit}; without it all tasks are meant")
        given = [] if tasks is None else [tasks] if isinstance(tasks, str | Path | dict | Task) else list(tasks)
        if tasks is not None and not given:
            raise InvalidRequest("tasks is empty; leave it out for all tasks")
        found: list[str | Task] = []
        for index, one in enumerate(given):
            if isinstance(one, dict):
                found.append(Task.read(one, f"tasks[{index}]"))
            elif isinstance(one, str | Path):
                found += task_file(one) if str(one).endswith(TASK_FILES) else [str(one)]
            elif isinstance(one, Task):
                found.append(one)
            else:
                raise InvalidRequest(f"tasks[{index}] must be an id, a file or an object, and is {_kind(one)}")
        _check_unique([one.id for one in found if isinstance(one, Task)], "tasks")
        return cls(found, split, limit)


TASK_FILES = (".jsonl", ".ndjson")
TASK_SET = "aenv-task-set/1"
"""The schema of task files with provenance, which `aenv synth` writes: each line has its task as a field."""


def task_file(path: str | Path) -> list[str | Task]:
    """The tasks in a file of JSON objects, one a line. InvalidRequest names the line and the field."""
    tasks: list[str | Task] = []
    is_set = False
    seen: dict[str, int] = {}
    for number, line in enumerate(Path(path).read_bytes().splitlines(), 1):
        where = f"{str(path)!r} line {number}"
        if not line.strip():
            continue
        try:
            entry = bounded_json.loads(line)
        except ValueError as error:
            raise InvalidRequest(f"{where} is not JSON: {error}") from None
        if number == 1 and isinstance(entry, dict) and entry.get("type") == "task-set":
            if entry.get("schema") != TASK_SET:
                raise InvalidRequest(
                    f"{where}: field 'schema' is {entry.get('schema')!r}, and this version reads {TASK_SET!r}"
                )
            is_set = True
            continue
        # The gold beside the task is not read: agents are told what is in a task.
        task = Task.read(entry.get("task") if is_set and isinstance(entry, dict) else entry, where)
        if task.id in seen:
            raise InvalidRequest(
                f"{where} names the task {task.id!r} twice; it is in line {seen[task.id]} already"
            )
        seen[task.id] = number
        tasks.append(task)
    if not tasks:
        raise InvalidRequest(f"{str(path)!r} has no tasks")
    return tasks


def read(listed: Any) -> list[Task]:
    """The tasks in the answer of `list_tasks`; InvalidRequest names the entry and the field that is wrong."""
    if not isinstance(listed, list):
        raise InvalidRequest(f"list_tasks must return a list, and returned {_kind(listed)}")
    tasks = [_task(f"list_tasks()[{index}]", entry) for index, entry in enumerate(listed)]
    _check_unique([task.id for task in tasks], "list_tasks")
    return tasks


def _check_unique(ids: Sequence[str], source: str) -> None:
    seen: set[str] = set()
    for id in ids:
        if id in seen:
            raise InvalidRequest(f"{source} names the task {id!r} twice; ids are unique")
        seen.add(id)


def _task(where: str, entry: Any) -> Task:
    if not isinstance(entry, dict):
        raise InvalidRequest(f'{where} must be an object such as {{"id": "1", "variables": {{}}}}')
    id, variables = entry.get("id"), entry.get("variables", {})
    if not isinstance(id, str) or not id or not id.isprintable():
        raise InvalidRequest(f"{where}: field 'id' must be a text of printable characters, and is {id!r}")
    if not isinstance(variables, dict) or not all(isinstance(value, str) for value in variables.values()):
        raise InvalidRequest(f"{where}: field 'variables' must be an object whose values are texts")
    for name, value in variables.items():
        if not name or "=" in name or "\0" in name + value:  # as Linux has it
            raise InvalidRequest(f"{where}: field 'variables': {name[:100]!r} cannot be a variable of a process")
    for name in ("datasource", "split"):
        if not isinstance(entry.get(name, ""), str):
            raise InvalidRequest(f"{where}: field {name!r} must be a text")
    return Task(id, variables, entry.get("datasource", ""), entry.get("split", ""))


def _kind(value: Any) -> str:
    return "nothing" if value is None else f"a {type(value).__name__}"


def chosen(tasks: Sequence[Task], wanted: TaskSelection) -> list[Task]:
    """Those of `tasks` that are wanted, in the order in which they were asked for."""
    known = {task.id: task for task in tasks}
    found: dict[str, Task] = {}
    for one in wanted.tasks:
        if isinstance(one, Task):
            found[one.id] = one
            continue
        for id in _ids(one, known):
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
