"""What a self-check is remembered by: everything that its result depends on, as one digest.

The environment's code, the task, the data, the engine and the kind of machine. Not here: the check itself
(`self_checks.py`).
"""

from __future__ import annotations

import hashlib
import json
import os
import platform
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from ... import __version__
from ...artifacts.pythons.runtimes import Python
from ...base.models import CreateInstance
from ..instances.specs import CheckedRequest

VALIDATION = "AENV_VALIDATION"
"""The variable with which an environment plays its reference solution."""
_MANIFEST = "manifest.json"  # of data that was pulled: the checksum of every file
_BELIEVED = 30.0  # seconds for which a folder is taken to be as it was
_MOST = 1000
# Who asks and for how long changes no verdict.
_NOT_THE_TASK = {
    *("env_name", "ttl", "owner", "labels", "idle_timeout", "wait", "self_check"),
    "environment_variables",
}


class CheckKeys:
    """Digests of tasks. Folders are read at most every half minute; may be used by several threads."""

    def __init__(self, engine: str) -> None:
        kernel = ".".join(platform.release().split(".")[:2])
        self._machine = [engine, platform.machine(), kernel, platform.python_version(), __version__]
        self._folders: dict[Path, tuple[float, str]] = {}

    def key(self, request: CreateInstance, checked: CheckedRequest, python: Python | None, reward: str) -> str:
        """The digest of a task whose reward is asked for as `reward`; reads folders, so call it in a thread."""
        project = checked.project
        variables = {name: value for name, value in request.environment_variables.items() if name != VALIDATION}
        code = project.path.name if project.is_published else self._digest(project.path, _contents)
        data = {name: self._digest(folder, _data) for name, folder in checked.folders.items()}
        data[""] = self._digest(checked.data, _data) if checked.data else ""
        parts = {
            "environment": [code, project.deploy.raw],  # and not its name: it may have another, by an alias
            "task": [request.model_dump(mode="json", exclude=_NOT_THE_TASK), variables, reward],
            "data": data,
            "machine": [*self._machine, *([python.folders[0].name] if python else [])],
        }
        return hashlib.sha256(json.dumps(parts, sort_keys=True, default=str).encode()).hexdigest()

    def _digest(self, folder: Path, parts: Callable[[Path], Iterator[bytes]]) -> str:
        known = self._folders.get(folder)
        if known and known[0] > time.monotonic():
            return known[1]
        digest = hashlib.sha256()
        for part in parts(folder):
            digest.update(len(part).to_bytes(8, "big") + part)
        if len(self._folders) > _MOST:
            self._folders.clear()
        self._folders[folder] = (time.monotonic() + _BELIEVED, digest.hexdigest())
        return digest.hexdigest()


def _contents(folder: Path) -> Iterator[bytes]:
    """Every file of a project, whole."""
    for path in _files(folder):
        if "__pycache__" not in path.parts:
            yield str(path.relative_to(folder)).encode()
            yield path.read_bytes()


def _data(folder: Path) -> Iterator[bytes]:
    """The checksums of data that was pulled; of other folders, which may be large, names, sizes and times."""
    manifest = folder / _MANIFEST
    if manifest.is_file():
        yield manifest.read_bytes()
        return
    for path in _files(folder):
        known = path.lstat()
        yield f"{path.relative_to(folder)}\0{known.st_size}\0{known.st_mtime_ns}".encode()


def _files(folder: Path) -> Iterator[Path]:
    for place, folders, files in os.walk(folder):
        folders.sort()
        yield from (Path(place, name) for name in sorted(files) if not Path(place, name).is_symlink())
