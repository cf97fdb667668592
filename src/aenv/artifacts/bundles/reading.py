"""Reading: what a bundle holds is checked and counted while it is read, and nothing in it is trusted."""

from __future__ import annotations

import hashlib
import os
import shutil
import stat
import tarfile
import tempfile
import zlib
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, BinaryIO

from ...base import mcp
from ...base.config import FILE_NAME
from ...base.errors import AEnvError, Conflict, InvalidRequest, TooLarge
from ...base.limits import spell_bytes
from .bundle_paths import checked, refuse_leaving

MAX_BYTES = 4 << 30
MAX_FILES = 50_000
"""What a bundle may hold unless the reader says otherwise; folders count like files."""

_CHUNK = 64 << 10  # what fits into a cache is read twice as fast
_BLOCK = 512  # bytes; a tar's own unit
_MAX_HEAD = 256 << 10  # bytes that may stand before the content of one file
_MAX_TEXT = 256 << 10
_MAX_SOURCES = 2 << 20
_READMES = ("README.md", "README.rst", "README.txt", "README", "readme.md")
_REQUIREMENTS = "requirements.txt"


@dataclass(frozen=True)
class Contents:
    """What a bundle holds."""

    config: dict[str, Any]
    readme: str
    requirements: list[str]
    files: dict[str, str]
    """The sha256 of each file's content; of a link, that of where it points."""
    sources: dict[str, str]
    """The text of Python files, as far as they are few and small."""


def inspect(archive: Path, *, max_bytes: int = MAX_BYTES, max_files: int = MAX_FILES) -> Contents:
    """What a bundle holds, by the rules of `unpack` but with nothing written."""
    kept = _KeptTexts()
    top = _read(archive, kept, max_bytes, max_files)
    texts = {path.removeprefix(top): text for path, text in kept.texts.items()}
    requirements = [line.partition(" #")[0].strip() for line in texts.get(_REQUIREMENTS, "").splitlines()]
    return Contents(
        config=_config(texts),
        readme=next((texts[name] for name in _READMES if name in texts), ""),
        requirements=[line for line in requirements if line and not line.startswith("#")],
        files={path.removeprefix(top): digest for path, digest in kept.digests.items()},
        sources={path: text for path, text in texts.items() if path.endswith(".py")},
    )


def unpack(archive: Path, target: Path, *, max_bytes: int = MAX_BYTES, max_files: int = MAX_FILES) -> None:
    """Make the folder `target` of a bundle, whole or not at all. Conflict when it is there already.

    If all lies in one folder with a config.json, as in the archives of published clients, that is the target.
    """
    target.parent.mkdir(parents=True, exist_ok=True)
    work = Path(tempfile.mkdtemp(prefix=f".{target.name[:32]}-", dir=target.parent))
    tree = work / "tree"
    try:
        tree.mkdir()
        written = _Written(tree)
        top = _read(archive, written, max_bytes, max_files)
        written.make_links()
        try:
            (tree / top).rename(target)
        except OSError:
            if target.exists():
                raise Conflict(f"{str(target)!r} exists already; unpack into a new folder") from None
            raise
    finally:
        shutil.rmtree(work)


def _config(texts: Mapping[str, str]) -> dict[str, Any]:
    if FILE_NAME not in texts:
        raise InvalidRequest(f"the bundle has no {FILE_NAME} of at most {spell_bytes(_MAX_TEXT)} at its root")
    try:
        config = mcp.loads(texts[FILE_NAME].encode())
    except ValueError as error:
        raise InvalidRequest(f"{FILE_NAME} in the bundle is not JSON: {error}") from None
    if not isinstance(config, dict):
        raise InvalidRequest(f"{FILE_NAME} in the bundle must hold a JSON object")
    return config


class _KeptTexts:
    """The digests of all files, and the text of the few that say what the bundle is."""

    def __init__(self) -> None:
        self.digests: dict[str, str] = {}
        self.texts: dict[str, str] = {}
        self._sources = 0

    def file(self, path: str, entry: tarfile.TarInfo, chunks: Iterator[bytes]) -> None:
        digest = hashlib.sha256()
        text: list[bytes] | None = [] if self._wants(path, entry.size) else None
        for chunk in chunks:
            digest.update(chunk)
            if text is not None:
                text.append(chunk)
        self.digests[path] = digest.hexdigest()
        if text is not None:
            self.texts[path] = b"".join(text).decode("utf-8", "replace")

    def copy(self, path: str, source: str) -> None:
        self.digests[path] = self.digests[source]

    def link(self, path: str, target: str) -> None:
        self.digests[path] = hashlib.sha256(target.encode("utf-8", "replace")).hexdigest()

    def _wants(self, path: str, size: int) -> bool:
        *folders, name = path.split("/")
        if name.endswith(".py"):
            is_hidden = any(part.startswith((".", "_")) for part in (*folders, name))
            wanted = not is_hidden and size <= _MAX_TEXT // 2 and self._sources + size <= _MAX_SOURCES
            self._sources += size if wanted else 0
            return wanted
        return len(folders) <= 1 and name in (FILE_NAME, _REQUIREMENTS, *_READMES) and size <= _MAX_TEXT


class _Written:
    """The entries as files below a folder; links come last, so that nothing is written through one."""

    def __init__(self, root: Path) -> None:
        self._root = root
        self._links: dict[str, str] = {}

    def file(self, path: str, entry: tarfile.TarInfo, chunks: Iterator[bytes]) -> None:
        mode = 0o755 if entry.mode & stat.S_IXUSR else 0o644
        descriptor = os.open(self._place(path), os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, mode)
        with open(descriptor, "wb") as file:
            for chunk in chunks:
                file.write(chunk)

    def copy(self, path: str, source: str) -> None:
        shutil.copy(self._root / source, self._place(path))

    def link(self, path: str, target: str) -> None:
        self._links[path] = target

    def make_links(self) -> None:
        for path, target in self._links.items():
            self._place(path).symlink_to(target)

    def _place(self, path: str) -> Path:
        place = self._root / path
        place.parent.mkdir(parents=True, exist_ok=True)
        return place


