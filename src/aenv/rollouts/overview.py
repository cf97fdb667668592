"""A file of results for people: a row for each task, with all its attempts."""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from .attempts import by_task
from .results import RolloutResult

HEADERS = ("Task", "Attempts", "Judged", "Mean reward", "Outcomes", "Steps", "Seconds")


@dataclass(frozen=True)
class TaskRow:
    """A task. Rewards are of judged attempts; steps and seconds are means of the attempts that tell them."""

    task: str
    attempts: int
    judged: int
    mean_reward: float | None
    outcomes: Mapping[str, int]
    steps: float | None
    seconds: float | None

    @property
    def told_outcomes(self) -> str:
        """Such as "2 pass, 1 timeout"."""
        return ", ".join(f"{count} {name}" for name, count in self.outcomes.items())

    @property
    def cells(self) -> tuple[str, ...]:
        """Below HEADERS."""
        numbers = (_told(self.mean_reward, ".3f"), self.told_outcomes, _told(self.steps, ".4g"))
        return (self.task, str(self.attempts), str(self.judged), *numbers, _told(self.seconds, ".1f"))


def rows(found: Sequence[RolloutResult]) -> list[TaskRow]:
    """A row for each task: the best first, those that were not judged last, and equal ones by their name."""
    return sorted((_row(task, attempts) for task, attempts in by_task(found).items()), key=_place)


def heading(found: Sequence[RolloutResult]) -> str:
    """Whose results they are: the environment, the agent and its model."""
    run = found[0].run
    return ", ".join(part for part in (run.environment, run.agent, run.model) if part)


def _row(task: str, attempts: Sequence[RolloutResult]) -> TaskRow:
    rewards = [one.reward for one in attempts if one.is_judged]
    outcomes = Counter(_outcome(one) for one in attempts)
    means = [_mean(one.steps for one in attempts), _mean(one.timings.whole for one in attempts)]
    return TaskRow(task, len(attempts), len(rewards), _mean(rewards), dict(sorted(outcomes.items())), *means)


def _outcome(result: RolloutResult) -> str:
    if not result.is_judged:
        return str(result.outcome)
    return "pass" if result.passed else "fail"


def _place(row: TaskRow) -> tuple[bool, float, list[tuple[int, str]]]:
    """Numbers within a name count as such: t2 stands before t10."""
    parts = [(int(part), "") if part.isdecimal() else (-1, part) for part in re.split(r"(\d{1,18})", row.task)]
    return row.mean_reward is None, -(row.mean_reward or 0.0), parts


def _mean(values: Iterable[Any]) -> float | None:
    numbers = [float(value) for value in values if isinstance(value, int | float)]
    return math.fsum(numbers) / len(numbers) if numbers else None


def _told(value: float | None, form: str) -> str:
    return "-" if value is None else format(value, form)
