"""A program that unpacks tars into a folder which is all that it can see.

Started as `python -P -m aenv.isolation.rootfs.unpack_program TASK`, where TASK is an `UnpackTask` as JSON.

What it unpacks may be hostile. So it first makes the target its root and gives up every right but those over the
files there; wherever a path or a link in a tar points, it points into the target. It prints one message.
Not here: which tars (`images.py`, `dockerfile_build.py`), or starting it (`unpacking.py`).
"""

from __future__ import annotations

import bz2
import contextlib
import ctypes
import gzip
import hashlib
import importlib
import lzma
import os
import posixpath
import resource
import stat
import sys
import tarfile
import zlib
from collections.abc import Callable
from typing import IO, Any

from ..sandbox import system
from ..sandbox.typed_json import decode, encode
from .unpack_messages import Unpacked, UnpackFailed, UnpackTask

_CHUNK = 1 << 20
_MEMORY_BYTES = 2 << 30
_CPU_SECONDS = 1800
_HEADER_BYTES = 256 << 10  # a name may be of any length, and reading a long one takes time with its square
_HEADERS = {tarfile.XHDTYPE, tarfile.XGLTYPE, tarfile.SOLARIS_XHDTYPE}
_HEADERS |= {tarfile.GNUTYPE_LONGNAME, tarfile.GNUTYPE_LONGLINK}
_LAST_ID, _OVERFLOW_ID = 65535, 65534
_KEPT_CAPABILITIES = 0b11011  # CHOWN, DAC_OVERRIDE, FOWNER, FSETID: over files; nothing else is needed here
_WHITEOUT, _OPAQUE = ".wh.", ".wh..wh..opq"
_DAMAGED = (tarfile.TarError, zlib.error, lzma.LZMAError, gzip.BadGzipFile, EOFError, ValueError, OverflowError)
_ZSTD = b"\x28\xb5\x2f\xfd"
_OPENED: dict[bytes, Callable[[Any], Any]] = {
    b"\x1f\x8b": lambda file: gzip.GzipFile(fileobj=file),
    b"BZh": bz2.BZ2File,
    b"\xfd7zXZ\0": lzma.LZMAFile,
    _ZSTD: lambda file: _zstd.ZstdFile(file),
}

try:
    _zstd: Any = importlib.import_module("compression.zstd")  # Python 3.14
except ImportError:
    _zstd = None


class _Refused(Exception):
    """What is wrong with the tar, for people."""


class _TooLarge(Exception):
    """Which limit it exceeds, for people."""


def main() -> None:
    task = decode(sys.argv[1].encode(), UnpackTask, most_bytes=None)
    print(encode(_said(task)).decode())


def _said(task: UnpackTask) -> object:
    """Do it; how it went, as a message."""
    work = _Unpacking(task.most_bytes, task.most_files, keeps_owners=os.geteuid() == 0)
    try:
        tars = [(os.fdopen(tar.descriptor, "rb"), tar) for tar in task.tars]
        _shut_in(task.target)
        for file, tar in tars:
            work.unpack(file, tar.digest, tar.into, whiteouts=task.whiteouts)
        return Unpacked(work.skipped)
    except _Refused as error:
        return UnpackFailed("refused", str(error))
    except _TooLarge as error:
        return UnpackFailed("too large", str(error))
    except MemoryError:
        return UnpackFailed("refused", "it asks for too much memory")
    except RecursionError:
        return UnpackFailed("refused", "its folders lie too deep")
    except _DAMAGED as error:
        return UnpackFailed("refused", f"it is damaged: {error}")
    except OSError as error:
        where = f": {error.filename!r}" if error.filename else ""
        return UnpackFailed("failed", f"{(error.strerror or str(error)).lower()}{where}")


def _shut_in(target: int) -> None:
    if os.geteuid() != 0:
        _become_root_of_namespace()
    os.fchdir(target)
    os.chroot(".")
    os.close(target)
    # Whatever Python would load from here on, it would load from the target.
    sys.path.clear()
    sys.meta_path.clear()
    _keep_few_capabilities()
    system.prctl(system.PR_SET_NO_NEW_PRIVS, 1)
    resource.setrlimit(resource.RLIMIT_AS, (_MEMORY_BYTES, _MEMORY_BYTES))
    resource.setrlimit(resource.RLIMIT_CPU, (_CPU_SECONDS, _CPU_SECONDS))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    os.umask(0)


