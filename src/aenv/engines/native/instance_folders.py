"""Folders for instances, each with a socket that listens.

A disk takes its time to make and to remove them: some are made ahead, and those of ended instances are used again.
What was in them is not, and their sockets are new: a process that holds the one before would still be called.
"""

from __future__ import annotations

import os
import secrets
import shutil
import socket
from collections import deque
from contextlib import suppress
from itertools import count
from pathlib import Path

from ...base.errors import InvalidRequest
from ...isolation.cgroups import owners
from ..folder import STATE, InstanceFolder, bind, is_short_enough

SPARES = 8
_MOST_EMPTY = 512
_BACKLOG = 1024


class InstanceFolders:
    """The folders of one engine object, below `root`."""

    def __init__(self, root: Path) -> None:
        self._root = root
        self._spares: deque[tuple[str, socket.socket]] = deque()
        self._empty: deque[str] = deque()
        self._spare = f"spare.{owners.own()}.{secrets.token_hex(4)}."  # dots: no instance has such an id
        self._number = count(1)
        self._has_room = is_short_enough(f"{root}/{self._spare}1000000/socket")
        self._has_swept = False

    def take(self, id: str) -> tuple[InstanceFolder, socket.socket]:
        """The folder of a new instance, and its listener, for the caller to close.

        FileExistsError when it is there, InvalidRequest when no instance has such an id.
        """
        folder = InstanceFolder(self._root, id)
        if not (folder.holds_socket and self._has_room):
            folder.make(workspace=False)
            return folder, _listening(str(folder.socket))
        try:
            spare, listener = self._spares.popleft()
        except IndexError:
            spare, listener = self._make()
        try:
            folder.take(spare)
        except BaseException:
            _discard(spare, listener)
            raise
        return folder, listener

    def put_back(self, folder: InstanceFolder) -> bool:
        """Take the folder of an ended instance, to be used again; whether there is nothing left of it now."""
        if not self._has_room or len(self._empty) >= _MOST_EMPTY:
            return folder.remove_at_once()
        path = self._new_path()
        if not folder.give(path):
            return False
        self._empty.append(path)
        return True

    def refill(self) -> None:
        """Make some ahead. For the background: another thread may take them meanwhile."""
        if not self._has_swept:
            self._has_swept = True
            self.sweep()
        while self._has_room and len(self._spares) < SPARES:
            self._spares.append(self._make())

    def close(self) -> None:
        """Remove what was made ahead, also by processes that have ended."""
        while self._spares:
            _discard(*self._spares.popleft())
        while self._empty:
            shutil.rmtree(self._empty.popleft())
        self.sweep()

    def _make(self) -> tuple[str, socket.socket]:
        try:
            path = self._empty.popleft()
        except IndexError:
            path = self._make_empty()
        try:
            return path, _listening(f"{path}/socket")
        except BaseException:
            shutil.rmtree(path)
            raise

    def _make_empty(self) -> str:
        path = self._new_path()
        try:
            os.mkdir(path, 0o700)
        except FileNotFoundError:
            self._root.mkdir(parents=True, exist_ok=True, mode=0o700)
            os.mkdir(path, 0o700)
        try:
            os.close(os.open(f"{path}/{STATE}", os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600))
        except BaseException:
            shutil.rmtree(path)
            raise
        return path

    def _new_path(self) -> str:
        return f"{self._root}/{self._spare}{next(self._number)}"

    def sweep(self) -> None:
        """Remove what processes that have ended had made ahead."""
        for path in self._root.glob("spare.*"):
            if not owners.runs(path.name.split(".")[1]):
                shutil.rmtree(path, ignore_errors=True)  # another one may sweep, too


def _listening(path: str) -> socket.socket:
    listener = socket.socket(socket.AF_UNIX)
    try:
        bind(listener, path)
        listener.listen(_BACKLOG)
    except BaseException:
        listener.close()
        raise
    return listener


def _discard(path: str, listener: socket.socket) -> None:
    listener.close()
    with suppress(FileNotFoundError):
        shutil.rmtree(path)


def check_does_not_hold(shown: Path, home: Path) -> None:
    """InvalidRequest for a folder that must not be shown to an instance."""
    if home.resolve().is_relative_to(shown.resolve()):
        raise InvalidRequest(
            f"{str(shown)!r} holds {str(home)!r}, where all instances are kept; "
            "move one of them, or choose another with --home"
        )
