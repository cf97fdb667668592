"""What many results say together: counts, the pass rate with its interval, the mean reward."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from ..base.outcomes import Outcome
from .results import RolloutResult

_Z = 1.959963984540054  # of 95 %


@dataclass(frozen=True)
class Summary:
    """Results of some tasks. Rates and means are of those that were judged, which `judged` counts."""

    counts: Mapping[str, int]
    passed: int
    mean_reward: float | None
    cost: float | None

    @property
    def tasks(self) -> int:
        return sum(self.counts.values())

    @property
    def judged(self) -> int:
        return self.counts[Outcome.REWARD]

    @property
    def pass_rate(self) -> float | None:
        return self.passed / self.judged if self.judged else None

    @property
    def interval(self) -> tuple[float, float]:
        return wilson(self.passed, self.judged)


def summary(results: Iterable[RolloutResult]) -> Summary:
    """The results as one. Only the outcome "reward" has a number."""
    known = list(results)
    judged = [one for one in known if one.is_judged]
    numbers = [one.reward for one in judged if one.reward is not None]
    costs = [one.cost for one in known if one.cost is not None]
    return Summary(
        {str(outcome): sum(one.outcome is outcome for one in known) for outcome in Outcome},
        sum(bool(one.passed) for one in judged),
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
