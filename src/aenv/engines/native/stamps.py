"""Stamps of projects: whether their code is still what a zygote has loaded."""

from __future__ import annotations

import contextlib
import hashlib
import os
import time
from dataclasses import dataclass
from pathlib import Path

_KNOWN = 0.1  # seconds for which a stamp is believed: many instances are made at the same time
_LEFT_OUT = ("__pycache__", "node_modules")

Facts = dict[str, tuple[int, int]]
"""When a folder or a file was changed, and its size."""


@dataclass
class _Seen:
    at: float
    facts: Facts
    stamp: str


class Stamps:
    """What the stamps were when they were looked at last."""

    def __init__(self) -> None:
        self._seen: dict[Path, _Seen] = {}

    def of(self, project: Path) -> str:
        """Changes whenever a file of the project's code does. Without a change, no folder is read again."""
        seen = self._seen.get(project)
        if seen is None or (time.monotonic() - seen.at > _KNOWN and not _is_same(seen.facts)):
            facts = _facts(str(project))
            seen = self._seen[project] = _Seen(0.0, facts, _digest(facts))
        seen.at = time.monotonic()
        return seen.stamp


def _is_same(facts: Facts) -> bool:
    try:
        return all(_fact(os.lstat(path)) == fact for path, fact in facts.items())
    except OSError:
        return False


def _fact(status: os.stat_result) -> tuple[int, int]:
    return status.st_mtime_ns, status.st_size


def _facts(project: str) -> Facts:
    found: Facts = {}
    folders = [project]
    while folders:
        folder = folders.pop()
        with contextlib.suppress(OSError), os.scandir(folder) as entries:
            found[folder] = _fact(os.lstat(folder))
            for entry in sorted(entries, key=lambda entry: entry.name):
                if entry.name.startswith(".") or entry.name in _LEFT_OUT:
                    continue
                if entry.is_dir(follow_symlinks=False):
                    folders.append(entry.path)
                elif entry.name.endswith(".py"):
                    found[entry.path] = _fact(entry.stat(follow_symlinks=False))
    return found


def _digest(facts: Facts) -> str:
    """Of the files alone: a folder changes also when something is compiled in it."""
    digest = hashlib.blake2b(digest_size=16)
    for path, (changed, size) in facts.items():
        if path.endswith(".py"):
            digest.update(f"{path}\0{changed}\0{size}\0".encode(errors="replace"))
    return digest.hexdigest()