def _become_root_of_namespace() -> None:
    user, group = os.geteuid(), os.getegid()
    try:
        system.unshare("user")
        for name, text in (("setgroups", "deny"), ("uid_map", f"0 {user} 1"), ("gid_map", f"0 {group} 1")):
            with open(f"/proc/self/{name}", "w") as file:
                file.write(text)
    except OSError as error:
        raise _Refused(
            f"an ordinary user needs user namespaces for that, and this host gives none ({error.strerror}); "
            "see 'aenv doctor'"
        ) from None


def _keep_few_capabilities() -> None:
    for number in range(64):
        if not _KEPT_CAPABILITIES >> number & 1:
            with contextlib.suppress(OSError):  # a number that this kernel does not have
                system.prctl(system.PR_CAPBSET_DROP, number)
    libc = ctypes.CDLL(None, use_errno=True)
    header, held = (ctypes.c_uint32 * 2)(0x20080522, 0), (ctypes.c_uint32 * 6)()  # version 3, this process
    libc.capget(ctypes.byref(header), ctypes.byref(held))
    kept = held[1] & _KEPT_CAPABILITIES
    sets = (ctypes.c_uint32 * 6)(kept, kept)  # effective and permitted; the others stay empty
    if libc.capset(ctypes.byref(header), ctypes.byref(sets)) != 0:
        raise OSError(ctypes.get_errno(), "cannot give up capabilities")


class _TarEntry(tarfile.TarInfo):
    def _proc_member(self, tar: tarfile.TarFile) -> tarfile.TarInfo:  # the place that tarfile has for this
        if self.type in _HEADERS and self.size > _HEADER_BYTES:
            raise tarfile.ReadError("a header is too long")
        return super()._proc_member(tar)  # type: ignore[misc,no-any-return]


