"""Runtimes: what an interpreter needs to run instances, made once for each.

A runtime is a virtual environment `<home>/requirements/<key>` with a copy of our own code, compiled, and the
packages that it loads. It is kept, and let go, as installed requirements are.
"""

from __future__ import annotations

import asyncio
import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from ...base.errors import StartFailed
from ...base.locks import locked
from .. import requirements
from .interpreters import Found
from .wanted import spelled

_OURS = Path(__file__).parents[2]
_LEFT_OUT = {"__pycache__", "attacks", "envs"}  # tasks of built-in environments have their answers there
_COMPILED = (
    "",
    "base",
    "base/config",
    "core",
    "inside",
    "inside/author",
    "inside/runtime",
    "inside/zygote",
    "isolation",
    "isolation/sandbox",
    "server",
)  # what is on the way of an instance


@dataclass(frozen=True)
class Python(requirements.Target):
    """An interpreter of this host, not the one that runs us, and a runtime for it."""

    packages: Path
    """The folder in which it finds the runtime's code and what that loads."""
    folders: tuple[Path, ...]
    """All that an instance must see of the host to run on it: first the runtime's own, below the home."""


async def runtime(found: Found, home: Path, on_line: requirements.OnLine | None = None) -> Python:
    """A runtime for this interpreter, made when it is missing. StartFailed when its packages cannot be had."""
    code = await asyncio.to_thread(lambda: requirements.digest(_code()))
    facts = [str(found.executable), str(found.prefix), found.version, found.platform]
    key = requirements.digest([*facts, *requirements.runtime_pins(), code])
    place = requirements.place(home) / key
    if not requirements.use(place):
        locks = place.parent / "resolved"
        locks.mkdir(parents=True, exist_ok=True, mode=0o700)
        async with locked(locks / f"{key}.lock"):
            if not requirements.use(place):
                await _make(found, place, home, on_line)
    # What lies in /usr every root has, as far as it is needed.
    is_system = found.prefix.is_relative_to("/usr")
    return Python(
        executable=_interpreter(place),
        platform=found.platform,
        packages=_packages(place, found),
        folders=(place,) if is_system else (place, found.prefix),
    )


async def _make(found: Found, place: Path, home: Path, on_line: requirements.OnLine | None) -> None:
    with tempfile.TemporaryDirectory(prefix=".new-", dir=place.parent) as work:
        made = Path(work) / "runtime"
        packages = _packages(made, found)
        await asyncio.to_thread(_make_environment, made, found)
        target = requirements.Target(_interpreter(made), found.platform)
        await requirements.install_runtime(packages, home, target, on_line)
        await asyncio.to_thread(_add_ours, made, packages)
        requirements.mark(made)
        made.rename(place)


def _make_environment(made: Path, found: Found) -> None:
    """What `python -m venv --without-pip` would make; where a system has that in a package of its own, too."""
    (made / "bin").mkdir(parents=True)
    for name in ("python", "python3", f"python{spelled(found.minor)}"):
        (made / "bin" / name).symlink_to(found.executable)
    lines = (f"home = {found.executable.parent}", "include-system-site-packages = false")
    (made / "pyvenv.cfg").write_text("\n".join((*lines, f"version = {found.version}", "")))
    _packages(made, found).mkdir(parents=True)


def _add_ours(made: Path, packages: Path) -> None:
    def left_out(folder: str, names: list[str]) -> set[str]:
        return _LEFT_OUT.intersection(names) if folder == str(_OURS) else {"__pycache__"}

    shutil.copytree(_OURS, packages / "aenv", ignore=left_out)
    folders = [str(packages / "aenv" / name) for name in _COMPILED]
    words = [str(_interpreter(made)), "-I", "-m", "compileall", "-q", "-l", *folders]
    done = subprocess.run(words, capture_output=True, text=True)
    if done.returncode:
        raise StartFailed(f"our own code cannot be compiled for it: {(done.stdout + done.stderr).strip()[-500:]}")
    # Inside a sandbox its owner has no name: every user must be able to read it, whatever our umask is.
    for folder, _, files in os.walk(made):
        os.chmod(folder, 0o755)
        for name in files:
            file = os.path.join(folder, name)
            if not os.path.islink(file):
                os.chmod(file, 0o644)


def _code() -> Iterator[str | bytes]:
    """Our own code, file by file."""
    for folder, folders, files in os.walk(_OURS):
        is_top = folder == str(_OURS)
        folders[:] = sorted(name for name in folders if name not in (_LEFT_OUT if is_top else {"__pycache__"}))
        for name in sorted(files):
            path = Path(folder, name)
            yield str(path.relative_to(_OURS))
            yield path.read_bytes()


def _interpreter(place: Path) -> Path:
    return place / "bin" / "python"


def _packages(place: Path, found: Found) -> Path:
    return place / "lib" / f"python{spelled(found.minor)}" / "site-packages"
