"""What several attempts at each task say together: pass@k and the mean reward, each with its interval."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from random import Random

from .results import RolloutResult

_RESAMPLES = 1000
_SEED = 0  # the same results have the same interval


@dataclass(frozen=True)
class Measure:
    """A mean over tasks. `interval` is None for fewer than two tasks, `value` for none."""

    name: str
    value: float | None
    interval: tuple[float, float] | None
    left_out: int
    """Tasks with fewer judged attempts than the measure needs."""


def by_task(results: Sequence[RolloutResult]) -> dict[str, list[RolloutResult]]:
    """The results of each task, in the order in which tasks come first."""
    tasks: dict[str, list[RolloutResult]] = {}
    for one in results:
        tasks.setdefault(one.task, []).append(one)
    return tasks


def measures(results: Sequence[RolloutResult]) -> list[Measure]:
    """pass@1 … pass@N for N attempts, then the mean reward. Only judged attempts count."""
    tasks = by_task(results).values()
    judged = [[one for one in attempts if one.is_judged] for attempts in tasks]
    counts = [(len(attempts), sum(bool(one.passed) for one in attempts)) for attempts in judged]
    found = []
    for k in range(1, max((one.number for one in results), default=0) + 1):
        values = [pass_at(k, n, c) for n, c in counts if n >= k]
        found.append(_mean(f"pass@{k}", values, len(tasks)))
    rewards = [math.fsum(one.reward or 0.0 for one in attempts) / len(attempts) for attempts in judged if attempts]
    return [*found, _mean("mean reward", rewards, len(tasks))]


def pass_at(k: int, attempts: int, passed: int) -> float:
    """The chance that one of `k` attempts passes, estimated without bias from `attempts` of which `passed` did."""
    return 1 - math.comb(attempts - passed, k) / math.comb(attempts, k)


def _mean(name: str, values: Sequence[float], tasks: int) -> Measure:
    if not values:
        return Measure(name, None, None, tasks)
    return Measure(name, math.fsum(values) / len(values), bootstrap(values), tasks - len(values))


def bootstrap(values: Sequence[float]) -> tuple[float, float] | None:
    """The 95 % interval of the mean: percentiles of the means of resamples. None for fewer than two values."""
    if len(values) < 2:
        return None
    random = Random(_SEED)
    means = sorted(math.fsum(random.choices(values, k=len(values))) / len(values) for _ in range(_RESAMPLES))
    cut = round(_RESAMPLES * 0.025)
    return means[cut], means[-cut - 1]