class _Unpacking:
    """Several tars, one over the other, within common limits."""

    def __init__(self, most_bytes: int, most_files: int, *, keeps_owners: bool) -> None:
        self._most_bytes, self._most_files = most_bytes, most_files
        self._keeps_owners = keeps_owners
        self.files = self.bytes = self.skipped = 0
        self._ours: set[int] = set()
        """Inodes that came with the present tar: its whiteouts are about those before it."""

    def unpack(self, file: IO[bytes], digest: str, into: str, *, whiteouts: bool) -> None:
        self._ours.clear()
        stream: Any = _Stream(file, self)
        with tarfile.open(
            fileobj=stream, mode="r|", encoding="utf-8", errors="surrogateescape", tarinfo=_TarEntry
        ) as tar:
            while (member := tar.next()) is not None:
                tar.members.clear()  # type: ignore[attr-defined]  # it would remember all of them
                self.count(1, member.size if member.issparse() else 0)
                path = _path(into, member.name)
                try:
                    if not (whiteouts and self._white_out(path)):
                        self._put(tar, member, path, into)
                except OSError as error:
                    raise OSError(error.errno, error.strerror, member.name[:200]) from None
        if digest and digest != (found := stream.rest()):
            raise _Refused(f"its digest is {found}, and should be {digest}")

    def count(self, files: int, count: int) -> None:
        self.files, self.bytes = self.files + files, self.bytes + count
        if self.files > self._most_files:
            raise _TooLarge(f"it has more than {self._most_files} files, which is the limit")
        if self.bytes > self._most_bytes:
            raise _TooLarge(f"it has more than {self._most_bytes} bytes, which is the limit")

    def _white_out(self, path: str) -> bool:
        """Whether the entry only says what is no longer there."""
        folder, name = posixpath.split(path)
        if not name.startswith(_WHITEOUT):
            return False
        if name == _OPAQUE:
            self._clear(folder, itself=False)
        elif not name.startswith(_WHITEOUT * 2) and (gone := name.removeprefix(_WHITEOUT)) not in ("", ".", ".."):
            self._clear(posixpath.join(folder, gone))
        return True

    def _clear(self, path: str, *, itself: bool = True) -> None:
        """Remove what earlier tars have put there."""
        with contextlib.suppress(FileNotFoundError, NotADirectoryError):
            found = os.lstat(path)
            if not stat.S_ISDIR(found.st_mode):
                if itself and found.st_ino not in self._ours:
                    os.unlink(path)
                return
            for name in os.listdir(path):
                self._clear(posixpath.join(path, name))
            if itself and found.st_ino not in self._ours and not os.listdir(path):
                os.rmdir(path)

    def _put(self, tar: tarfile.TarFile, member: tarfile.TarInfo, path: str, into: str) -> None:
        if not (member.isdir() or member.isreg() or member.issym() or member.islnk() or member.isfifo()):
            self.skipped += 1  # a device: none is made, and in an instance none would work
            return
        if path == "./" and not member.isdir():
            raise _Refused(f"its entry {member.name[:200]!r} would replace the root")
        os.makedirs(posixpath.dirname(path), mode=0o755, exist_ok=True)
        if not (member.isdir() and os.path.isdir(path) and not os.path.islink(path)):
            _make_way(path)
            self._make(tar, member, path, into)
        if not member.islnk():
            self._dress(member, path)
        self._ours.add(os.lstat(path).st_ino)

    def _make(self, tar: tarfile.TarFile, member: tarfile.TarInfo, path: str, into: str) -> None:
        if member.isdir():
            os.mkdir(path)
        elif member.issym():
            os.symlink(member.linkname, path)
        elif member.islnk():
            os.link(_path(into, member.linkname), path, follow_symlinks=False)
        elif member.isfifo():
            os.mkfifo(path)
        else:
            source = tar.extractfile(member)
            assert source is not None
            with open(path, "xb", buffering=0) as target:
                while chunk := source.read(_CHUNK):
                    target.write(chunk)

    def _dress(self, member: tarfile.TarInfo, path: str) -> None:
        """Owner, mode and time. Of the mode bits, those that would lend the owner's rights are left out."""
        if self._keeps_owners:
            ids = [id if 0 <= id <= _LAST_ID else _OVERFLOW_ID for id in (member.uid, member.gid)]
            os.chown(path, *ids, follow_symlinks=False)
        if not member.issym():
            os.chmod(path, member.mode & 0o1777)
            # Python's compiled files are good only with the time of their source.
            with contextlib.suppress(OverflowError):
                os.utime(path, (member.mtime, member.mtime))


class _Stream:
    """A tar as it is inside its compression; its bytes are counted and digested."""

    def __init__(self, file: IO[bytes], work: _Unpacking) -> None:
        self._plain = _decompressed(file)
        self._digest = hashlib.sha256()
        self._work = work

    def read(self, size: int) -> bytes:
        data: bytes = self._plain.read(size)
        self._digest.update(data)
        self._work.count(0, len(data))
        return data

    def rest(self) -> str:
        """The digest of all; what is behind the last entry belongs to it."""
        while self.read(_CHUNK):
            pass
        return f"sha256:{self._digest.hexdigest()}"


def _decompressed(file: IO[bytes]) -> Any:
    start = file.read(8)
    file.seek(0)
    if start.startswith(_ZSTD) and _zstd is None:
        raise _Refused("it is compressed with zstd, which needs Python 3.14; compress it with gzip, or not at all")
    opened = (open for magic, open in _OPENED.items() if start.startswith(magic))
    return next(opened, lambda file: file)(file)


def _path(into: str, name: str) -> str:
    """Of an entry. Relative to the target, in which we are, although the root is the same."""
    return "." + posixpath.normpath(f"/{into}/{name}".replace("//", "/"))


def _make_way(path: str) -> None:
    with contextlib.suppress(FileNotFoundError):
        if stat.S_ISDIR(os.lstat(path).st_mode):
            for name in os.listdir(path):
                _make_way(posixpath.join(path, name))
            os.rmdir(path)
        else:
            os.unlink(path)


if __name__ == "__main__":
    main()
