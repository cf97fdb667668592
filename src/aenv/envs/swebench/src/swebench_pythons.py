"""Interpreters: the Python that a record asks for, as far as this machine has it.

Looked for in this order, each by its minor version ("3.9"):

    SWEBENCH_PYTHONS          interpreters, or folders of them, separated by ":"
    pythons/*/ of the data    what `aenv data prepare swebench` has put there
    our own
    PATH                      python3.9
    pyenv                     $PYENV_ROOT/versions, ~/.pyenv/versions
    uv                        $UV_PYTHON_INSTALL_DIR, ~/.local/share/uv/python

Nothing is fetched here.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from swebench_records import BadRecord
from swebench_yaml import YamlError, parse

VARIABLE = "SWEBENCH_PYTHONS"
_PYTHON = re.compile(r"python\s*={1,2}\s*(?P<minor>\d+\.\d+)")
# Without -I, which Python 2 lacks.
_PROBE = (
    "import os, sys; print('%d.%d.%d' % sys.version_info[:3]); "
    "print(os.path.realpath(sys.executable)); print(getattr(sys, 'base_prefix', sys.prefix))"
)


@dataclass(frozen=True)
class Interpreter:
    """A Python of this machine."""

    path: Path
    version: str
    prefix: Path
    """The folder that holds its standard library."""

    @property
    def minor(self) -> str:
        return ".".join(self.version.split(".")[:2])


def dependencies(environment: str) -> list[object]:
    """What an environment.yml lists. BadRecord when it cannot be read."""
    if not environment.strip():
        return []
    try:
        said = parse(environment)
    except YamlError as error:
        raise BadRecord(f"environment.yml cannot be read: {error}") from None
    listed = said.get("dependencies", []) if isinstance(said, dict) else []
    return listed if isinstance(listed, list) else []


def wanted(environment: str) -> str:
    """The minor version that an environment.yml asks for, such as "3.9"; empty when it asks for none."""
    for one in dependencies(environment):
        if isinstance(one, str) and (match := _PYTHON.match(one.strip())):
            return match["minor"]
    return ""


def own() -> Interpreter:
    """Our own interpreter, without the virtual environment that it may be in."""
    version = ".".join(map(str, sys.version_info[:3]))
    return Interpreter(Path(os.path.realpath(sys.executable)), version, Path(sys.base_prefix))


def found(minor: str, folders: Sequence[Path], variables: Mapping[str, str]) -> Interpreter | None:
    """The first interpreter of that version; `folders` are those of the data that may have some."""
    for place in _candidates(minor, folders, variables):
        interpreter = own() if place is None else probed(place, variables)
        if interpreter and interpreter.minor == minor:
            return interpreter
    return None


def probed(place: Path, variables: Mapping[str, str]) -> Interpreter | None:
    """What a program says of itself; None when it is no Python that works."""
    known = {name: variables[name] for name in ("PATH", "HOME", "PYENV_ROOT") if name in variables}
    try:
        done = subprocess.run(
            [str(place), "-E", "-s", "-c", _PROBE], capture_output=True, text=True, timeout=60, env=known
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    lines = done.stdout.splitlines()
    if done.returncode or len(lines) != 3:
        return None  # such as pyenv's stand-in for a version that is not chosen
    return Interpreter(Path(lines[1]), lines[0], Path(lines[2]))


def _candidates(minor: str, folders: Sequence[Path], variables: Mapping[str, str]) -> Iterator[Path | None]:
    """Programs that may be the one; None is our own."""
    name = f"python{minor}"
    for text in filter(None, variables.get(VARIABLE, "").split(os.pathsep)):
        given = Path(text).expanduser()
        yield from _within(given, name) if given.is_dir() else [given]
    for folder in folders:
        yield from _within(folder / "pythons", name)
    yield None
    for text in filter(None, variables.get("PATH", "").split(os.pathsep)):
        yield from _existing(Path(text) / name)
    home = Path(variables.get("HOME") or "/nowhere")
    yield from _within(Path(variables.get("PYENV_ROOT") or home / ".pyenv") / "versions", name)
    shared = Path(variables.get("XDG_DATA_HOME") or home / ".local" / "share")
    yield from _within(Path(variables.get("UV_PYTHON_INSTALL_DIR") or shared / "uv" / "python"), name)


def _within(folder: Path, name: str) -> Iterator[Path]:
    """In a folder of programs, in that of one Python, or in a folder of several."""
    for place in (folder, folder / "bin", *sorted(folder.glob("*/bin"), reverse=True)):
        yield from _existing(place / name)


def _existing(place: Path) -> Iterator[Path]:
    if os.access(place, os.X_OK) and place.is_file():
        yield place
