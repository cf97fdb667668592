"""Manifests: which files a folder of data has, and the sha256 of each. `manifest.json` at its root holds one."""

from __future__ import annotations

import hashlib
import json
import os
import stat
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ...base.errors import InvalidRequest, TooLarge
from ...base.limits import spell_bytes
from ..bundles.bundle_paths import checked, refuse_leaving

NAME = "manifest.json"
MAX_BYTES = 64 << 30
MAX_FILES = 500_000
_LEFT_OUT = {".git", "__pycache__"}


@dataclass(frozen=True)
class ManifestEntry:
    """A file, or a link to one."""

    path: str
    size: int = 0
    sha256: str = ""
    executable: bool = False
    link: str = ""

    def dump(self) -> dict[str, Any]:
        return {"path": self.path, **{key: value for key, value in vars(self).items() if value}}


@dataclass(frozen=True)
class Manifest:
    """The files of a folder, by their paths."""

    files: tuple[ManifestEntry, ...]
    revision: str = ""

    @property
    def total_bytes(self) -> int:
        return sum(entry.size for entry in self.files)

    def dump(self) -> bytes:
        value = {"revision": self.revision, "files": [entry.dump() for entry in self.files]}
        return json.dumps(value, indent=1, ensure_ascii=False).encode() + b"\n"


def parse(text: bytes, where: str) -> Manifest:
    """Read one. InvalidRequest names what is wrong, and TooLarge what is too much; no path in it leads out."""
    try:
        value = json.loads(text)
        entries = tuple(_entry(each) for each in value["files"])
        revision = value.get("revision", "")
    except (ValueError, RecursionError, LookupError, TypeError, AttributeError):
        raise InvalidRequest(
            f'{where} is not a manifest: {{"revision": "…", "files": [{{"path": "a", "sha256": "…", "size": 1}}]}}'
        ) from None
    manifest = Manifest(entries, revision if isinstance(revision, str) else "")
    paths = {entry.path for entry in entries}
    above = {parent for path in paths for parent in _above(path)}
    if len(paths) < len(entries) or paths & above or {"", NAME} & paths:
        raise InvalidRequest(f"{where} names a path twice, or one below a file, or itself")
    refuse_leaving({entry.path: entry.link for entry in entries if entry.link})
    if len(entries) > MAX_FILES or manifest.total_bytes > MAX_BYTES:
        raise TooLarge(f"{where} names more than {MAX_FILES} files or {spell_bytes(MAX_BYTES)}")
    return manifest


def _entry(value: dict[str, Any]) -> ManifestEntry:
    match value:
        case {"path": str(path), "link": str(link)} if link:
            return ManifestEntry(checked(path), link=link)
        case {"path": str(path), "sha256": str(digest), "size": int(size)} if size >= 0:
            if len(bytes.fromhex(digest)) == 32:
                return ManifestEntry(checked(path), size, digest.lower(), value.get("executable") is True)
    raise ValueError


def _above(path: str) -> Iterator[str]:
    while path := path.rpartition("/")[0]:
        yield path


def of_folder(folder: Path) -> Manifest:
    """The manifest of a folder as it is. Links that lead out of it are refused."""
    entries = sorted(_found(folder, ""), key=lambda entry: entry.path)
    refuse_leaving({entry.path: entry.link for entry in entries if entry.link})
    return Manifest(tuple(entries))


def _found(folder: Path, prefix: str) -> Iterator[ManifestEntry]:
    for item in os.scandir(folder / prefix):
        path = f"{prefix}{item.name}"
        if item.name in _LEFT_OUT or path == NAME:
            continue
        mode = item.stat(follow_symlinks=False).st_mode
        if stat.S_ISDIR(mode):
            yield from _found(folder, f"{path}/")
        elif stat.S_ISLNK(mode):
            yield ManifestEntry(path, link=os.readlink(item.path))
        elif stat.S_ISREG(mode):
            size = item.stat(follow_symlinks=False).st_size
            yield ManifestEntry(path, size, sha256(Path(item.path)), bool(mode & stat.S_IXUSR))
        else:
            raise InvalidRequest(f"{path!r} in {str(folder)!r} is neither file, folder nor link")


def sha256(file: Path) -> str:
    with file.open("rb") as opened:
        return hashlib.file_digest(opened, "sha256").hexdigest()
