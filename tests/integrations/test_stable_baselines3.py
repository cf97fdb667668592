"""Stable-Baselines3: its checker, and a real run of PPO on instances, which learns: the example."""

from __future__ import annotations

import math
import re
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.gateways import Gateway, running_gateway
from tests.integrations.conftest import LINE, Run


@pytest.fixture
async def gateway(tmp_path: Path) -> AsyncIterator[Gateway]:
    async with running_gateway(tmp_path / "home", LINE) as running:
        yield running


async def test_an_environment_with_numbers_passes_its_checker(run: Run) -> None:
    await run("stable_baselines3", "sb3_check.py")


@pytest.mark.timeout(400)
async def test_ppo_learns_on_instances_over_the_wire(run: Run) -> None:
    said = await run("stable_baselines3", "aenv.examples.trainers.stable_baselines3")
    lines = [
        re.fullmatch(r"(before|after): +mean reward (\S+) ± (\S+) in 80 episodes", line)
        for line in said.splitlines()
    ]
    (old, old_error), (new, new_error) = [(float(line[2]), float(line[3])) for line in lines if line]
    assert [line[1] for line in lines if line] == ["before", "after"]
    # By how many standard errors the second mean is above the first: Welch's statistic.
    assert (new - old) / math.sqrt(old_error**2 + new_error**2 + 1e-12) > 4
    assert new > 0.8
