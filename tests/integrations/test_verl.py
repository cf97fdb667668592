"""verl: its loop of tool calls plays a task, and its tools call those of an environment."""

from __future__ import annotations

import json

import pytest

from tests.integrations.conftest import Run


@pytest.mark.timeout(600)
async def test_the_agent_loop_plays_a_task_and_ends_with_the_environments_reward(run: Run) -> None:
    said = json.loads((await run("verl", "verl_loop.py")).splitlines()[-1])
    loops = said["loops"]
    # Four signs were tried on a problem of one step: one of them is right.
    assert sorted(loop.pop("reward") for loop in loops) == [0.0, 0.0, 0.0, 1.0]
    assert loops == [{"asked": 2, "calls": 2, "heard_calls": 0, "log_probabilities": True}] * 4
    assert said["tool"] == {"text": "42", "score": 0.0, "seen": {"is_error": False, "done": False}, "reward": 0.0}
    every = ["string", "boolean", "integer", "number", "array", "object", "null"]
    assert said["types"] == {
        "place": "object",
        "other": ["object", "null"],
        "colour": "string",
        "either": ["integer", "string"],
        "any": every,
    }