_Sink = _KeptTexts | _Written
"""Where the entries of a bundle go. Their paths are clean, new, and below nothing but folders."""


def _read(archive: Path, sink: _Sink, max_bytes: int, max_files: int) -> str:
    """Hand every entry to `sink`; "top/" if all lie in that folder and it is to be left out, else ""."""
    tree = _Tree(max_bytes, max_files)
    with archive.open("rb") as file, _or_refuse():
        plain = _Plain(file)
        with tarfile.open(fileobj=plain, mode="r|", bufsize=_CHUNK) as tar:  # type: ignore[call-overload]
            while entry := tar.next():
                tar.members.clear()  # which it keeps for access in any order
                _hand_over(tar, entry, tree, sink, plain)
                plain.allow(_MAX_HEAD)
        while plain.read(_CHUNK):  # up to the checksum at the end
            pass
    top = tree.top()
    refuse_leaving({path.removeprefix(top): target for path, target in tree.links.items()})
    return top


def _hand_over(tar: tarfile.TarFile, entry: tarfile.TarInfo, tree: _Tree, sink: _Sink, plain: _Plain) -> None:
    path = checked(entry.name)
    if entry.isdir():
        return  # made where a file needs it
    if entry.issym():
        tree.add_link(path, entry.linkname)
        sink.link(path, entry.linkname)
    elif entry.islnk():
        source = checked(entry.linkname)
        tree.add_file(path, tree.size_of(source, path))
        sink.copy(path, source)
    elif entry.isreg() and not entry.issparse():
        tree.add_file(path, entry.size)
        plain.allow(entry.size + _BLOCK)
        sink.file(path, entry, _chunks(tar, entry))
    else:
        raise InvalidRequest(f"{path!r} in the bundle is neither file, folder nor link; leave it out")


def _chunks(tar: tarfile.TarFile, entry: tarfile.TarInfo) -> Iterator[bytes]:
    content = tar.extractfile(entry)
    while content and (chunk := content.read(_CHUNK)):
        yield chunk


@dataclass
class _Tree:
    """What has been read so far, and the limits that it is held to."""

    max_bytes: int
    max_files: int
    sizes: dict[str, int] = field(default_factory=dict)
    links: dict[str, str] = field(default_factory=dict)
    folders: set[str] = field(default_factory=set)
    total: int = 0

    def add_file(self, path: str, size: int) -> None:
        self._place(path)
        self.sizes[path] = size
        self.total += size
        if self.total > self.max_bytes:
            raise TooLarge(f"the bundle unpacks to more than {spell_bytes(self.max_bytes)}")

    def add_link(self, path: str, target: str) -> None:
        self._place(path)
        self.links[path] = target

    def size_of(self, source: str, path: str) -> int:
        """The size of the file that the hard link `path` stands for."""
        if source not in self.sizes:
            raise InvalidRequest(f"{path!r} in the bundle is a link to {source!r}, which is not a file before it")
        return self.sizes[source]

    def top(self) -> str:
        names = {path.partition("/")[0] for path in (*self.sizes, *self.links)}
        top = f"{names.pop()}/" if len(names) == 1 else ""
        return top if f"{top}{FILE_NAME}" in self.sizes else ""

    def _place(self, path: str) -> None:
        if not path or path in self.sizes or path in self.links or path in self.folders:
            raise InvalidRequest(f"{path!r} is in the bundle twice; pack it anew")
        parent = path.rpartition("/")[0]
        while parent and parent not in self.folders:
            if parent in self.sizes or parent in self.links:
                raise InvalidRequest(f"{path!r} in the bundle lies below {parent!r}, which is not a folder")
            self.folders.add(parent)
            parent = parent.rpartition("/")[0]
        if len(self.sizes) + len(self.links) + len(self.folders) >= self.max_files:
            raise TooLarge(f"the bundle holds more than {self.max_files} files and folders")


class _Plain:
    """The bytes inside a gzip file, of which no more come out than were allowed.

    A little file may expand without end, and what stands between two files may claim any length.
    """

    def __init__(self, file: BinaryIO) -> None:
        self._file = file
        # Not `gzip`: it reads a head byte by byte, and one file may have millions of them.
        self._inflate = zlib.decompressobj(wbits=31)
        self._given = 0
        self.allow(_MAX_HEAD)

    def allow(self, size: int) -> None:
        self._allowed = self._given + size + _CHUNK  # tarfile reads ahead

    def read(self, size: int) -> bytes:
        while not self._inflate.eof:
            packed = self._inflate.unconsumed_tail or self._file.read(_CHUNK)
            if not packed:
                raise InvalidRequest("the bundle is not complete: it ends in the middle")
            data = self._inflate.decompress(packed, size)
            if data:
                self._given += len(data)
                if self._given > self._allowed:
                    raise TooLarge("the bundle holds far more than its files; pack it anew")
                return data
        if self._inflate.unused_data or self._file.read(1):
            raise InvalidRequest("the bundle goes on behind its end")
        return b""


@contextmanager
def _or_refuse() -> Iterator[None]:
    try:
        yield
    except (AEnvError, OSError):
        raise
    except Exception as error:  # boundary: tarfile, with bytes from any client
        raise InvalidRequest(f"the bundle is not a sound .tar.gz file: {error}") from error
