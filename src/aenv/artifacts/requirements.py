"""Requirements: the Python packages that environments need, installed once for all that need the same.

They are in a folder `<home>/requirements/<key>`; the key says which versions of what are in it, for which Python.
`uv` chooses and installs them. What was chosen is remembered, so that asking again needs neither uv nor a network.
Not here: making them importable (`inside/runtime/loader.py`).
"""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import importlib.metadata
import logging
import os
import re
import secrets
import shutil
import signal
import subprocess
import sys
import sysconfig
import tempfile
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import IO
from urllib.parse import unquote

from ..base.errors import InvalidRequest, StartFailed
from ..base.locks import locked

# What the runtime itself loads: never installed here. An environment that requires it gets the runtime's version.
RUNTIME_PACKAGES = (
    "annotated-types",
    "httptools",
    "pydantic",
    "pydantic-core",
    "typing-extensions",
    "typing-inspection",
    "uvloop",
)
_NAME = r"[A-Za-z0-9][A-Za-z0-9._-]*"
# A name with extras, versions and a marker; a file that lies here may be called almost the same.
_PLAIN = re.compile(
    rf"(?!\S+\.(whl|zip|gz|bz2|xz|tgz|egg)\b){_NAME}\s*(\[[^]]*\])?\s*\(?([<>=!~][^@/;]*)?(;.*)?\Z"
)
_REMOTE = re.compile(rf"{_NAME}\s*(\[[^]]*\])?\s*@\s*(git\+)?https?://")
_LOCAL = re.compile(rf"(?:-e\s+|{_NAME}\s*(?:\[[^]]*\])?\s*@\s*)?(?:file://)?(.+)")
_BUILT = {"__pycache__", "build", "dist"}
_LAST_LINES = 20
_ABANDONED = 86400.0  # seconds: no build takes a day
_USED = ".used"

_OFFLINE = re.compile(r"error sending request|network was disabled")
_OFFLINE_HINT = (
    "no package index can be reached: connect this host for the first start of the environment, name an index in "
    "reach with UV_DEFAULT_INDEX, or a folder of wheels with UV_FIND_LINKS and UV_OFFLINE=1"
)

# A line of requirements.txt: the environment does what it can without them.
_OPTIONAL = re.compile(r"#[ \t]*aenv:[ \t]*optional[ \t]*")

OnLine = Callable[[str], None]

logger = logging.getLogger("aenv.artifacts.requirements")


@dataclass(frozen=True)
class Target:
    """The Python that packages are installed for."""

    executable: Path
    platform: str
    """What they are compiled for."""


OWN = Target(Path(sys.executable), f"{sys.implementation.cache_tag} {sysconfig.get_platform()}")


async def folder_for(
    requirements: Path,
    home: Path,
    on_line: OnLine | None = None,
    *,
    trusted: bool = True,
    target: Target = OWN,
) -> Path | None:
    """The folder with what a requirements.txt asks for, made when it is missing; None when nothing is required.

    It is None also where no package index can be reached and the file has the line `# aenv: optional`.
    `on_line` gets what uv says meanwhile. Requirements that are not `trusted` may be names and versions only, and
    come as wheels: nothing of theirs is run or read on the host. On failure nothing is left behind.
    """
    lines = _required(requirements)
    if not trusted and (bad := [number for number, line in lines.items() if not _PLAIN.match(line)]):
        raise InvalidRequest(f"{str(requirements)!r}, line {bad[0]}: only names and versions are allowed here")
    # Not in a stranger's project, which may bring a configuration for uv.
    folder = _above(requirements) if trusted else place(home)
    work = _Work(repr(str(requirements)), tuple(lines.values()), place(home), folder, trusted, on_line, target)
    try:
        return await work.folder_of_packages() if lines else None
    except StartFailed as error:
        if _OFFLINE_HINT not in error.message or not _is_optional(requirements):
            raise
        logger.warning("no package index can be reached; %s starts without its packages", work.what)
        return None


async def folder_of(lines: Iterable[str], home: Path, *, what: str, on_line: OnLine | None = None) -> Path | None:
    """The folder of requirements that stand in no file and come from strangers: names and versions, as wheels.

    `what` says in errors who requires them.
    """
    asked = tuple(line for line in lines if not _is_ours(line))
    if bad := [line for line in asked if not _PLAIN.match(line)]:
        raise InvalidRequest(f"{what}: {bad[0]!r} is refused; only names and versions are allowed here")
    work = _Work(what, asked, place(home), place(home), trusted=False, on_line=on_line)
    return await work.folder_of_packages() if asked else None


async def install_runtime(folder: Path, home: Path, target: Target, on_line: OnLine | None = None) -> None:
    """Install what the runtime loads into a folder, for another Python, in the versions that this process has."""
    work = _Work("the runtime", runtime_pins(), place(home), place(home), False, on_line, target)
    await work.install_into(folder, "\n".join(runtime_pins()))


