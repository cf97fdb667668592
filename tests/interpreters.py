"""Another Python of this host, for tests of instances that ask for one."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from aenv.artifacts.pythons.interpreters import Found, find
from aenv.artifacts.pythons.runtimes import Python, runtime
from aenv.artifacts.pythons.wanted import OLDEST, WantedPython
from aenv.base import settings
from aenv.base.errors import StartFailed

OURS = sys.version_info[:2]


def other_python(home: Path) -> Found:
    """Any that is not ours and that the runtime works with; without one the test is skipped, also in CI."""
    minors = [(3, minor) for minor in range(20, OLDEST[1] - 1, -1) if (3, minor) != OURS]
    found = find(WantedPython("a test asks", tuple(minors)), settings.variables(), home).found
    if found is None:
        pytest.skip("cannot run on this host: it has no other Python of 3.11 or newer on PATH, of pyenv or of uv")
    return found


async def made_runtime(found: Found, home: Path) -> Python:
    """A runtime for it; without a package index, which it takes once, the test is skipped."""
    try:
        return await runtime(found, home)
    except StartFailed as error:
        if "no package index can be reached" in error.message:
            pytest.skip(f"cannot run on this host: {error.message.splitlines()[0]}")
        raise
