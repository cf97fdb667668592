"""A project: its files in memory, and its versions, of which one is shown.

A change makes a version whose parent is the one that was shown before. Undo shows the parent, redo the newest
child; no version is lost by that. Changes that belong to one wish (`begin`) are one version.
"""

from __future__ import annotations

import base64
import hashlib
import threading
import time
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

from mini_program_paths import cleaned

from aenv import ToolError

MAX_FILES = 200
MAX_FILE_BYTES = 512 << 10
MAX_PROJECT_BYTES = 4 << 20
MAX_VERSIONS = 100
MAX_HISTORY_BYTES = 16 << 20
MAX_SUMMARY = 200
JOINED_WITHIN = 60.0
"""Seconds within which edits of one file by a person are one version."""


@dataclass
class Version:
    """What the files were at a time: their digests by path."""

    number: int
    parent: int | None
    summary: str
    by: str
    at: float
    files: dict[str, str] = field(default_factory=dict)


class Project:
    """The files of one project. Calls come from several threads."""

    def __init__(self) -> None:
        self._lock = threading.RLock()
        self._contents: dict[str, bytes] = {}
        """What any version has, by digest."""
        self._versions = {0: Version(0, None, "the empty project", "", time.time())}
        self._shown = 0
        self._wish: tuple[str, str] | None = None
        self._wished: int | None = None
        """The version that the changes of the wish go into, once there is one."""
        self.revision = 0
        """Grows with every change, so that one who looks knows that there was one."""

    @property
    def files(self) -> dict[str, str]:
        """Digests by path, as they are now."""
        with self._lock:
            return dict(self._versions[self._shown].files)

    def read(self, path: str) -> bytes:
        with self._lock:
            digest = self._versions[self._shown].files.get(path)
            if digest is None:
                raise ToolError(f"there is no file {path!r}; {self._known()}")
            return self._contents[digest]

    def all(self) -> dict[str, bytes]:
        """Every file with its content."""
        with self._lock:
            return {path: self._contents[digest] for path, digest in self.files.items()}

    def listed(self, prefix: str) -> list[dict[str, Any]]:
        with self._lock:
            found = sorted(path for path in self.files if path.startswith(prefix))
            return [{"path": path, "bytes": len(self.read(path))} for path in found]

    def change(
        self,
        written: Mapping[str, bytes],
        removed: set[str],
        summary: str,
        by: str = "agent",
        expected: Mapping[str, str] | None = None,
        joins: bool = False,
    ) -> list[str]:
        """Write and remove files as one change; the paths that differ then. Too large a project stays as it was.

        `expected` has the digests that some files must have, "" for one that must not be there. A change that
        `joins` is part of the version before, where that is of the same kind and of this minute.
        """
        with self._lock:
            before = self._versions[self._shown].files
            for path, digest in (expected or {}).items():
                if before.get(path, "") != digest:
                    raise ToolError(f"{path!r} has changed meanwhile; look at it again before you write it")
            after = {path: digest for path, digest in before.items() if path not in removed}
            new = {path: digest_of(content) for path, content in written.items()}
            after |= new
            _check_names(after)
            sizes = {new[path]: len(content) for path, content in written.items()}
            _check_sizes(
                {path: sizes.get(one) or len(self._contents.get(one, b"")) for path, one in after.items()}
            )
            changed = sorted(path for path in {*before, *after} if before.get(path) != after.get(path))
            if changed:
                self._contents |= {new[path]: content for path, content in written.items()}
                self._commit(after, " ".join(summary.split())[:MAX_SUMMARY], by, joins)
            return changed

    def begin(self, summary: str, by: str) -> None:
        """Let the changes that follow be one version, until the next wish. Without a summary each is its own."""
        with self._lock:
            self._wish = (" ".join(summary.split())[:MAX_SUMMARY], by) if summary else None
            self._wished = None

    def undo(self) -> None:
        with self._lock:
            parent = self._versions[self._shown].parent
            if parent is None or parent not in self._versions:
                raise ToolError("there is no version before this one")
            self.show(parent)

    def redo(self) -> None:
        with self._lock:
            later = [one.number for one in self._versions.values() if one.parent == self._shown]
            if not later:
                raise ToolError("there is no version after this one")
            self.show(max(later))

    def show(self, number: int) -> None:
        """Let the files be as they were in a version."""
        with self._lock:
            if number not in self._versions:
                raise ToolError(
                    f"there is no version {number}; history() has {', '.join(map(str, self._versions))}"
                )
            self._shown, self._wished = number, None
            self.revision += 1

    def history(self) -> dict[str, Any]:
        """All versions, oldest first, which of them is shown, and the sizes of all contents by digest."""
        with self._lock:
            sizes = {digest: len(content) for digest, content in self._contents.items()}
            versions = [asdict(one) for one in self._versions.values()]
            return {"shown": self._shown, "revision": self.revision, "versions": versions, "sizes": sizes}

    def contents(self, digests: list[str]) -> dict[str, str]:
        """Contents in base64, by digest."""
        with self._lock:
            return {
                one: base64.b64encode(self._contents[one]).decode() for one in digests if one in self._contents
            }

    def load(self, shown: int, versions: list[dict[str, Any]], contents: Mapping[str, str]) -> None:
        """Become a project that was saved. ToolError, and no change, for one that cannot be."""
        try:
            loaded = {one["number"]: Version(**one) for one in versions}
            found = [base64.b64decode(content, validate=True) for content in contents.values()]
        except (TypeError, KeyError, ValueError) as error:
            raise ToolError(f"this is not a saved project: {error}") from None
        held = {digest_of(content): content for content in found}
        for version in loaded.values():
            _check_names(version.files)
            if missing := [path for path, digest in version.files.items() if digest not in held]:
                raise ToolError(f"version {version.number} has {missing[0]!r}, whose content is not given")
            _check_sizes({path: len(held[digest]) for path, digest in version.files.items()})
        if shown not in loaded:
            raise ToolError(f"'shown' is {shown}, and there is no such version")
        with self._lock:
            self._versions, self._contents, self._shown = loaded, held, shown
            self._wish = self._wished = None
            self.revision += 1

    def _commit(self, files: dict[str, str], summary: str, by: str, joins: bool) -> None:
        shown = self._versions[self._shown]
        is_same = (shown.summary, shown.by) == (summary, by) and time.time() - shown.at < JOINED_WITHIN
        has_children = any(one.parent == self._shown for one in self._versions.values())
        if self._wished is not None or (joins and is_same and not has_children and not self._wish):
            shown.files, shown.at = files, time.time()
        else:
            summary, by = self._wish or (summary, by)
            number = max(self._versions) + 1
            self._versions[number] = Version(number, self._shown, summary, by, time.time(), files)
            self._shown = number
            self._wished = number if self._wish else None
        self.revision += 1
        self._forget()

    def _forget(self) -> None:
        """Drop the oldest versions that are too many or too large together, and what only they have."""
        while True:
            used = {digest for one in self._versions.values() for digest in one.files.values()}
            self._contents = {digest: content for digest, content in self._contents.items() if digest in used}
            total = sum(map(len, self._contents.values()))
            if len(self._versions) <= MAX_VERSIONS and total <= MAX_HISTORY_BYTES:
                return
            del self._versions[next(number for number in self._versions if number != self._shown)]

    def _known(self) -> str:
        paths = sorted(self.files)
        more = f" and {len(paths) - 10} more" if len(paths) > 10 else ""
        return f"the project has {', '.join(paths[:10])}{more}" if paths else "the project has no files yet"


def digest_of(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


def _check_names(files: Mapping[str, str]) -> None:
    for path in files:
        if cleaned(path) != path:
            raise ToolError(f"{path!r} is not a path of a project; write it as {cleaned(path)!r}")
        parts = path.split("/")
        for depth in range(1, len(parts)):
            if (above := "/".join(parts[:depth])) in files:
                raise ToolError(f"{above!r} is a file, so there can be no {path!r}")


def _check_sizes(sizes: Mapping[str, int]) -> None:
    for path, size in sizes.items():
        if size > MAX_FILE_BYTES:
            raise ToolError(f"{path!r} has {size:,} bytes; a file has at most {MAX_FILE_BYTES:,}")
    if len(sizes) > MAX_FILES:
        raise ToolError(f"the project would have {len(sizes)} files; it has at most {MAX_FILES}")
    if (total := sum(sizes.values())) > MAX_PROJECT_BYTES:
        raise ToolError(f"the project would have {total:,} bytes; it has at most {MAX_PROJECT_BYTES:,}")
