"""Examples run with one command, offline."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from aenv.rollouts import journal
from tests.command_line import environ
from tests.test_embedded import platforms


@pytest.mark.slow  # a platform of its own
@pytest.mark.timeout(300)
def test_two_agents_are_evaluated(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "aenv.examples.eval_agent", "--tasks", "4", "--repeat", "2", "--out", "runs"]
    home = environ(AENV_HOME=str(tmp_path / "home"))
    for _ in range(2):  # the second finds everything judged
        done = subprocess.run(command, cwd=tmp_path, env=home, capture_output=True, text=True)
        assert done.returncode == 0, done.stderr
        assert done.stdout.splitlines()[0].startswith("add_up: 8 of 8 judged, mean reward 0.")
    found = journal.read(tmp_path / "runs" / "add_up.jsonl")
    assert len(found.trajectories) == 8


@pytest.fixture(autouse=True)
def no_platform_is_left(tmp_path: Path) -> Iterator[None]:
    """The platform that an example has started in its home ends with the test."""
    yield
    for process in platforms(tmp_path / "home"):
        process.terminate()
        process.wait()
