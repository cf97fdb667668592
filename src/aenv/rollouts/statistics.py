"""What many results say together: counts, the pass rate with its interval, the mean reward."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

OUTCOMES = ("pass", "fail", "invalid", "error")
_Z = 1.959963984540054  # of 95 %


@dataclass(frozen=True)
class Summary:
    """Results of some tasks. What is invalid or broken off has not passed, and counts as a task."""

    counts: Mapping[str, int]
    mean_reward: float | None
    cost: float | None

    @property
    def tasks(self) -> int:
        return sum(self.counts.values())

    @property
    def pass_rate(self) -> float:
        return self.counts["pass"] / self.tasks if self.tasks else 0.0

    @property
    def interval(self) -> tuple[float, float]:
        return wilson(self.counts["pass"], self.tasks)


def summary(results: Iterable[Mapping[str, Any]]) -> Summary:
    """The results as one; the mean is that of all that have a number."""
    known = list(results)
    numbers = [float(one["reward"]) for one in known if one.get("reward") is not None]
    costs = [float(one["cost"]) for one in known if one.get("cost") is not None]
    return Summary(
        {outcome: sum(one.get("outcome") == outcome for one in known) for outcome in OUTCOMES},
        math.fsum(numbers) / len(numbers) if numbers else None,
        math.fsum(costs) if costs else None,
    )


def wilson(passed: int, tasks: int) -> tuple[float, float]:
    """The 95 % interval of a rate by Wilson's score: honest also for few tasks, and at 0 and 1."""
    if tasks == 0:
        return 0.0, 1.0
    rate, z2 = passed / tasks, _Z * _Z
    centre = (rate + z2 / (2 * tasks)) / (1 + z2 / tasks)
    half = _Z * math.sqrt(rate * (1 - rate) / tasks + z2 / (4 * tasks * tasks)) / (1 + z2 / tasks)
    low, high = max(0.0, centre - half), min(1.0, centre + half)
    # At the ends the interval holds the rate itself, which rounding might take away.
    return (0.0 if passed == 0 else low), (1.0 if passed == tasks else high)