def collect(home: Path, keep: set[str], older_than: float) -> list[str]:
    """Remove the folders that are `unused`; the keys of what is gone."""
    removed = []
    for packages in unused(home, keep, older_than):
        away = packages.with_name(f".old-{secrets.token_hex(8)}")
        packages.rename(away)
        if not _is_old(away, packages.name, older_than):  # an instance was given it at the last moment
            away.rename(packages)
            continue
        shutil.rmtree(away, ignore_errors=True)
        if not packages.name.startswith("."):
            removed.append(packages.name)
    return removed


def unused(home: Path, keep: set[str], older_than: float) -> list[Path]:
    """The folders that no environment has asked for in the last `older_than` seconds, except `keep`."""
    kept = {*keep, "resolved"}
    found = (packages for packages in sorted(place(home).glob("*/")) if packages.name not in kept)
    return [packages for packages in found if _is_old(packages, packages.name, older_than)]


def _is_old(packages: Path, name: str, older_than: float) -> bool:
    """Whether it was not used for so long. With a dot it is work under way, unless that was killed a day ago."""
    least = max(older_than, _ABANDONED) if name.startswith(".") else older_than
    return last_use(packages) <= time.time() - least


def last_use(packages: Path) -> float:
    """When it was last asked for, in seconds since the epoch."""
    with contextlib.suppress(FileNotFoundError):
        return (packages / _USED).stat().st_mtime
    return packages.stat().st_mtime


@dataclass(frozen=True)
class _Work:
    """One request for packages."""

    what: str
    """Who asks, for errors."""
    lines: tuple[str, ...]
    root: Path
    folder: Path
    """Where uv runs, and paths begin."""
    trusted: bool
    on_line: OnLine | None
    target: Target = OWN

    async def folder_of_packages(self) -> Path | None:
        resolved = self.root / "resolved"
        resolved.mkdir(parents=True, exist_ok=True, mode=0o700)
        question = digest([*self.lines, *runtime_pins(), self.target.platform, str(self.trusted)])
        answer = resolved / question
        # What lies in a folder of the project may change, and the requirements remain the same.
        lasting = all(_PLAIN.match(line) or _REMOTE.match(line) for line in self.lines)
        if lasting and answer.exists() and (packages := self._found(answer.read_text())):
            return packages
        async with locked(resolved / f"{question}.lock"):
            if not (lasting and answer.exists()):
                _write(answer, await self._resolve())
            pins = answer.read_text()
            if not pins:
                return None
            if not self._found(pins):
                await self._install(pins)
            return self._found(pins)

    def _found(self, pins: str) -> Path | None:
        packages = self.root / self._key(pins)
        return packages if use(packages) else None

    def _key(self, pins: str) -> str:
        content = (part for path in self._local(pins) for part in _content(path))
        return digest([pins, self.target.platform, *content])

    def _local(self, pins: str) -> list[Path]:
        """The files and folders of this machine that are to be installed."""
        local = (line for line in pins.splitlines() if not _PLAIN.match(line) and not _REMOTE.match(line))
        spelled = (match[1].partition(" ;")[0].strip() for line in local if (match := _LOCAL.match(line)))
        return [self.folder / unquote(path) for path in spelled]

    async def _resolve(self) -> str:
        with tempfile.TemporaryDirectory(prefix=".new-", dir=self.root) as folder:
            constraints, overrides = Path(folder) / "constraints.txt", Path(folder) / "overrides.txt"
            constraints.write_text("\n".join(runtime_pins()))
            # Satisfied by what runs, whichever package requires it: a marker that never holds takes it out.
            overrides.write_text("aenvironment; python_version < '0'")
            options = ["--constraint", str(constraints), "--override", str(overrides)]
            options += [option for name in RUNTIME_PACKAGES for option in ("--no-emit-package", name)]
            asked = "\n".join(self.lines)
            return await self._uv("compile", "-", "--no-header", "--no-annotate", *options, stdin=asked)

    async def _install(self, pins: str) -> None:
        with tempfile.TemporaryDirectory(prefix=".new-", dir=self.root) as folder:
            packages = Path(folder) / "packages"
            # Without it uv takes what it built before, unless pyproject.toml has changed.
            again = ["--refresh"] if any(path.is_dir() for path in self._local(pins)) else []
            await self.install_into(packages, pins, *again)
            mark(packages)
            with contextlib.suppress(OSError):  # another requirements.txt has led to the same versions meanwhile
                packages.rename(self.root / self._key(pins))

    async def install_into(self, folder: Path, pins: str, *more: str) -> None:
        # Copies: what an instance changes there must not change uv's cache.
        options = ["--target", str(folder), "--no-deps", "--link-mode", "copy", "--compile-bytecode", *more]
        await self._uv("install", "-r", "-", *options, stdin=pins)

    async def _uv(self, *arguments: str, stdin: str) -> str:
        """What uv prints. StartFailed with its last words."""
        with tempfile.TemporaryFile() as asked, tempfile.TemporaryFile() as answered:
            asked.write(stdin.encode())
            asked.seek(0)
            process = self._start(arguments, asked, answered)
            try:
                said = await self._listen(process)
                failed = await asyncio.to_thread(process.wait)
            finally:
                if process.poll() is None:
                    os.killpg(process.pid, signal.SIGKILL)  # with the builds that it has started
                    process.wait()
            if failed:
                words = "\n".join(said)
                hint = f"; {_OFFLINE_HINT}" if _OFFLINE.search(words) else ""
                raise StartFailed(f"cannot install what {self.what} requires{hint}; uv said:\n{words}")
            answered.seek(0)
            return answered.read().decode()

    def _start(self, arguments: tuple[str, ...], stdin: IO[bytes], stdout: IO[bytes]) -> subprocess.Popen[bytes]:
        wheels_only = [] if self.trusted else ["--only-binary", ":all:"]
        return subprocess.Popen(
            [find_uv(), "pip", *arguments, "--python", self.target.executable, "--color", "never", *wheels_only],
            cwd=self.folder,
            stdin=stdin,
            stdout=stdout,
            stderr=subprocess.PIPE,
            start_new_session=True,
        )

    async def _listen(self, process: subprocess.Popen[bytes]) -> list[str]:
        """The last lines that it says; all of them go to `on_line`."""
        lines = asyncio.StreamReader(limit=1 << 20)
        protocol = asyncio.StreamReaderProtocol(lines)
        pipe, _ = await asyncio.get_running_loop().connect_read_pipe(lambda: protocol, process.stderr)
        last: deque[str] = deque(maxlen=_LAST_LINES)
        try:
            async for line in lines:
                last.append(line.decode(errors="replace").rstrip())
                if self.on_line:
                    self.on_line(last[-1])
        finally:
            pipe.close()
        return list(last)


