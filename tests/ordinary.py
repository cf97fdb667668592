"""An ordinary user for tests that run as root: an id that nobody has, with an interpreter and packages of its own.

The interpreter is a copy that belongs to this user, as those of pyenv, uv and conda do: what an instance could do
to it, it could do to theirs.
"""

from __future__ import annotations

import functools
import importlib.metadata
import os
import pwd
import re
import shutil
import subprocess
import sys
import sysconfig
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest

import aenv

_NAME = f"python{sys.version_info.major}.{sys.version_info.minor}"
_UNUSED = ("test", "tests", "site-packages", "dist-packages", "__pycache__", "idlelib", "tkinter", "config-*")


@dataclass(frozen=True)
class OrdinaryUser:
    """Somebody without rights."""

    id: int
    folder: Path
    """Theirs; all that is below it may be read by everybody."""
    python: Path

    @property
    def home(self) -> Path:
        return self.folder / "home"

    def command(self, *command: str) -> list[str]:
        """`command` so that this user runs it, with few variables and the same pid."""
        become = ["setpriv", "--reuid", str(self.id), "--regid", str(self.id), "--clear-groups"]
        path = f"{self.python.parent}:/usr/local/bin:/usr/bin:/bin"
        return [*become, "env", "-i", f"HOME={self.home}", f"PATH={path}", "LANG=C.UTF-8", *command]

    def make_folder(self, name: str, mode: int = 0o755) -> Path:
        """A new folder of theirs."""
        folder = Path(tempfile.mkdtemp(prefix=f"{name}-", dir=self.folder))
        self.give(folder)
        folder.chmod(mode)
        return folder

    def give(self, path: Path) -> None:
        """Make a file, or a folder with all that is in it, theirs."""
        for place in (path, *path.rglob("*")):
            os.chown(place, self.id, self.id, follow_symlinks=False)


@contextmanager
def ordinary_user() -> Iterator[OrdinaryUser]:
    """A user for as long as the block lasts; skips where nobody can become one."""
    if os.geteuid() != 0:
        pytest.skip("only root can become another user")
    # Not pytest's own folder, which others may not enter; and short, because sockets are below it.
    with tempfile.TemporaryDirectory(prefix="aenv-user-") as name:
        folder = Path(name)
        folder.chmod(0o755)
        user = OrdinaryUser(_unused_id(), folder, folder / "python" / "bin" / "python3")
        _copy_interpreter(user)
        user.home.mkdir()
        user.give(folder)
        yield user


def _unused_id() -> int:
    used = {entry.pw_uid for entry in pwd.getpwall()}
    owners = {int(uid) for uid in re.findall(r"^Uid:\t(\d+)", _statuses(), re.MULTILINE)}
    return next(id for id in range(61000, 65000) if id not in used | owners)


def _statuses() -> str:
    texts = []
    for path in Path("/proc").glob("[0-9]*/status"):
        try:
            texts.append(path.read_text())
        except OSError:  # it has ended
            continue
    return "\n".join(texts)


def _copy_interpreter(user: OrdinaryUser) -> None:
    """The first interpreter of our version that works as a copy, with the packages that we need."""
    target = user.python.parent.parent
    tried = []
    for program, library in _interpreters():
        shutil.rmtree(target, ignore_errors=True)
        shutil.copytree(library, target / "lib" / _NAME, ignore=shutil.ignore_patterns(*_UNUSED))
        user.python.parent.mkdir()
        shutil.copy(program, user.python)
        site = "import site, sys; print([p for p in site.getsitepackages() if _NAME in p][-1])"
        said = subprocess.run(
            user.command(str(user.python), "-c", site.replace("_NAME", repr(_NAME))),
            capture_output=True,
            text=True,
        )
        if said.returncode == 0 and said.stdout.startswith(str(target)):
            _copy_packages(Path(said.stdout.strip()))
            return
        tried.append(f"{program}: {said.stderr.strip()[-300:] or said.stdout.strip()}")
    message = f"no {_NAME} here works as a copy ({'; '.join(tried)}); install the system's {_NAME}"
    pytest.fail(message) if os.environ.get("CI") == "true" else pytest.skip(message)


def _interpreters() -> Iterator[tuple[Path, Path]]:
    """Programs with their libraries. One with a shared library looks for the latter where it was built."""
    if not sysconfig.get_config_var("Py_ENABLE_SHARED"):
        yield Path(sys.executable).resolve(), Path(sysconfig.get_path("stdlib"))
    system = Path("/usr/bin") / _NAME
    if system.exists():
        yield system, Path("/usr/lib") / _NAME


def _copy_packages(site: Path) -> None:
    site.mkdir(parents=True, exist_ok=True)
    shutil.copytree(Path(aenv.__file__).parent, site / "aenv", ignore=shutil.ignore_patterns("__pycache__"))
    for name in _required("aenvironment"):
        package = importlib.metadata.distribution(name)
        for file in package.files or ():
            if ".." not in file.parts and "__pycache__" not in file.parts and file.suffix != ".pyi":
                place = site / file
                place.parent.mkdir(parents=True, exist_ok=True)
                shutil.copy(str(package.locate_file(file)), place)


@functools.cache
def _required(name: str) -> tuple[str, ...]:
    """The distributions that this one needs to run here, without itself, and without `uv`, which is large."""
    found: dict[str, None] = {}
    waiting = [name]
    while waiting:
        for line in importlib.metadata.requires(waiting.pop()) or ():
            needed = re.split(r"[^A-Za-z0-9._-]", line, maxsplit=1)[0].lower()
            if "extra ==" in line or needed in found or needed == "uv":
                continue
            try:
                importlib.metadata.distribution(needed)
            except importlib.metadata.PackageNotFoundError:  # for another platform or version
                continue
            found[needed] = None
            waiting.append(needed)
    return tuple(found)
