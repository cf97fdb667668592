"""Ready agents: the real packages and programs of others play tasks; what their model says is scripted.

Their stand-ins are in tests/test_ready_agents.py. OpenHands wants Python 3.12.
"""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.gateways import Gateway
from tests.integrations import frameworks
from tests.integrations.conftest import Run

ROOT = str(frameworks.ROOT)


def check(found: dict[str, Any]) -> None:
    assert found["outcome"] == "reward", found["reason"]
    assert found["calls"] == ["read_problem", "submit_answer"]
    assert found["answers"][1] == "noted: 42"
    assert (found["exchanges"], found["unrecorded"], found["keys"]) == ([True] * 3, [], [True])


async def test_smolagents_calls_the_tools_of_the_environment(run: Run) -> None:
    found = json.loads(await run("ready_smolagents", "ready_agent.py", ROOT, "smolagents"))
    check(found)
    assert found["tools"] == ["calculate", "final_answer", "read_problem", "submit_answer"]


@pytest.mark.timeout(400)  # its import alone takes half a minute on a busy machine
async def test_openhands_calls_the_tools_of_the_environment_and_has_none_that_act(run: Run) -> None:
    found = json.loads((await run("ready_openhands", "ready_agent.py", ROOT, "openhands")).splitlines()[-1])
    check(found)
    assert found["tools"] == ["calculate", "finish", "read_problem", "submit_answer", "think"]


async def test_commands_of_mini_swe_agent_run_in_the_instance(run: Run) -> None:
    found = json.loads(await run("ready_mini_swe_agent", "ready_agent.py", ROOT, "mini-swe-agent"))
    assert found["calls"] == ["execute_command"] * 2
    assert json.loads(found["answers"][0]) == {"output": ["solved\n", True], "returncode": 0}
    assert (found["exchanges"], found["unrecorded"], found["tools"]) == ([True] * 2, [], ["bash"])
    assert (found["outcome"], found["reason"]) == (
        "env_error",  # the environment has no reward
        "no reward 'function' in this environment; it has none",
    )


@pytest.mark.parametrize(("agent", "program"), [("claude-code", "claude"), ("codex", "codex")])
async def test_a_program_calls_the_tools_of_the_environment_and_has_none_of_its_own(
    gateway: Gateway, tmp_path: Path, pytestconfig: pytest.Config, agent: str, program: str
) -> None:
    programs = frameworks.node_programs(program, pytestconfig)
    url = f"http://127.0.0.1:{gateway.address.port}"
    path = f"{programs}:{os.environ['PATH']}"
    source = frameworks.PROGRAMS / "ready_agent.py"
    python = Path(sys.executable)
    printed = await frameworks.run(python, source, ROOT, agent, cwd=tmp_path, AENV_SYSTEM_URL=url, PATH=path)
    found = json.loads(printed)
    check(found)
    acting = {"Bash", "Edit", "Write", "Read", "shell", "exec_command", "apply_patch", "view_image"}
    assert not acting & {*found["tools"]}
