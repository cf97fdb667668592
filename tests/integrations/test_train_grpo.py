"""Training for real, shorter than the example's ten minutes: the reward on held-out tasks rises."""

from __future__ import annotations

import json
from pathlib import Path
from xml.etree import ElementTree

import pytest

from tests.integrations.conftest import Run

PROGRAM = "aenv.examples.train_grpo"


@pytest.mark.timeout(900)
async def test_the_reward_on_held_out_tasks_rises_significantly(run: Run, tmp_path: Path) -> None:
    options = ["--minutes", "12", "--seed", "0", "--instances", "32", "--held-out", "200", "--steps", "60"]
    said = await run("train_grpo", PROGRAM, *options, "--out", str(tmp_path / "out"))
    result = json.loads((tmp_path / "out" / "result.json").read_text())
    # The seeds are fixed, and not in which order episodes that run at the same time are drawn for.
    assert result["p_value"] < 0.01
    assert result["after"] > result["before"] + 0.1
    steps = len(result["curve"])
    assert 20 < steps <= 60  # as many as twelve minutes beside other tests allow
    assert (result["held_out_tasks"], result["rollouts_lost"]) == (200, 0)
    assert result["rollouts"] == steps * 32 * 8
    assert 0 < result["environment_share"] < 1
    assert result["seconds"] > result["training_seconds"] > 0
    assert ElementTree.parse(tmp_path / "out" / "curve.svg").getroot().tag.endswith("svg")
    assert "held-out reward" in said


async def test_a_run_without_time_for_a_step_says_so_and_fails(run: Run, tmp_path: Path) -> None:
    options = ("--minutes", "0.01", "--instances", "4", "--held-out", "4", "--warm-steps", "1")
    with pytest.raises(AssertionError, match=r"train_grpo: no time is left for a step of training.*--minutes 2"):
        await run("train_grpo", PROGRAM, *options, "--out", str(tmp_path / "out"))
    assert [*(tmp_path / "out").iterdir()] == []


@pytest.mark.long  # it reads and unpacks 98 MB, and computes with 134 million numbers
@pytest.mark.timeout(900)
async def test_smollm2_speaks_with_instances_and_takes_a_step(run: Run, tmp_path: Path) -> None:
    options = (
        "--model smollm2 --minutes 10 --instances 4 --tasks 1 --group 4 --batch 4 --held-out 4 --warm-steps 2"
    )
    await run("smollm2", PROGRAM, *options.split(), "--steps", "1", "--out", str(tmp_path / "out"))
    result = json.loads((tmp_path / "out" / "result.json").read_text())
    assert (result["model"], result["rollouts"], len(result["curve"])) == ("smollm2-135m", 4, 1)
    assert result["parameters"] > 130_000_000
