"""Virtual environments of other people's packages: made once, under `.venvs/`, for tests and benchmarks.

A folder's name carries a hash of what is in it, so a changed requirement is another folder.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import subprocess
import sys
from pathlib import Path

import pytest

REQUIREMENTS = {
    "published": ["aenvironment==0.1.7"],
    "mcp1": ["mcp==1.30.*"],
    "mcp2": ["mcp==2.3.*"],
    # With httptools, so that our runtime can serve a FastMCP server there.
    "fastmcp2": ["fastmcp==2.14.*", "httptools"],
    "fastmcp4": ["fastmcp>=4,<5", "httptools"],
    "a2a0": ["a2a-sdk[http-server]==0.3.*", "uvicorn"],
    "a2a1": ["a2a-sdk[http-server]>=1.3,<2", "uvicorn"],
    "agents": ["openai-agents>=0.24,<1", "httptools"],
    "models": ["openai>=2,<3", "anthropic>=0.40,<1"],
    # With what our package needs, which is found beside it.
    "datasets": ["datasets>=4", "pyarrow>=16", "pydantic>=2.11", "httptools"],
}

_FOLDER = Path(__file__).resolve().parent.parent / ".venvs"


class Unavailable(Exception):
    """The packages could not be installed: most likely the package index cannot be reached."""


def judge(name: str) -> Path:
    """The Python of the environment `name`; without it the test is skipped, or fails with CI=true."""
    try:
        return create(name)
    except Unavailable as error:
        if os.environ.get("CI") == "true":
            pytest.fail(str(error))
        pytest.skip(str(error))


def create(name: str) -> Path:
    """The Python of the environment `name`, made now if it is not there. Safe to call from many processes."""
    folder = _FOLDER / f"{name}-{_fingerprint(REQUIREMENTS[name])}"
    python = folder / "bin" / "python"
    complete = folder / "complete"
    if complete.exists():
        return python
    _FOLDER.mkdir(exist_ok=True)
    with (_FOLDER / f"{folder.name}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # released when the file is closed
        if not complete.exists():
            _uv("venv", "--quiet", "--clear", "--python", sys.executable, str(folder))
            # Bytecode now: otherwise the first client to start pays for it, and the benchmark would count it.
            _uv(
                "pip",
                "install",
                "--quiet",
                "--compile-bytecode",
                "--python",
                str(python),
                *REQUIREMENTS[name],
            )
            complete.touch()
    return python


def _fingerprint(requirements: list[str]) -> str:
    text = "\n".join([*requirements, sys.version, sys.base_prefix])
    return hashlib.sha256(text.encode()).hexdigest()[:12]


def _uv(*arguments: str) -> None:
    done = subprocess.run([sys.executable, "-m", "uv", *arguments], capture_output=True, text=True)
    if done.returncode:
        why = done.stderr.strip().splitlines()[-1:] or ["it said nothing"]
        raise Unavailable(f"uv {arguments[0]} failed for {arguments[-1]!r}: {why[0].strip()}")
