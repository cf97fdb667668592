"""TRL: a class that is made from an environment's tools.

Not here: a step of GRPO, which its example makes (`test_trainer_examples.py`).
"""

from __future__ import annotations

import json

from tests.integrations.conftest import Run


async def test_a_class_has_the_tools_of_an_environment_as_methods(run: Run) -> None:
    said = json.loads((await run("trl", "trl_class.py")).splitlines()[-1])
    assert said["signature"] == "(self, answer: str | int | float) -> str"
    assert said["description"].startswith("Work out an expression exactly")
    parameters = said["parameters"]
    assert (parameters["required"], list(parameters["properties"])) == (["expression"], ["expression"])
    assert parameters["properties"]["expression"]["type"] == "string"
    assert said["difficult"] == "(self, place: dict, other: dict | None, either: int | str) -> str"
