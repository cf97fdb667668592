"""TRL: a step of GRPO with a class that is made from an environment's tools."""

from __future__ import annotations

import json

import pytest

from tests.integrations.conftest import Run


@pytest.mark.timeout(400)
async def test_a_step_of_grpo_calls_tools_of_instances_and_learns_from_their_rewards(run: Run) -> None:
    said = json.loads((await run("trl", "trl_grpo.py", TRL_EXPERIMENTAL_SILENCE="1")).splitlines()[-1])
    # Four signs were tried on a problem of one step: one of them is right.
    assert (said["reward"], said["calls"], said["failures"], said["learned"]) == (0.25, 1.0, 0.0, True)
    assert said["signature"] == "(self, answer: str | int | float) -> str"
    assert said["description"].startswith("Work out an expression exactly")
    parameters = said["parameters"]
    assert (parameters["required"], list(parameters["properties"])) == (["expression"], ["expression"])
    assert parameters["properties"]["expression"]["type"] == "string"
    assert said["difficult"] == "(self, place: dict, other: dict | None, either: int | str) -> str"
