"""The runner of rollouts: what it costs above the bare calls, and many rollouts at once from one process.

A child plays them (`rollout_player.py`), so that what is measured is the runner alone.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from pathlib import Path
from statistics import median
from typing import Any

from .measures import ROUNDS
from .native import COLD, QUIET, gateway
from .processes import ROOT, bare_python
from .report import NO_TARGET, Row

STEPS = 20
FEW = 300
CALLS = 400
RATE = 1_500  # steps a second that CORES make
CORES = 2
ENVIRONMENT = "steps@1.0.0"
CODE = '''"""An environment for rollouts that are scripted."""

from aenv import register_reward, register_tool


@register_tool
def echo(text: str) -> str:
    """Say it back."""
    return text


@register_reward
def judged() -> float:
    """Always full."""
    return 1.0
'''


def rows() -> list[Row]:
    """What a step costs, and a crowd that fits into an ordinary measurement."""
    return [*overhead(), *crowd(FEW)]


def overhead() -> list[Row]:
    """CPU time of the playing process for each step: through the runner with a journal, and with bare calls."""
    with tempfile.TemporaryDirectory() as folder, gateway(_project(folder), *COLD) as crowd:
        found = _played(crowd.url, folder, "overhead", str(CALLS), str(ROUNDS))
    bare, through = found["bare"], found["runner"]
    each = (through - bare) / CALLS * 1e3
    return [
        Row("a step of a rollout, CPU time of the bare call", "ms", None, bare / CALLS * 1e3, "–", True),
        Row("the same, what the runner and its journal add", "ms", None, each, "≤ 1 ms", each <= 1),
    ]


def crowd(count: int) -> list[Row]:
    """So many rollouts at once: all have their instance before the first one makes a step."""
    options = (*COLD, "--max-instances", str(count + 10))
    with tempfile.TemporaryDirectory() as folder, bare_python() as python:
        starts = python()
        with gateway(_project(folder), *options) as crowd:
            found = _played(crowd.url, folder, "crowd", str(crowd.pid), str(count), str(STEPS))
        reference = median([*starts, *python()])
    what = f"{count:,} rollouts of {STEPS} steps at once"
    rate, memory, failed = found["steps"] / found["seconds"], found["bytes"] / count / 1e3, count - found["judged"]
    lost = found["steps"] - found["written"]
    each, most = found["cpu"] / found["steps"] * 1e3, CORES / RATE * 1e3
    is_quiet = reference <= QUIET
    absolute = (f"≥ {RATE:,} /s", rate >= RATE) if is_quiet else (NO_TARGET, True)
    return [
        Row(f"{what}, {'quiet' if is_quiet else 'busy'} machine", "steps/s", None, rate, *absolute),
        Row(f"{what}, CPU time of all for a step", "ms", None, each, f"≤ {most:.2f} ms", each <= most),
        Row(f"{what}: without a reward", "", None, failed, "0", failed == 0),
        Row(f"{what}: steps that the journal lacks", "", None, lost, "0", lost == 0),
        Row(f"{what}, memory of the runner for each", "kB", None, memory, "≤ 100 kB", memory <= 100),
    ]


def _project(folder: str) -> str:
    project = Path(folder, "steps")
    (project / "src").mkdir(parents=True)
    config = {"name": "steps", "version": "1.0.0", "description": "scripted steps"}
    (project / "config.json").write_text(json.dumps(config))
    (project / "src" / "steps_environment.py").write_text(CODE)
    return str(project)


def _played(url: str, folder: str, *words: str) -> dict[str, Any]:
    command = [sys.executable, "-m", "benchmarks.rollout_player", url, str(Path(folder, "run.jsonl")), *words]
    done = subprocess.run(command, cwd=ROOT, stdout=subprocess.PIPE, text=True, check=True)
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return found
