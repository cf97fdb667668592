"""Interpreters of this host: looked for on PATH, and among those of pyenv and uv; nowhere else.

Whatever is found there is run with the rights of this process, so root uses none that another user could change.
"""

from __future__ import annotations

import json
import os
import stat
import subprocess
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from .wanted import Minor, WantedPython, spelled

_PROBE = """
import json, os, sys, sysconfig
print(json.dumps({
    "version": "%d.%d.%d" % sys.version_info[:3],
    "executable": os.path.realpath(sys.executable),
    "prefix": os.path.realpath(sys.base_prefix),
    "library": sysconfig.get_path("stdlib"),
    "platform": "%s %s" % (sys.implementation.cache_tag, sysconfig.get_platform()),
}))
"""
_PASSED_ON = ("PATH", "HOME", "PYENV_ROOT")
_LIMIT = 30.0  # seconds
_SHALLOW = 2  # parts of a path: folders directly below / hold more than one program


@dataclass(frozen=True)
class Found:
    """An interpreter of this host."""

    executable: Path
    version: str
    prefix: Path
    """The folder that everything of it is in."""
    library: Path
    """Its standard library."""
    platform: str
    """What packages for it are compiled for."""

    @property
    def minor(self) -> Minor:
        major, minor, _ = map(int, self.version.split("."))
        return major, minor


@dataclass(frozen=True)
class Search:
    """What came of looking for one."""

    found: Found | None
    refused: tuple[str, ...] = ()
    """Those that would do, and why they are not used."""


def find(asked: WantedPython, variables: Mapping[str, str], home: Path) -> Search:
    """The newest that is accepted and can run our runtime, on a host with these variables and this home of aenv.

    Starts programs, and so takes a while: for a thread.
    """
    refused: list[str] = []
    private = [place for place in (home, Path(variables.get("HOME") or "/root")) if place.is_absolute()]
    for minor in asked.usable:
        for place in _candidates(f"python{spelled(minor)}", variables):
            if why := _others_can_change(place):
                refused.append(f"{place}: {why}")
                continue
            found = _probed(place, minor, variables)
            if found and (why := _unusable(found, private)):
                refused.append(f"{found.executable}: {why}")
            elif found:
                return Search(found)
    return Search(None, tuple(dict.fromkeys(refused)))


def _candidates(name: str, variables: Mapping[str, str]) -> Iterator[Path]:
    """Where they may be, with all links followed: what is checked is what is run."""
    home = Path(variables.get("HOME") or "/nowhere")
    pyenv = Path(variables.get("PYENV_ROOT") or home / ".pyenv") / "versions"
    shared = Path(variables.get("XDG_DATA_HOME") or home / ".local" / "share")
    uv = Path(variables.get("UV_PYTHON_INSTALL_DIR") or shared / "uv" / "python")
    places = [Path(text) / name for text in variables.get("PATH", "").split(os.pathsep)]
    for folder in (pyenv, uv):
        places += sorted(folder.glob(f"*/bin/{name}"), reverse=True) if folder.is_absolute() else ()
    absolute = (os.path.realpath(place) for place in places if place.is_absolute())
    yield from map(Path, dict.fromkeys(path for path in absolute if os.access(path, os.X_OK)))


def _probed(place: Path, minor: Minor, variables: Mapping[str, str]) -> Found | None:
    """What a program says of itself, if it is a Python of that version that works."""
    known = {name: variables[name] for name in _PASSED_ON if name in variables}
    try:
        done = subprocess.run(
            [place, "-I", "-c", _PROBE], capture_output=True, text=True, timeout=_LIMIT, env=known, cwd="/"
        )
        told = json.loads(done.stdout) if done.returncode == 0 else {}
        executable, prefix, library = (Path(told[name]) for name in ("executable", "prefix", "library"))
        found = Found(executable, told["version"], prefix, library, told["platform"])
    except (OSError, subprocess.TimeoutExpired, ValueError, KeyError, TypeError):
        return None  # pyenv's stand-in for a version that is not chosen fails
    return found if found.minor == minor and found.platform.startswith("cpython-") else None


def _unusable(found: Found, private: list[Path]) -> str:
    """Why instances cannot be given this interpreter; empty when they can."""
    if len(found.prefix.parts) <= _SHALLOW and found.prefix != Path("/usr"):
        return f"its prefix {str(found.prefix)!r} holds more than an interpreter"
    if any(place.resolve().is_relative_to(found.prefix) for place in private):
        return f"its prefix {str(found.prefix)!r} holds a home folder"
    # The folders of what is compiled lie in that of the library.
    places = (found.executable, found.prefix, found.library, found.library / "lib-dynload")
    return next((why for place in places if (why := _others_can_change(place))), "")


def _others_can_change(place: Path) -> str:
    """Which user but root could put something else in its place, where that would run as root; empty if none."""
    if os.geteuid() != 0:
        return ""
    for path in (place, *place.parents):
        try:
            status = path.stat()
        except FileNotFoundError:
            continue
        kept = stat.S_ISDIR(status.st_mode) and status.st_mode & stat.S_ISVTX  # only its owner removes a file
        by_group = status.st_mode & stat.S_IWGRP and status.st_gid != 0
        if status.st_uid != 0 or ((status.st_mode & stat.S_IWOTH or by_group) and not kept):
            return f"users other than root can write to {str(path)!r}"
    return ""
