"""New tasks for `gsm-tools`, made from templates and by mutation, checked, and played by a simple agent.

    python -m aenv.examples.synthesis --count 8 --out tasks

Nothing is downloaded, and no model is asked: the environment's own reference solution checks every task.
"""

from __future__ import annotations

import json
import re
from importlib.resources import files
from pathlib import Path
from typing import Any

from aenv import Environment
from aenv.rollouts.agents import Function
from aenv.rollouts.synthesis import (
    Solver,
    SynthesisOptions,
    TaskSet,
    from_mutations,
    from_templates,
    place_of,
    synthesize,
)
from aenv.rollouts.task_instances import InstanceSource

TEMPLATES: list[dict[str, Any]] = [
    {
        "id": "beds",
        "parameters": {
            "who": ["Ada", "Luca", "Mina", "Yusuf"],
            "rows": {"range": [3, 9]},
            "plants": {"range": [4, 12]},
            "eaten": {"range": [2, 30]},
            "left": "rows * plants - eaten",
        },
        "where": ["left > 5"],
        "task": {
            "text": "{who} plants {rows} rows of {plants} leeks. Snails eat {eaten} of them. How many are left?",
            "steps": ["{rows} * {plants}", "{rows * plants} - {eaten}"],
        },
    },
    {
        "id": "ferry",
        "parameters": {"cars": {"range": [10, 60, 2]}, "price": [4, 5.5, 7.5], "bikes": {"range": [3, 40]}},
        "task": {
            "text": "A ferry takes {cars} cars for {price} euros each, and {bikes} bicycles for 1 euro each. How "
            "many euros is that in all?",
            "steps": ["{cars} * {price}", "{cars * price} + {bikes}"],
        },
    },
]


async def add_up(env: Environment, task: dict[str, Any]) -> None:
    """Add all numbers of the problem: a weak agent, so that easy tasks can be told from the others."""
    numbers = re.findall(r"\d+(?:\.\d+)?", task["instruction"])
    total = await env.call_tool("calculate", {"expression": " + ".join(numbers) or "0"})
    await env.call_tool("submit_answer", {"answer": total.text})


def _written(path: Path) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(f"{json.dumps(one)}\n" for one in TEMPLATES))
    return path


SETS = ("templates", "mutations")


def set_file(name: str) -> str:
    """The file of a set in the folder of all."""
    return f"{name}-set.jsonl"


async def make(count: int, seed: int, out: Path) -> dict[str, TaskSet]:
    """Two task sets of `count` tasks each, as files in the folder `out`."""
    recipes = dict(zip(SETS, (from_templates(_written(out / "templates.jsonl")), from_mutations()), strict=True))
    made: dict[str, TaskSet] = {}
    folder = Path(str(files("aenv.envs") / "gsm_tools"))
    async with place_of(folder, InstanceSource("", variables={"GSM_COUNT": "6"})) as place:
        for name, recipe in recipes.items():
            options = SynthesisOptions(count, seed, out=out / set_file(name))
            made[name] = await synthesize(place, recipe, options, solver=Solver(Function("add_up", add_up)))
    return made
