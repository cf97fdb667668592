"""A domain's files: tasks, splits, policies. Read when first asked for, kept for the process, never changed.

Not here: databases and tools, which each domain has of its own.
"""

from __future__ import annotations

from functools import cache, cached_property
from pathlib import Path
from typing import Any

from tau2_tables import read_json


class DomainFiles:
    """The files that every domain has in its folder."""

    default_split: str | None = "base"

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    @cached_property
    def tasks(self) -> list[dict[str, Any]]:
        tasks: list[dict[str, Any]] = _parsed(self.folder / "tasks.json")
        return tasks

    @cached_property
    def splits(self) -> dict[str, list[str]]:
        splits: dict[str, list[str]] = _parsed(self.folder / "split_tasks.json")
        return splits

    @cached_property
    def by_id(self) -> dict[str, dict[str, Any]]:
        """All tasks. To be asked for ahead: then `find` touches one task only, which a forked process feels."""
        return {task["id"]: task for task in self.tasks}

    @cached_property
    def first(self) -> dict[str, Any]:
        """The first task of the default split."""
        wanted = set(self.splits[self.default_split] if self.default_split else self.by_id)
        return next(task for id, task in self.by_id.items() if id in wanted)

    def find(self, task_id: str) -> dict[str, Any]:
        """One task, by the shortest way. Unknown: KeyError."""
        return self.by_id[task_id] if "by_id" in vars(self) else self.task(task_id)

    def task(self, task_id: str) -> dict[str, Any]:
        """One task. Unknown: KeyError."""
        for task in self.tasks:
            if task["id"] == task_id:
                return task
        raise KeyError(task_id)

    def text(self, name: str) -> str:
        """A text file, as it is: its line ends and its blank lines count."""
        return (self.folder / name).read_bytes().decode()


@cache
def _parsed(path: Path) -> Any:
    """A file's content, which two domains may share (telecom and telecom-workflow do)."""
    return read_json(path)
