"""A project on this machine: the versions that an instance tells, and what they hold.

Paths of a project are only names in `history.json`. Contents are files that are called by their own sha256, so
nothing that an agent writes decides about a path on this machine.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import os
import re
import tempfile
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from ...base import locks, mcp
from ...base.errors import InvalidRequest

_NAME = re.compile(r"[a-z0-9][a-z0-9-]{0,62}")
_DIGEST = re.compile(r"[0-9a-f]{64}")
_MAX_HISTORY_BYTES = 8 << 20
_MAX_VERSIONS = 500
_MAX_CONTENT_BYTES = 1 << 20
_MAX_PROJECT_BYTES = 32 << 20  # of all contents; an instance keeps half of it


class SavedProject:
    """The folder of one project. One process at a time has it (`opened`)."""

    def __init__(self, folder: Path) -> None:
        self._history = folder / "history.json"
        self._contents = folder / "contents"
        self._held = {path.name for path in self._contents.iterdir() if _DIGEST.fullmatch(path.name)}

    def load(self) -> dict[str, Any] | None:
        """The arguments of `load_project`, or None for a project that is new."""
        if not self._history.exists():
            return None
        try:
            said = mcp.loads(self._history.read_bytes())
            digests = _digests(said["versions"])
            contents = {one: base64.b64encode((self._contents / one).read_bytes()).decode() for one in digests}
            return {"shown": said["shown"], "versions": said["versions"], "contents": contents}
        except (ValueError, KeyError, TypeError, OSError) as error:
            raise InvalidRequest(
                f"{str(self._history)!r} cannot be read: {error}; move the folder away to begin anew"
            ) from None

    def lacks(self, history: Mapping[str, Any]) -> list[str]:
        """The digests of a history whose contents are not saved yet. InvalidRequest for what is not a history."""
        versions = history.get("versions")
        if not isinstance(versions, list) or len(versions) > _MAX_VERSIONS:
            raise InvalidRequest("the instance sent no history of its project, or one that is too long")
        return sorted(_digests(versions) - self._held)

    def save(self, history: Mapping[str, Any], contents: Mapping[str, str]) -> None:
        """Keep a history, with what it had that was not saved yet. A crash leaves the one before, or this one."""
        text = mcp.dumps({"shown": history["shown"], "versions": history["versions"]})
        if len(text) > _MAX_HISTORY_BYTES:
            raise InvalidRequest(f"the history of the project has {len(text):,} bytes, which is too large to save")
        new = {digest: _checked(digest, content) for digest, content in contents.items()}
        used = _digests(history["versions"])
        if missing := used - self._held - new.keys():
            raise InvalidRequest(f"the instance did not give {len(missing)} contents of its history")
        total = sum(len(new[one]) if one in new else (self._contents / one).stat().st_size for one in used)
        if total > _MAX_PROJECT_BYTES:
            raise InvalidRequest(f"the versions of the project have {total:,} bytes, which is too much to save")
        for digest in new.keys() & used:
            _replace(self._contents / digest, new[digest])
            self._held.add(digest)
        _replace(self._history, text)
        for digest in self._held - used:
            (self._contents / digest).unlink(missing_ok=True)
        self._held &= used


@contextmanager
def opened(home: Path, name: str) -> Iterator[SavedProject]:
    """The project of this name below `home`. Conflict where another process has it."""
    if not _NAME.fullmatch(name):
        raise InvalidRequest(f"{name!r} is not a name of a project; use letters a-z, digits and '-', 63 at most")
    folder = home / "mini-programs" / name
    folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    (folder / "contents").mkdir(exist_ok=True, mode=0o700)
    refusal = f"the project {name!r} is open in another process; close that, or choose another with --project"
    with locks.alone(folder / "lock", refusal):
        yield SavedProject(folder)


def _digests(versions: Iterable[Any]) -> set[str]:
    found = set()
    for version in versions:
        files = version.get("files") if isinstance(version, dict) else None
        if not isinstance(files, dict):
            raise InvalidRequest("a version in the history of the project has no files")
        found |= set(files.values())
    if wrong := [one for one in found if not (isinstance(one, str) and _DIGEST.fullmatch(one))]:
        raise InvalidRequest(f"the history of the project has {str(wrong[0])[:80]!r}, which is not a sha256")
    return found


def _checked(digest: str, content: str) -> bytes:
    try:
        found = base64.b64decode(content, validate=True)
    except (binascii.Error, TypeError):
        found = b""
    if hashlib.sha256(found).hexdigest() != digest or len(found) > _MAX_CONTENT_BYTES:
        raise InvalidRequest("the instance sent a file that is not the one in its history")
    return found


def _replace(file: Path, content: bytes) -> None:
    descriptor, temporary = tempfile.mkstemp(dir=file.parent, prefix=".new-")
    try:
        with os.fdopen(descriptor, "wb") as written:
            written.write(content)
        os.replace(temporary, file)
    except BaseException:
        os.unlink(temporary)
        raise
