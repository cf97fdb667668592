"""Layers: the Python packages that environments require, installed once for all that require the same.

A layer is a folder `<home>/layers/<key>`; the key says which versions of what are in it, for which Python. `uv`
chooses and installs them. What was chosen is remembered, so that asking again needs neither uv nor a network.
Not here: making a layer importable (`runtime/loader.py`).
"""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import importlib.metadata
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
from pathlib import Path
from typing import IO
from urllib.parse import unquote

from .errors import InvalidRequest, StartFailed
from .locks import locked

# What the runtime itself loads: never in a layer, and whoever requires it gets the version that the runtime has.
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

OnLine = Callable[[str], None]


async def layer_for(
    requirements: Path, home: Path, on_line: OnLine | None = None, *, trusted: bool = True
) -> Path | None:
    """The layer for a requirements.txt, made when it is missing; None when nothing is required.

    `on_line` gets what uv says meanwhile. Requirements that are not `trusted` may be names and versions only, and
    come as wheels: nothing of theirs is run or read on the host. On failure nothing is left behind.
    """
    lines = _required(requirements)
    if not trusted and (bad := [number for number, line in lines.items() if not _PLAIN.match(line)]):
        raise InvalidRequest(f"{str(requirements)!r}, line {bad[0]}: only names and versions are allowed here")
    work = _Work(requirements, tuple(lines.values()), _root(home), trusted, on_line)
    return await work.layer() if lines else None


def collect(home: Path, keep: set[str], older_than: float) -> list[str]:
    """Remove the layers that nobody has asked for in the last `older_than` seconds, except `keep`; their keys."""
    root = _root(home)
    removed = []
    for layer in sorted(root.glob("*/")):
        is_work = layer.name.startswith(".")  # of a process that builds or removes one, or was killed meanwhile
        limit = time.time() - (max(older_than, _ABANDONED) if is_work else older_than)
        if layer.name in keep or layer.name == "resolved" or _last_use(layer) > limit:
            continue
        away = root / f".old-{secrets.token_hex(8)}"
        layer.rename(away)
        if _last_use(away) > limit:  # somebody was given it at the last moment
            away.rename(layer)
            continue
        shutil.rmtree(away, ignore_errors=True)
        if not is_work:
            removed.append(layer.name)
    return removed


@dataclass(frozen=True)
class _Work:
    """One question for a layer."""

    requirements: Path
    lines: tuple[str, ...]
    root: Path
    trusted: bool
    on_line: OnLine | None

    async def layer(self) -> Path | None:
        resolved = self.root / "resolved"
        resolved.mkdir(parents=True, exist_ok=True, mode=0o700)
        question = _digest([*self.lines, *_constraints(), _platform(), str(self.trusted)])
        answer = resolved / question
        # What lies in a folder of the project may change, and the requirements remain the same.
        lasting = all(_PLAIN.match(line) or _REMOTE.match(line) for line in self.lines)
        if lasting and answer.exists() and (layer := self._found(answer.read_text())):
            return layer
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
        layer = self.root / self._key(pins)
        try:
            os.utime(layer / _USED)
        except FileNotFoundError:
            return None
        return layer

    def _key(self, pins: str) -> str:
        return _digest([pins, _platform(), *(part for path in self._local(pins) for part in _content(path))])

    def _local(self, pins: str) -> list[Path]:
        """The files and folders of this machine that are to be installed."""
        local = (line for line in pins.splitlines() if not _PLAIN.match(line) and not _REMOTE.match(line))
        spelled = (match[1].partition(" ;")[0].strip() for line in local if (match := _LOCAL.match(line)))
        return [self._folder / unquote(path) for path in spelled]

    async def _resolve(self) -> str:
        with tempfile.TemporaryDirectory(prefix=".new-", dir=self.root) as folder:
            constraints, overrides = Path(folder) / "constraints.txt", Path(folder) / "overrides.txt"
            constraints.write_text("\n".join(_constraints()))
            # Satisfied by what runs, whoever requires it: a marker that never holds takes it out.
            overrides.write_text("aenvironment; python_version < '0'")
            options = ["--constraint", str(constraints), "--override", str(overrides)]
            options += [option for name in RUNTIME_PACKAGES for option in ("--no-emit-package", name)]
            asked = "\n".join(self.lines)
            return await self._uv("compile", "-", "--no-header", "--no-annotate", *options, stdin=asked)

    async def _install(self, pins: str) -> None:
        with tempfile.TemporaryDirectory(prefix=".new-", dir=self.root) as folder:
            target = Path(folder) / "layer"
            # Copies: what an instance changes in its layer must not change uv's cache.
            options = ["--target", str(target), "--no-deps", "--link-mode", "copy", "--compile-bytecode"]
            if any(path.is_dir() for path in self._local(pins)):
                options.append("--refresh")  # or uv takes what it built before, unless pyproject.toml has changed
            await self._uv("install", "-r", "-", *options, stdin=pins)
            (target / _USED).touch()
            with contextlib.suppress(OSError):  # another requirements.txt has led to the same layer meanwhile
                target.rename(self.root / self._key(pins))

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
                raise StartFailed(f"cannot install what {str(self.requirements)!r} requires; uv said:\n{words}")
            answered.seek(0)
            return answered.read().decode()

    def _start(self, arguments: tuple[str, ...], stdin: IO[bytes], stdout: IO[bytes]) -> subprocess.Popen[bytes]:
        wheels_only = [] if self.trusted else ["--only-binary", ":all:"]
        return subprocess.Popen(
            [_find_uv(), "pip", *arguments, "--python", sys.executable, "--color", "never", *wheels_only],
            cwd=self._folder,
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

    @property
    def _folder(self) -> Path:
        """Where uv runs: a stranger's project may bring a configuration for it."""
        return self.requirements.absolute().parent if self.trusted else self.root


def _content(path: Path) -> Iterator[str]:
    """Digests of a file, or of the files of a folder, except what tools have made there."""
    if path.is_file():
        yield _digest([path.read_bytes()])
    for file in sorted(path.rglob("*")):
        parts = file.relative_to(path).parts
        is_made = any(part in _BUILT or part.startswith(".") or part.endswith(".egg-info") for part in parts)
        if file.is_file() and not is_made:
            yield _digest(["/".join(parts), file.read_bytes()])


def _root(home: Path) -> Path:
    return home.expanduser().absolute() / "layers"


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


def _is_ours(line: str) -> bool:
    name = re.match(_NAME, line)
    return name is not None and name[0].lower() == "aenvironment"


def _constraints() -> list[str]:
    """The versions of what the runtime loads."""
    found = []
    for name in RUNTIME_PACKAGES:
        with contextlib.suppress(importlib.metadata.PackageNotFoundError):
            found.append(f"{name}=={importlib.metadata.version(name)}")
    return found


def _platform() -> str:
    return f"{sys.implementation.cache_tag} {sysconfig.get_platform()}"


def _digest(parts: Iterable[str | bytes]) -> str:
    digest = hashlib.sha256()
    for part in parts:
        data = part.encode() if isinstance(part, str) else part
        digest.update(b"%d:" % len(data) + data)
    return digest.hexdigest()


def _find_uv() -> str:
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


def _last_use(layer: Path) -> float:
    with contextlib.suppress(FileNotFoundError):
        return (layer / _USED).stat().st_mtime
    return layer.stat().st_mtime
