"""Frameworks of others, each in a virtual environment of its own that every checkout of this user shares.

What is in one: `requirements/NAME.txt`, and `requirements/NAME.alone.txt` for packages without their dependencies.
`requirements/NAME.override.txt` says what is taken whatever packages ask for: uv's overrides.
Programs of npm packages have folders of their own: `requirements/NAME.npm.txt`.
They are made by `scripts/test --integrations`; other runs use those that are there, and make the light ones.
"""

from __future__ import annotations

import asyncio
import fcntl
import hashlib
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import pytest

from aenv.artifacts.pythons.interpreters import find
from aenv.artifacts.pythons.wanted import WantedPython
from aenv.base import settings

ROOT = Path(__file__).resolve().parent.parent.parent
PROGRAMS = Path(__file__).parent / "programs"
REQUIREMENTS = Path(__file__).parent / "requirements"
OURS = ("httptools>=0.6.4", "pydantic>=2.11")  # what the SDK needs; the gateway runs elsewhere
LIGHT = ("gymnasium", "skyrl", "openai_agents", "pydantic_ai")  # made in seconds, and so in every run
# By pip and not by uv: pip may be configured with indexes and folders of wheels that uv does not read, such as
# those of PyTorch for the CPU alone, which is a tenth as large. All others by uv, which takes a tenth of the time.
BY_PIP = ("areal", "ray", "smollm2", "stable_baselines3", "train_grpo", "trl", "verl")
PYTHONS = {"ready_openhands": (3, 12)}  # where the Python of the tests is too old
MAKE = "--make-integrations"


class NotInstalled(Exception):
    """The packages of a framework cannot be installed; most likely no index has them."""


def folder(name: str, files: Sequence[Path] = ()) -> Path:
    """Where the virtual environment of a framework is, or will be. `files` say what is in it."""
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    told = [*(files or _files(name)), *_override(name)]
    text = "\n".join([*OURS, *(file.read_text() for file in told), sys.version, sys.base_prefix])
    return cache / "aenv" / "integrations" / f"{name}-{hashlib.sha256(text.encode()).hexdigest()[:12]}"


def python_of(name: str, config: pytest.Config) -> Path:
    """The Python that has a framework; the test is skipped where it is not there and this run does not make it."""
    made = folder(name)
    if not (made / "complete").exists():
        if name not in LIGHT and not config.getoption(MAKE):
            pytest.skip(f"framework {name!r} is not installed; run ./scripts/test --integrations")
        try:
            make(name)
        except NotInstalled as error:
            if name in LIGHT and os.environ.get("CI") == "true":
                pytest.fail(str(error))
            pytest.skip(f"framework {name!r} cannot be installed: {error}")
    return made / "bin" / "python"


def make(name: str) -> Path:
    """The virtual environment of a framework, made now if it is not there. Safe to call from many processes."""
    made = folder(name)
    with _locked(made):
        if not (made / "complete").exists():
            try:
                _fill(name, made)
            except BaseException:
                shutil.rmtree(made, ignore_errors=True)
                raise
            (made / "complete").touch()
    return made


def _fill(name: str, made: Path) -> None:
    python = str(made / "bin" / "python")
    _run("uv", "venv", "--quiet", "--clear", "--python", _interpreter(name), str(made))
    listed, *alone = _files(name)
    install = _by_pip if name in BY_PIP else _by_uv
    told = [word for override in _override(name) for word in ("--override", str(override))]
    install(python, "--requirement", str(listed), *told, *OURS)
    for file in alone:
        install(python, "--no-deps", "--requirement", str(file))


def _interpreter(name: str) -> str:
    """The Python that a framework's virtual environment is made with."""
    wanted = PYTHONS.get(name)
    if wanted is None or sys.version_info >= wanted:
        return sys.executable
    asked = WantedPython(f"{name} asks", ((wanted[0], wanted[1]),))
    found = find(asked, settings.variables(), Path.home() / ".aenv").found
    if found is None:
        raise NotInstalled(f"there is no Python {wanted[0]}.{wanted[1]} on PATH, of pyenv or of uv")
    return str(found.executable)


def _by_pip(python: str, *arguments: str) -> None:
    _run("pip", "--python", python, "install", "--quiet", *arguments)


def _by_uv(python: str, *arguments: str) -> None:
    _run("uv", "pip", "install", "--quiet", "--compile-bytecode", "--python", python, *arguments)


def _run(*command: str) -> None:
    done = subprocess.run([sys.executable, "-m", *command], capture_output=True, text=True)
    if done.returncode:
        why = [line for line in done.stderr.splitlines() if line.strip()][-1:] or ["it said nothing"]
        raise NotInstalled(f"{command[0]}: {why[0].strip()}")


def _files(name: str) -> list[Path]:
    alone = REQUIREMENTS / f"{name}.alone.txt"
    return [REQUIREMENTS / f"{name}.txt", *([alone] if alone.exists() else [])]


def _override(name: str) -> list[Path]:
    override = REQUIREMENTS / f"{name}.override.txt"
    return [override] if override.exists() else []


def node_programs(name: str, config: pytest.Config) -> Path:
    """The folder with the programs of `requirements/NAME.npm.txt`; skips as `python_of` does."""
    listed = REQUIREMENTS / f"{name}.npm.txt"
    made = folder(name, [listed])
    programs = made / "node_modules" / ".bin"
    if not (made / "complete").exists():
        if not config.getoption(MAKE):
            pytest.skip(f"program {name!r} is not installed; run ./scripts/test --integrations")
        with _locked(made):
            if not (made / "complete").exists():
                packages = listed.read_text().split()
                command = ["npm", "install", "--no-audit", "--no-fund", "--prefix", made, *packages]
                try:
                    done = subprocess.run(command, capture_output=True, text=True)
                except OSError as error:
                    pytest.skip(f"program {name!r} cannot be installed: {error}")
                if done.returncode or not (programs / name).exists():
                    said = (line for line in done.stderr.splitlines() if line.startswith("npm error"))
                    why = next(said, "npm made no such program")
                    pytest.skip(f"program {name!r} cannot be installed: {why}")
                (made / "complete").touch()
    return programs


@contextmanager
def _locked(made: Path) -> Iterator[None]:
    """Alone among the processes that make this."""
    made.parent.mkdir(parents=True, exist_ok=True)
    with made.with_suffix(".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # released when the file is closed
        yield


async def run(python: Path, program: Path | str, *arguments: str, cwd: Path, **variables: str) -> str:
    """What a program prints, run by a framework's Python; the test fails with its errors where it fails."""
    command = ["-m", program] if isinstance(program, str) else [program]
    kept = {name: os.environ[name] for name in ("PATH", "LANG") if name in os.environ}
    process = await asyncio.create_subprocess_exec(
        python,
        *command,
        *arguments,
        cwd=cwd,
        env={**kept, "HOME": str(cwd), "PYTHONPATH": str(ROOT / "src"), **variables},
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    try:
        stdout, stderr = await process.communicate()
    except BaseException:
        process.kill()
        await process.wait()
        raise
    assert process.returncode == 0, stderr.decode()[-6000:] + stdout.decode()[-2000:]
    return stdout.decode()


if __name__ == "__main__":
    for asked in sys.argv[1:]:
        print(asked, make(asked))
