"""Packing: a project folder becomes a bundle, and the same content the same bytes on every machine."""

from __future__ import annotations

import hashlib
import os
import stat
import struct
import tarfile
import zlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, BinaryIO

from ...base.errors import InvalidRequest
from .bundle_paths import checked, refuse_leaving

if TYPE_CHECKING:
    from pathspec import GitIgnoreSpec

    Rules = tuple[tuple[str, GitIgnoreSpec], ...]

_IGNORE_FILES = (".gitignore", ".aenvignore")  # what the second says counts more
_NEVER = {
    *(".git", ".hg", ".svn", ".env", ".venv", "venv", ".DS_Store"),
    *("__pycache__", ".mypy_cache", ".pytest_cache", ".ruff_cache", ".hypothesis", ".tox", ".nox"),
}
_CHUNK = 64 << 10
_BLOCK = 512  # bytes; a tar's own unit


@dataclass(frozen=True)
class Bundle:
    """What was packed."""

    digest: str
    size_bytes: int
    files: dict[str, str]
    """The sha256 of each file's content; of a link, that of where it points."""


def pack(folder: Path, target: Path, instead: Mapping[str, bytes] = MappingProxyType({})) -> Bundle:
    """Write a project folder to the file `target`; on failure leave nothing there.

    Left out is what .gitignore and .aenvignore say, and what is never source: repositories, `.env`
    files, virtual environments, caches. So are empty folders. `instead` has, by path, the content of files that
    are packed in place of the folder's own, or beside them.
    """
    try:
        own = set(_chosen(folder, "", ())) - instead.keys()
        refuse_leaving({path: os.readlink(folder / path) for path in own if (folder / path).is_symlink()})
        with target.open("wb") as file:
            stored = _Stored(file)
            files = {
                path: _add(stored, folder, path) if path in own else _add_text(stored, path, instead[path])
                for path in sorted(own | instead.keys())
            }
            stored.write(bytes(2 * _BLOCK))
            return Bundle(stored.close(), file.tell(), files)
    except OSError as error:
        target.unlink(missing_ok=True)
        raise InvalidRequest(f"cannot pack {str(folder)!r}: {error}") from error
    except BaseException:
        target.unlink(missing_ok=True)
        raise


def _chosen(folder: Path, prefix: str, rules: Rules) -> Iterator[str]:
    """The paths of all files and links that belong to the source."""
    here = folder / prefix
    lines = [line for name in _IGNORE_FILES for line in _lines(here / name)]
    if lines:
        from pathspec import GitIgnoreSpec  # 40 ms, and many projects have no such file

        rules = (*rules, (prefix, GitIgnoreSpec.from_lines(lines)))
    for entry in os.scandir(here):
        path = prefix + entry.name
        is_folder = entry.is_dir(follow_symlinks=False)
        if _is_never_source(entry.name) or _is_ignored(f"{path}/" if is_folder else path, rules):
            continue
        if is_folder:
            if not os.path.exists(os.path.join(entry.path, "pyvenv.cfg")):
                yield from _chosen(folder, f"{path}/", rules)
        elif entry.is_symlink() or entry.is_file():
            yield checked(path)


def _is_never_source(name: str) -> bool:
    return name in _NEVER or name.startswith(".env.") or name.endswith(".pyc")


def _lines(file: Path) -> list[str]:
    return file.read_text("utf-8", "replace").splitlines() if file.is_file() else []


def _is_ignored(path: str, rules: Rules) -> bool:
    """Whether the rules leave a path out: those of the nearest folder that say anything about it."""
    for prefix, spec in reversed(rules):
        verdict = spec.check_file(path.removeprefix(prefix)).include
        if verdict is not None:
            return verdict
    return False


def _add(stored: _Stored, folder: Path, path: str) -> str:
    """Write one file or link; its sha256."""
    entry = tarfile.TarInfo(path)
    file = folder / path
    if file.is_symlink():
        entry.type, entry.linkname, entry.mode = tarfile.SYMTYPE, os.readlink(file), 0o777
        stored.write(_head(entry))
        return hashlib.sha256(entry.linkname.encode()).hexdigest()
    digest = hashlib.sha256()
    with file.open("rb") as content:
        status = os.fstat(content.fileno())
        entry.size, entry.mode = status.st_size, 0o755 if status.st_mode & stat.S_IXUSR else 0o644
        stored.write(_head(entry))
        left = entry.size
        while left:
            chunk = content.read(min(left, _CHUNK))
            if not chunk:
                raise InvalidRequest(f"{path!r} became shorter while it was packed; try again")
            digest.update(chunk)
            stored.write(chunk)
            left -= len(chunk)
    stored.write(bytes(-entry.size % _BLOCK))
    return digest.hexdigest()


def _add_text(stored: _Stored, path: str, content: bytes) -> str:
    entry = tarfile.TarInfo(path)
    entry.size, entry.mode = len(content), 0o644
    stored.write(_head(entry) + content + bytes(-entry.size % _BLOCK))
    return hashlib.sha256(content).hexdigest()


def _head(entry: tarfile.TarInfo) -> bytes:
    return entry.tobuf(tarfile.PAX_FORMAT, "utf-8", "strict")


class _Stored:
    """gzip without compression.

    What deflate makes of the same bytes differs between zlib, zlib-ng and Apple's, and so would the digest.
    """

    _LONGEST = 0xFFFF

    def __init__(self, file: BinaryIO) -> None:
        self._file = file
        self._digest = hashlib.sha256()
        self._pending = b""
        self._checksum = 0
        self._length = 0
        self._emit(b"\x1f\x8b\x08\x00\x00\x00\x00\x00\x00\xff")

    def write(self, data: bytes) -> None:
        self._checksum = zlib.crc32(data, self._checksum)
        self._length += len(data)
        view = memoryview(self._pending + data)
        whole = len(view) - len(view) % self._LONGEST
        for start in range(0, whole, self._LONGEST):
            self._block(view[start : start + self._LONGEST])
        self._pending = bytes(view[whole:])

    def close(self) -> str:
        """Write the end; the sha256 of all."""
        self._block(self._pending, last=True)
        self._emit(struct.pack("<II", self._checksum, self._length & 0xFFFFFFFF))
        return self._digest.hexdigest()

    def _block(self, data: bytes | memoryview, *, last: bool = False) -> None:
        self._emit(struct.pack("<BHH", last, len(data), len(data) ^ 0xFFFF))
        self._emit(data)

    def _emit(self, data: bytes | memoryview) -> None:
        self._digest.update(data)
        self._file.write(data)
