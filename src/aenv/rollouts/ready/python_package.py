"""Agents that are Python packages: a small program of ours drives them, run by the Python that runs aenv.

The program reads its job as one object of JSON from its input, and prints its last message as one on its last
line. It imports the package and nothing of aenv.
"""

from __future__ import annotations

import importlib.util
import json
import shlex
import sys
from pathlib import Path
from typing import Any

from .. import bounded_json
from .program_agent import AgentJob, ProgramCall, ProgramFailed, ReadyProgram, missing

_DRIVERS = Path(__file__).parent / "drivers"
# What packages would fetch, send or print at their start.
_QUIET = {
    "LITELLM_LOCAL_MODEL_COST_MAP": "True",
    "OPENHANDS_SUPPRESS_BANNER": "1",
    "MSWEA_SILENT_STARTUP": "1",
    "HF_HUB_OFFLINE": "1",
    "DO_NOT_TRACK": "1",
}


def driven(program: ReadyProgram, package: str, driver: str, job: AgentJob, **more: Any) -> ProgramCall:
    """How the driver of a package is started. NotJudged when this Python does not have the package."""
    try:
        found = importlib.util.find_spec(package)
    except ImportError:  # a package above it is missing, or broken
        found = None
    if found is None:
        raise missing(program, f"{sys.executable!r} has no package {package!r}")
    told = {
        "task": job.task,
        "prompt": job.prompt,
        "model": job.model,
        "max_steps": job.max_steps,
        "model_url": job.model_access.url,
        "model_key": job.model_access.key,
        "tools_url": job.tool_access.url,
        "tools_headers": job.tool_access.headers,
        "folder": str(job.folder),
        **more,
    }
    # Without the variables of Python: the package is found as this Python finds it.
    return ProgramCall([sys.executable, "-I", str(_DRIVERS / driver)], json.dumps(told), _QUIET)


def told_message(program: ReadyProgram, printed: str) -> str:
    """What a driver has told as the last message."""
    lines = printed.strip().splitlines()
    try:
        found = bounded_json.loads(lines[-1]) if lines else None
    except ValueError:
        found = None
    if not isinstance(found, dict):
        raise ProgramFailed(f"agent {program.name!r} gave no last message")
    return str(found.get("message") or "")


def pip_install(*requirements: str, since: tuple[int, int] = (3, 11)) -> str:
    """The command that gives packages to this Python. Of one older than they want, pip would find no version."""
    if sys.version_info < since:
        wanted = ".".join(map(str, since))
        return f"it needs Python {wanted} or newer: install aenv and {' '.join(requirements)} with one"
    return shlex.join([sys.executable, "-m", "pip", "install", *requirements])
