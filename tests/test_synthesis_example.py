"""The example of synthesis runs with one command, offline, and makes what it prints."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from tests.command_line import environ

pytestmark = pytest.mark.slow  # an example is run whole


def test_the_example_makes_two_task_sets_and_prints_them(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "aenv.examples.synthesis", "--count", "3", "--out", "tasks"]
    home = environ(AENV_HOME=str(tmp_path / "home"))
    done = subprocess.run(command, cwd=tmp_path, env=home, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert "a weak agent" in done.stdout.splitlines()[0]
    assert "not a task" not in done.stdout
    for name in ("templates", "mutations"):
        header, *lines = map(json.loads, (tmp_path / "tasks" / f"{name}-set.jsonl").read_text().splitlines())
        assert header["kept"] == len(lines) == 3 and header["agent"] == "add_up"
        for one in lines:
            assert f"solved {one['solve_rate']:.0%} of the time: {one['instruction']}" in done.stdout
    again = subprocess.run(command, cwd=tmp_path, env=home, capture_output=True, text=True)
    assert (again.returncode, again.stdout) == (1, "")
    assert (
        again.stderr == "synthesis: 'tasks/templates-set.jsonl' is there already; name another folder with --out\n"
    )
