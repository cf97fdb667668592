"""Task sets: files of checked tasks with their provenance, which `aenv eval --tasks FILE` plays.

The first line says what the set is; every other one has a task, its gold, and where it comes from. The same inputs
give the same bytes: there is no time and no path in it.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ..task import TASK_SET, Task
from .proposals import GoldCall, Proposal

GENERATOR = "1"
"""Raised whenever the same inputs give other tasks."""


@dataclass(frozen=True)
class KeptTask:
    """A task that was checked, with what the checks found."""

    proposal: Proposal
    instruction: str
    gold: tuple[GoldCall, ...]
    attempts: int = 0
    """Of the agent, that were judged."""
    solve_rate: float | None = None


@dataclass(frozen=True)
class SetOrigin:
    """What a whole set was made from."""

    environment: str
    digest: str | None
    source: str
    model: str | None
    agent: str | None
    agent_model: str | None
    seed: int
    version: str
    forced: bool
    """Whether the environment is for evaluation alone."""
    inputs: str
    """The sha256 of all that decides what is in the set."""


@dataclass
class TaskSet:
    """The tasks that were kept, and how many were dropped why."""

    origin: SetOrigin
    asked: int
    tasks: list[KeptTask] = field(default_factory=list)
    draws: int = 0
    dropped: dict[str, int] = field(default_factory=dict)
    guarded: int = 0
    """Tasks that new ones were kept away from."""
    examples: dict[str, str] = field(default_factory=dict)
    """The first reason for each kind of drop, for people."""

    @property
    def is_complete(self) -> bool:
        return len(self.tasks) >= self.asked

    def drop(self, why: str, example: str = "") -> None:
        self.dropped[why] = self.dropped.get(why, 0) + 1
        if example:
            self.examples.setdefault(why, example)

    def record(self, kept: KeptTask) -> dict[str, Any]:
        """The line of one task."""
        one, origin = kept.proposal, self.origin
        return {
            "task": _written(one.task),
            "instruction": kept.instruction,
            "gold": [call.as_json() for call in kept.gold],
            "source": one.source,
            "parent": one.parent,
            "seed": origin.seed,
            "draw": one.draw,
            "generator": GENERATOR,
            "environment": origin.environment,
            "digest": origin.digest,
            "model": origin.model,
            "agent": origin.agent,
            "solve_rate": kept.solve_rate,
            "attempts": kept.attempts,
        }

    def lines(self) -> bytes:
        return b"".join(_line(self.record(kept)) for kept in self.tasks)

    def header(self) -> dict[str, Any]:
        """The first line of the file."""
        return {
            "type": "task-set",
            "schema": TASK_SET,
            "generator": GENERATOR,
            **vars(self.origin),
            "asked": self.asked,
            "kept": len(self.tasks),
            "draws": self.draws,
            "dropped": dict(sorted(self.dropped.items())),
            "guarded": self.guarded,
            "sha256": hashlib.sha256(self.lines()).hexdigest(),
        }

    def save(self, path: Path) -> None:
        """Write the file, whole or not at all."""
        path.parent.mkdir(parents=True, exist_ok=True)
        part = path.with_name(f"{path.name}.part")
        part.write_bytes(_line(self.header()) + self.lines())
        os.replace(part, path)


def inputs_of(parts: Mapping[str, Any]) -> str:
    """The sha256 of all that decides what is in a set."""
    return hashlib.sha256(json.dumps(parts, sort_keys=True, default=str).encode()).hexdigest()


def _written(task: Task) -> dict[str, Any]:
    fields: dict[str, Any] = {"id": task.id, "variables": dict(task.variables)}
    if task.datasource:
        fields["datasource"] = task.datasource
    return {**fields, "split": task.split, **task.told}


def _line(value: Mapping[str, Any]) -> bytes:
    return json.dumps(value, ensure_ascii=False).encode("utf-8", "backslashreplace") + b"\n"
