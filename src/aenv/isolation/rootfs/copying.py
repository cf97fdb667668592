"""COPY and ADD: which files go where, as tars for `unpack_program.py`: one for each tree of the root.

One for each, because nothing that is unpacked into a tree, whatever links are in it, may reach another.
"""

from __future__ import annotations

import fnmatch
import hashlib
import io
import os
import posixpath
import stat
import tarfile
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

from ..sandbox.rootfs import Rootfs
from .merged_view import MergedView


@dataclass(frozen=True)
class Item:
    """Something to put at `target`: what `source` is on the host, or a file with this text, or else a folder."""

    target: str
    source: Path | None = None
    text: bytes | None = None


@dataclass(frozen=True)
class Owner:
    """Who gets the copied files; None keeps what the source says."""

    user: int | None = None
    group: int | None = None
    mode: int | None = None


def chosen(view: MergedView, pattern: str, is_ignored: Callable[[str], bool]) -> list[str]:
    """The resolved paths that a source of COPY means."""
    found = ["/"]
    for part in pattern.split("/"):
        if part in ("", ".", ".."):  # docker, too, stays in the folder
            continue
        folders = [view.resolve(path) for path in found]
        if any(char in part for char in "*?["):
            found = [
                posixpath.join(path, name)
                for path in folders
                for name in view.names(path)
                if fnmatch.fnmatchcase(name, part)
            ]
        else:
            found = [posixpath.join(path, part) for path in folders]
    paths = (view.resolve(path) for path in found)
    return [path for path in paths if view.find(path) and (path == "/" or not is_ignored(path))]


def items(view: MergedView, paths: list[str], target: str, is_ignored: Callable[[str], bool]) -> Iterator[Item]:
    """What is copied: files into the folder `target/`, or as `target`; of folders, what is in them."""
    for path in paths:
        place = view.find(path)
        assert place is not None
        if not place.is_dir():
            yield Item(posixpath.join(target, posixpath.basename(path)) if target.endswith("/") else target, place)
            continue
        yield Item(target.rstrip("/") or "/")
        for inner, found in view.walk(path):
            # A folder that is left out may hold what is not; it is made when that comes.
            if not is_ignored(inner):
                yield Item(posixpath.join(target, posixpath.relpath(inner, path)), found)


def pack(wanted: Sequence[Item], root: Rootfs, owner: Owner, new_file: Callable[[], IO[bytes]]) -> PackedFiles:
    """Write tars that bring `wanted` into `root`, each into a new file."""
    return _Packing(root, owner, new_file).pack(wanted)


@dataclass(frozen=True)
class PackedFiles:
    tars: dict[str, IO[bytes]]
    """By the name of their tree."""
    digest: str
    """Of all that matters in them."""


def tree_path(root: Rootfs, path: str) -> tuple[str, str]:
    """The tree that a resolved path belongs to, and where in it: ("usr", "bin"), or ("root", "etc/hosts")."""
    for target in root.system:
        if f"{path}/".startswith(f"{target}/"):
            return target.lstrip("/"), path.removeprefix(target).lstrip("/")
    return "root", path.lstrip("/")


class _Packing:
    def __init__(self, root: Rootfs, owner: Owner, new_file: Callable[[], IO[bytes]]) -> None:
        self._view, self._root, self._owner = MergedView(root), root, owner
        self._new_file = new_file
        self._files: dict[str, IO[bytes]] = {}
        self._tars: dict[str, tarfile.TarFile] = {}
        self._folders: set[str] = set()
        self._digest = hashlib.sha256()

    def pack(self, wanted: Sequence[Item]) -> PackedFiles:
        for item in wanted:
            self._add(item, item.source.lstat() if item.source else None)
        for tree, tar in self._tars.items():
            tar.close()
            self._files[tree].seek(0)
        return PackedFiles(self._files, self._digest.hexdigest())

    def _add(self, item: Item, status: os.stat_result | None) -> None:
        if (status is None and item.text is None) or (status and stat.S_ISDIR(status.st_mode)):
            self._make_folder(self._view.resolve(item.target), status)
            return
        folder, name = posixpath.split(item.target)
        folder = self._view.resolve(folder)
        self._make_folder(folder, None)
        path = posixpath.join(folder, name)
        entry = self._entry(status, 0o644, self._owner.mode)
        if item.source is None or status is None:
            entry.size = len(item.text or b"")
            self._write(path, entry, io.BytesIO(item.text or b""))
        elif stat.S_ISLNK(status.st_mode):
            entry.type, entry.linkname = tarfile.SYMTYPE, os.readlink(item.source)
            self._write(path, entry)
        elif stat.S_ISREG(status.st_mode):
            with open(
                item.source, "rb", opener=lambda path, flags: os.open(path, flags | os.O_NOFOLLOW)
            ) as content:
                entry.size = os.fstat(content.fileno()).st_size
                self._write(path, entry, content)

    def _make_folder(self, path: str, like: os.stat_result | None) -> None:
        """A folder and those above it. One that exists keeps its owner and mode: the new layer lies over it."""
        if path in self._folders:
            return
        self._folders.add(path)
        if path != "/":
            self._make_folder(posixpath.dirname(path), None)
        found = self._view.find(path)
        if found is not None and stat.S_ISDIR(found.lstat().st_mode):
            entry = _dressed(tarfile.TarInfo(), found.lstat())
        else:
            entry = self._entry(like, 0o755, self._owner.mode if like else None)
        entry.type = tarfile.DIRTYPE
        self._write(path, entry)

    def _entry(self, like: os.stat_result | None, default: int, mode: int | None) -> tarfile.TarInfo:
        entry = tarfile.TarInfo()
        entry.mode = default
        if like is not None:
            _dressed(entry, like)
        entry.uid = entry.uid if self._owner.user is None else self._owner.user
        entry.gid = entry.gid if self._owner.group is None else self._owner.group
        entry.mode = entry.mode if mode is None else mode
        return entry

    def _write(self, path: str, entry: tarfile.TarInfo, content: IO[bytes] | None = None) -> None:
        tree, name = tree_path(self._root, path)
        entry.name = name or "."
        if tree not in self._tars:
            self._files[tree] = self._new_file()
            self._tars[tree] = tarfile.TarFile(fileobj=self._files[tree], mode="w", format=tarfile.PAX_FORMAT)
        said = (tree, name, entry.type, entry.mode, entry.uid, entry.gid, entry.linkname, entry.size)
        self._digest.update(repr(said).encode(errors="surrogateescape"))
        self._tars[tree].addfile(entry, _Digested(content, self._digest) if content else None)


class _Digested(io.RawIOBase):
    """A file whose content is digested as it is read."""

    def __init__(self, file: IO[bytes], digest: Any) -> None:
        self._file, self._digest = file, digest

    def read(self, size: int = -1) -> bytes:
        data = self._file.read(size)
        self._digest.update(data)
        return data


def _dressed(entry: tarfile.TarInfo, like: os.stat_result) -> tarfile.TarInfo:
    entry.mode, entry.mtime = stat.S_IMODE(like.st_mode), int(like.st_mtime)
    entry.uid, entry.gid = like.st_uid, like.st_gid
    return entry
