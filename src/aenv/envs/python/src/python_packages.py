"""Packages for the interpreter: those that are there, and wheels from a folder. Nothing is downloaded."""

from __future__ import annotations

import importlib.metadata
import importlib.util
import re
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

from aenv import ToolError

_REQUIREMENT = re.compile(r"([A-Za-z0-9][A-Za-z0-9._-]*)\s*(\[[A-Za-z0-9._, -]*\])?\s*([<>=!~][^;@/]*)?")
_SECONDS = 300
_LAST_LINES = 15


def install(packages: Sequence[str], variables: Mapping[str, str], target: Path) -> dict[str, list[str]]:
    """Install wheels into `target`; what is already there is left as it is."""
    wanted = {package: _parsed(package) for package in packages}
    if not wanted:
        raise ToolError("'packages' is empty; name some, such as [\"numpy\"]")
    there = [package for package, (name, version) in wanted.items() if not version and _version(name)]
    missing = [package for package in wanted if package not in there]
    if missing:
        _install(missing, variables, target)
    return {"installed": missing, "already_there": there}


def _parsed(package: str) -> tuple[str, str]:
    found = _REQUIREMENT.fullmatch(package.strip())
    if not found:
        raise ToolError(f"'packages' holds names and versions, such as 'numpy' or 'numpy>=2', not {package!r}")
    return found[1], found[3] or ""


def _version(name: str) -> str | None:
    try:
        return importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
        return None


def _install(packages: Sequence[str], variables: Mapping[str, str], target: Path) -> None:
    wheels = Path(variables.get("PYTHON_DATA_DIR") or "/data") / "wheels"
    names = ", ".join(packages)
    if not wheels.is_dir():
        raise ToolError(
            f"cannot install {names}: nothing is downloaded here, and there is no folder of wheels; name it in "
            "the requirements.txt of the environment, or create the instance with a datasource that has a folder "
            "'wheels', which is then /data/wheels"
        )
    command = [*_installer(), "--no-index", "--find-links", str(wheels), "--target", str(target)]
    try:
        done = subprocess.run(
            [*command, "--", *packages],
            env={**variables, "NO_COLOR": "1"},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            timeout=_SECONDS,
        )
    except subprocess.TimeoutExpired:
        raise ToolError(f"installing {names} took more than {_SECONDS} s") from None
    if done.returncode:
        words = "\n".join(done.stdout.decode(errors="replace").splitlines()[-_LAST_LINES:])
        raise ToolError(f"cannot install {names} from {str(wheels)!r}:\n{words}")


def _installer() -> list[str]:
    if importlib.util.find_spec("uv"):
        options = ["--offline", "--no-cache", "--quiet", "--python", sys.executable]
        return [sys.executable, "-m", "uv", "pip", "install", *options]
    if importlib.util.find_spec("pip"):
        options = ["--quiet", "--no-cache-dir", "--disable-pip-version-check"]
        return [sys.executable, "-m", "pip", "install", *options]
    raise ToolError("there is neither uv nor pip beside this interpreter; name packages in requirements.txt")
