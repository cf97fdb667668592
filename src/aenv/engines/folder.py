"""An instance's folder on the host: its socket, workspace, log, and the state that survives a crash."""

from __future__ import annotations

import contextlib
import errno
import os
import re
import shutil
import socket
import stat
import tempfile
from pathlib import Path

from ..base.errors import InvalidRequest, StartFailed
from . import files_below, instance_state
from .instance_state import InstanceState
from .proc import Process

STATE = "state.jsonl"
"""The name of the file in which its state is kept."""
_NOTHING = b"{}\n"
_ID = re.compile(r"[a-z0-9][a-z0-9-]{0,127}\Z")
SOCKET_FOLDER = "aenv-socket-"
"""What the names of folders for sockets begin with whose paths would be too long."""
_MAX_SOCKET_PATH = 107  # bytes, of Linux's sockaddr_un, without the final zero


class InstanceFolder:
    """`<root>/<id>/` with `workspace/`, `tmp/`, `log`, `state.jsonl` and, where its path fits, `socket`.

    InvalidRequest when `id` could mean anything but a folder directly below `root`.
    """

    def __init__(self, root: Path, id: str) -> None:
        if not _ID.match(id):
            raise InvalidRequest(f"bad instance id {id!r}; use lower-case letters, digits and '-'")
        self.path = root / id
        self.id = id
        self._state = f"{self.path}/{STATE}"
        self._known: InstanceState | None = None
        """What this object has written, where it has made the folder: then no other object writes there."""

    @property
    def workspace(self) -> Path:
        return self.path / "workspace"

    @property
    def temporary(self) -> Path:
        return self.path / "tmp"

    @property
    def log(self) -> Path:
        return self.path / "log"

    def exists(self) -> bool:
        return os.path.exists(self.path)

    @property
    def holds_socket(self) -> bool:
        """Whether the path of a socket in it is short enough."""
        return is_short_enough(f"{self.path}/socket")

    @property
    def socket(self) -> Path:
        """Where the instance listens, once the folder is made."""
        return Path(self.read_state().socket or self.path / "socket")

    @property
    def works_in(self) -> str:
        """The id of the instance whose workspace it is: its own, unless it was made to work in another's."""
        return self.workspace.resolve().parent.name

    def make(self, *, workspace: bool = True, works_in: str = "") -> None:
        """Make the folder, for its owner only. FileExistsError when it is there.

        With `works_in` its workspace is a link to that of the instance of this id.
        """
        try:
            self.path.mkdir(mode=0o700)
        except FileNotFoundError:
            self.path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
            self.path.mkdir(mode=0o700)
        if workspace:
            if works_in:
                self.workspace.symlink_to(InstanceFolder(self.path.parent.absolute(), works_in).workspace)
            else:
                self.workspace.mkdir()
            self.temporary.mkdir()
        self._known = InstanceState()
        if not self.holds_socket:
            place = tempfile.mkdtemp(prefix=SOCKET_FOLDER)
            self.write_state(InstanceState(socket=f"{place}/socket"))  # at once, or no engine would find it

    def take(self, spare: str) -> None:
        """Be the folder that was made at this path. FileExistsError when there is one already."""
        try:
            os.rename(spare, self.path)
        except OSError as error:
            if error.errno == errno.ENOTEMPTY:
                raise FileExistsError(errno.EEXIST, "the instance has a folder", str(self.path)) from None
            raise
        self._known = InstanceState()

    def give(self, spare: str) -> bool:
        """Move the folder there, with a state that tells nothing, and nothing else; False, when it holds more."""
        try:
            if {*os.listdir(self.path)} != {"socket", STATE}:
                return False
            os.unlink(f"{self.path}/socket")
            self._forget_state()
            os.rename(self.path, spare)
        except OSError:
            return False
        self._known = InstanceState()
        return True

    def _forget_state(self) -> None:
        """Leave one line that tells nothing.

        Not an empty file: what is written to one that ext4 has emptied goes to the disk as soon as it is closed,
        and to empty it again waits until it is there.
        """
        file = os.open(self._state, os.O_WRONLY | os.O_CLOEXEC)
        try:
            os.ftruncate(file, len(_NOTHING))
            os.pwrite(file, _NOTHING, 0)
        finally:
            os.close(file)

    def read_state(self) -> InstanceState:
        """What was written; nothing of it that was cut short, or that code in the instance has spoilt."""
        if self._known is not None:
            return self._known
        try:
            return instance_state.read(Path(self._state).read_bytes().splitlines())
        except OSError:
            return InstanceState()

    def write_state(self, news: InstanceState) -> None:
        """Add what is known in `news` to the state, so that a crash leaves either the old or the new state.

        A line at the end of the file: to put a new file in the place of the old one takes fifty times as long.
        """
        text = news.line()
        file = os.open(self._state, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)
        try:
            while text:
                text = text[os.write(file, text) :]
        finally:
            os.close(file)
        if self._known is not None:
            self._known = self._known.updated(news)

    def leader(self) -> Process | None:
        """The process of the instance, unless it has ended, or was never started."""
        leader = self.read_state().leader
        return leader if leader and leader.runs() else None

    def remove(self) -> None:
        """Remove the folder and all in it; fine when it is gone."""
        place = Path(self.read_state().socket or self.path)
        if place.parent.name.startswith(SOCKET_FOLDER):
            shutil.rmtree(place.parent, ignore_errors=True)
        elif self.remove_at_once():
            return
        try:
            with files_below.folder(self.path.parent, ()) as root:
                files_below.remove(root, self.id)
        except FileNotFoundError:
            if self.exists():  # something in it was missing, and the rest was left
                raise

    def remove_at_once(self) -> bool:
        """Remove the folder, if there is no more in it than its socket and its state; whether that was so."""
        try:
            if self.socket.parent != self.path:
                return False  # its socket is elsewhere
            for name in ("socket", STATE):
                with contextlib.suppress(FileNotFoundError):
                    os.unlink(f"{self.path}/{name}")
            os.rmdir(self.path)
        except OSError:
            return False
        return True


def bind(listener: socket.socket, path: Path | str) -> None:
    """Bind a unix socket to a path, without its words: every user of the host reads them in /proc/net/unix.

    The path may hold the id of an instance.
    """
    folder = os.open(os.path.dirname(path), os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        listener.bind(f"/proc/self/fd/{folder}/{os.path.basename(path)}")
    finally:
        os.close(folder)


def take_socket(made: Path, place: Path) -> None:
    """Give a socket that code in the instance has made a second name, in a folder that this code cannot change.

    It could put a link to another socket of the host in the place of the first one, at any time. StartFailed when
    it is not a socket.
    """
    place.unlink(missing_ok=True)
    try:
        os.link(made, place, follow_symlinks=False)
    except OSError as error:
        raise StartFailed(f"the instance has made no socket: {error.strerror}") from None
    if not stat.S_ISSOCK(place.lstat().st_mode):
        place.unlink()
        raise StartFailed("the instance has made something else than a socket")


def is_short_enough(path: str) -> bool:
    """Whether a socket can be bound to this path."""
    return len(os.fsencode(path)) <= _MAX_SOCKET_PATH
