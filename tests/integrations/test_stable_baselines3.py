"""Stable-Baselines3: a real run of PPO on instances, which learns."""

from __future__ import annotations

import json
import math
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.gateways import Gateway, running_gateway
from tests.integrations.conftest import LINE, Run


@pytest.fixture
async def gateway(tmp_path: Path) -> AsyncIterator[Gateway]:
    async with running_gateway(tmp_path / "home", LINE) as running:
        yield running


@pytest.mark.timeout(400)
async def test_ppo_learns_on_instances_over_the_wire(run: Run) -> None:
    said = json.loads(await run("stable_baselines3", "sb3_ppo.py"))
    before, after = said["before"], said["after"]
    assert len(before) == len(after) == 80
    assert _difference_in_deviations(before, after) > 4
    assert sum(after) / len(after) > 0.8


def _difference_in_deviations(before: list[float], after: list[float]) -> float:
    """By how many standard errors the second mean is above the first: Welch's statistic."""

    def mean_and_error(numbers: list[float]) -> tuple[float, float]:
        mean = math.fsum(numbers) / len(numbers)
        return mean, math.fsum((number - mean) ** 2 for number in numbers) / (len(numbers) - 1) / len(numbers)

    (old, old_error), (new, new_error) = mean_and_error(before), mean_and_error(after)
    return (new - old) / math.sqrt(old_error + new_error + 1e-12)
