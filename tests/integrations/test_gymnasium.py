"""Gymnasium: `make`, its checker, and a vector environment over the wire."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from aenv.cli import scaffold
from tests.gateways import running_gateway
from tests.integrations import frameworks
from tests.integrations.conftest import LINE, Run

CHECK = """
import sys, warnings
sys.path[:0] = [sys.argv[1], sys.argv[1] + "/src"]
import gymnasium
from gymnasium.utils.env_checker import check_env
from play import DIRECTIONS, MapCodec, register
from custom_env import Lake
warnings.simplefilter("error")
env = gymnasium.make(register("fresh@1.0.0"), codec=MapCodec(), in_place=True)
check_env(env.unwrapped, skip_render_check=True)
_, info = env.reset(seed=4)
lake = Lake(int(info["task"].removeprefix("lake-")))
print([env.step(DIRECTIONS.index(direction))[1:3] for direction in lake.way()][-1])
env.close()
"""


async def test_an_environment_passes_gymnasiums_checker_and_gives_the_environments_reward(run: Run) -> None:
    said = json.loads(await run("gymnasium", "gymnasium_single.py"))
    assert said == {
        "task": "1-3",
        "rewards": [0.0, 0.0, 0.0, 1.0],
        "nonsense": ['not a tool call; write one such as {"tool": "NAME", "arguments": {}}', True],
        "unknown": [said["unknown"][0], False],
        "cut_after": 14,
        "cut": [0.0, False],
    }
    assert "fly" in said["unknown"][0]


async def test_a_vector_steps_together_and_begins_again_in_the_step_after_the_last(run: Run) -> None:
    assert json.loads(await run("gymnasium", "gymnasium_vector.py")) == {
        "tasks": [True, True, True],
        "reads_the_same": True,
        "ended": [True, False, False],
        "begun": [False, True, True],
        "begun_ended": [False, True, True],
        "then_read": True,
        "rewards": True,
        "custom": ["aenv/my-env@2.0.0", "my-env@2.0.0"],
    }


async def test_the_program_of_a_new_gym_project_plays_its_lakes(
    tmp_path: Path, pytestconfig: pytest.Config
) -> None:
    python = frameworks.python_of("gymnasium", pytestconfig)
    project = tmp_path / "fresh"
    scaffold.write(project, scaffold.render("gym", "fresh", "1.0.0"))
    async with running_gateway(tmp_path / "home", project) as gateway:
        url = {"AENV_SYSTEM_URL": gateway.address.url}
        said = await frameworks.run(python, project / "play.py", cwd=tmp_path, **url)
        check = tmp_path / "check.py"
        check.write_text(CHECK)
        checked = await frameworks.run(python, check, str(project), cwd=tmp_path, **url)
    lines = [re.fullmatch(r"seed (\d): (\d+) steps, reward (\d\.\d\d)", line) for line in said.splitlines()]
    assert [line[1] for line in lines if line] == list("01234")
    # By the shortest way, through Gymnasium's own checker and the codec of the project.
    assert checked.strip() == "(1.0, True)"


@pytest.mark.parametrize("name", ["gymnasium", "stable_baselines3"])
async def test_a_lost_instance_cuts_its_own_episode_and_no_other(
    tmp_path: Path, pytestconfig: pytest.Config, name: str
) -> None:
    program = frameworks.PROGRAMS / "lost_instance.py"
    python = frameworks.python_of(name, pytestconfig)
    async with running_gateway(tmp_path / "home", LINE) as gateway:
        url = f"http://127.0.0.1:{gateway.address.port}"
        said = json.loads(await frameworks.run(python, program, name, cwd=tmp_path, AENV_SYSTEM_URL=url))
    assert said == {"cut": [True, 1, False, 0.0], "as_before": True, "goes_on": True, "replaced": True}