def _content(path: Path) -> Iterator[str]:
    """Digests of a file, or of the files of a folder, except what tools have made there."""
    if path.is_file():
        yield digest([path.read_bytes()])
    for file in sorted(path.rglob("*")):
        parts = file.relative_to(path).parts
        is_made = any(part in _BUILT or part.startswith(".") or part.endswith(".egg-info") for part in parts)
        if file.is_file() and not is_made:
            yield digest(["/".join(parts), file.read_bytes()])


def _above(file: Path) -> Path:
    return file.absolute().parent


def place(home: Path) -> Path:
    """Where the requirements of a home are installed.

    Earlier builds called the folder "layers". It is moved, and what runs from there finds it by a link; one that
    cannot be moved, being a link or a mount itself, is used where it is.
    """
    top = home.expanduser().absolute()
    found, before = top / "requirements", top / "layers"
    if not found.exists() and before.is_dir():
        with contextlib.suppress(OSError):  # another process is moving it, too
            if before.is_symlink() or before.is_mount():
                found.symlink_to(before.name)
            else:
                before.rename(found)
                before.symlink_to(found.name)
    return found


def mark(packages: Path) -> None:
    """Say that a new one is whole."""
    (packages / _USED).touch()


def use(packages: Path) -> bool:
    """Whether it is there; if so, it counts as used now."""
    try:
        os.utime(packages / _USED)
    except FileNotFoundError:
        return False
    return True


def _required(requirements: Path) -> dict[int, str]:
    """The lines that ask for something, by their number; without comments, and without ourselves."""
    try:
        text = requirements.read_text()
    except FileNotFoundError:
        return {}
    except UnicodeDecodeError as error:
        raise InvalidRequest(f"{str(requirements)!r} is not text: {error}") from None
    lines = (re.sub(r"(^|\s)#.*", "", line).strip() for line in text.replace("\\\n", " ").split("\n"))
    return {number: line for number, line in enumerate(lines, 1) if line and not _is_ours(line)}


def _is_optional(requirements: Path) -> bool:
    return any(_OPTIONAL.fullmatch(line) for line in requirements.read_text().splitlines())


def _is_ours(line: str) -> bool:
    name = re.match(_NAME, line)
    return name is not None and name[0].lower() == "aenvironment"


@cache  # this process keeps its versions, and reading them would take a third of a create
def runtime_pins() -> tuple[str, ...]:
    """The versions of what the runtime loads."""
    found = []
    for name in RUNTIME_PACKAGES:
        with contextlib.suppress(importlib.metadata.PackageNotFoundError):
            found.append(f"{name}=={importlib.metadata.version(name)}")
    return tuple(found)


def digest(parts: Iterable[str | bytes]) -> str:
    """One name for all of these."""
    found = hashlib.sha256()
    for part in parts:
        data = part.encode() if isinstance(part, str) else part
        found.update(b"%d:" % len(data) + data)
    return found.hexdigest()


def find_uv() -> str:
    """The program uv: on PATH, or of our own package."""
    if found := shutil.which("uv"):
        return found
    try:
        import uv

        return uv.find_uv_bin()
    except (ImportError, FileNotFoundError):
        raise StartFailed("cannot install packages without uv; install it with: pip install uv") from None


def _write(path: Path, text: str) -> None:
    new = path.with_suffix(".new")
    new.write_text(text)
    new.replace(path)
