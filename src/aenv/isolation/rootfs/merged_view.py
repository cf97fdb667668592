"""What a root shows: its layers as one tree, read without mounting anything.

Links are followed inside the root and never out of it, so that this may be used on what strangers have made.
"""

from __future__ import annotations

import errno
import os
import posixpath
import stat
from collections.abc import Iterator
from pathlib import Path

from ...base.errors import InvalidRequest
from ..sandbox.rootfs import Rootfs

_MOST_LINKS = 40  # as the kernel
_MOST_BYTES = 16 << 20
_OPAQUE = ("user.overlay.opaque", "trusted.overlay.opaque")


class MergedView:
    def __init__(self, root: Rootfs) -> None:
        self._root = root

    def resolve(self, path: str) -> str:
        """The path without links, dots and double slashes. What does not exist is kept as it is spelled."""
        done, left, links = "/", list(_parts(path)), 0
        while left:
            part = left.pop(0)
            if part == "..":
                done = posixpath.dirname(done)
                continue
            found = self.find(posixpath.join(done, part))
            if found is None or not found.is_symlink():
                done = posixpath.join(done, part)
                continue
            links += 1
            if links > _MOST_LINKS:
                raise InvalidRequest(f"too many links on the way to {path!r}")
            target = os.readlink(found)
            done = "/" if target.startswith("/") else done
            left = [*_parts(target), *left]
        return done

    def find(self, path: str) -> Path | None:
        """Where on the host this is. `path` is a resolved one."""
        found = self._places(path)
        return found[0] if found else None

    def names(self, path: str) -> list[str]:
        """What is in a folder; nothing when it is none. `path` is a resolved one."""
        seen: dict[str, bool] = {}
        for place in self._places(path):
            if _is_folder(place):
                for entry in os.scandir(place):
                    seen.setdefault(entry.name, not _is_whiteout(entry.stat(follow_symlinks=False)))
        own = (target.split("/")[1] for target in self._root.system) if path == "/" else ()
        return sorted({name for name, is_there in seen.items() if is_there}.union(own))

    def walk(self, path: str) -> Iterator[tuple[str, Path]]:
        """Everything below a folder, folders before what is in them: its path, and where on the host it is."""
        waiting = [path]
        while waiting:
            folder = waiting.pop()
            for name in self.names(folder):
                inner = posixpath.join(folder, name)
                if found := self.find(inner):
                    yield inner, found
                    if _is_folder(found):
                        waiting.append(inner)

    def is_folder(self, path: str) -> bool:
        found = self.find(self.resolve(path))
        return found is not None and _is_folder(found)

    def is_closed(self, path: str) -> bool:
        """Whether this is a file of the host's own that not every user may read. `path` is a resolved one."""
        while path != "/":
            found = self.find(path)
            if found is not None and str(found) == path:  # what is in the store lies elsewhere there
                status = found.lstat()
                needed = 0o5 if stat.S_ISDIR(status.st_mode) else 0o4
                if not stat.S_ISLNK(status.st_mode) and status.st_mode & needed != needed:
                    return True
            path = posixpath.dirname(path)
        return False

    def read(self, path: str) -> bytes | None:
        """A small regular file; None when there is no such file."""
        found = self.find(self.resolve(path))
        if found is None or not stat.S_ISREG(found.lstat().st_mode):
            return None
        if found.stat().st_size > _MOST_BYTES:
            raise InvalidRequest(f"{path!r} is larger than {_MOST_BYTES >> 20} MiB")
        return found.read_bytes()

    def _places(self, path: str) -> list[Path]:
        """Of a folder, where its parts are, the uppermost first; of anything else, where it is."""
        places = list(self._root.layers)
        done = ""
        for part in _parts(path):
            done = f"{done}/{part}"
            own = self._root.system.get(done)
            places = list(own) if own is not None else _within(places, part)
        return places


def _within(places: list[Path], name: str) -> list[Path]:
    found: list[Path] = []
    for place in places:
        inner = place / name
        try:
            status = inner.lstat()
        except (FileNotFoundError, NotADirectoryError, ValueError):  # no file has such a name
            continue
        except OSError as error:
            if error.errno == errno.ENAMETOOLONG:
                continue
            raise
        if not stat.S_ISDIR(status.st_mode):
            return found if found or _is_whiteout(status) else [inner]
        found.append(inner)
        if _is_opaque(inner):
            break
    return found


def _is_whiteout(status: os.stat_result) -> bool:
    return stat.S_ISCHR(status.st_mode) and status.st_rdev == 0


def _is_opaque(folder: Path) -> bool:
    for name in _OPAQUE:
        try:
            if os.getxattr(folder, name, follow_symlinks=False) == b"y":
                return True
        except OSError:  # not marked, or not ours to ask
            continue
    return False


def _is_folder(path: Path) -> bool:
    return stat.S_ISDIR(path.lstat().st_mode)


def _parts(path: str) -> list[str]:
    return [part for part in path.split("/") if part not in ("", ".")]
