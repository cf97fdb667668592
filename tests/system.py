"""System packages that some tests need.

`scripts/setup --system` installs them: they stand in scripts/lib/system-packages.txt. Without them a test is
skipped, and says so; with CI=true they are installed, or the test fails.
"""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest

_NEED = Path(__file__).resolve().parent.parent / "scripts" / "lib" / "need"


def require(command: str, package: str) -> str:
    """The path of `command`, which the Debian package `package` brings."""
    assert f"{package}\n" in (_NEED.parent / "system-packages.txt").read_text(), f"list {package!r} there"
    path = shutil.which(command)
    if path is None and os.environ.get("CI") != "true":
        pytest.skip(f"{command!r} is missing; install it with: apt-get install -y {package}")
    if path is None:
        done = subprocess.run([_NEED, package, "which", command], capture_output=True, text=True)
        path = shutil.which(command)
        if done.returncode or path is None:
            pytest.fail(f"{command!r} is missing and CI=true: {done.stderr.strip()[-500:]}")
    return path
