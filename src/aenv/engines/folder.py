"""An instance's folder on the host: its socket, workspace, log, and the state that survives a crash."""

from __future__ import annotations

import contextlib
import json
import os
import re
import shutil
import tempfile
from pathlib import Path
from typing import Any

from ..errors import InvalidRequest
from . import beneath
from .proc import Process

_ID = re.compile(r"[a-z0-9][a-z0-9-]{0,127}\Z")
_SOCKET_FOLDER = "aenv-socket-"
_MAX_SOCKET_PATH = 107  # bytes, of Linux's sockaddr_un, without the final zero


class InstanceFolder:
    """`<root>/<id>/` with `workspace/`, `tmp/`, `log`, `state.json` and, where its path fits, `socket`.

    InvalidRequest when `id` could mean anything but a folder directly below `root`.
    """

    def __init__(self, root: Path, id: str) -> None:
        if not _ID.match(id):
            raise InvalidRequest(f"bad instance id {id!r}; use lower-case letters, digits and '-'")
        self.path = path = root / id
        self.id = id
        self.workspace = path / "workspace"
        self.temporary = path / "tmp"
        self.log = path / "log"
        self._state = path / "state.json"
        self._known: dict[str, Any] | None = None
        """What this object has written, where it has made the folder: nobody else writes there."""

    def exists(self) -> bool:
        return self.path.exists()

    @property
    def socket(self) -> Path:
        """Where the instance listens, once the folder is made."""
        return Path(self.read_state().get("socket", self.path / "socket"))

    def make(self, *, workspace: bool = True) -> None:
        """Make the folder, for its owner only. FileExistsError when it is there."""
        try:
            self.path.mkdir(mode=0o700)
        except FileNotFoundError:
            self.path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
            self.path.mkdir(mode=0o700)
        if workspace:
            self.workspace.mkdir()
            self.temporary.mkdir()
        self._known = {}
        place = self._place_for_socket()
        if place.parent != self.path:
            self.write_state(socket=str(place))  # at once, or nobody would find it
        self._known["socket"] = str(place)

    def read_state(self) -> dict[str, Any]:
        """What was written last; empty when nothing was, or when code in the instance has spoilt it."""
        if self._known is not None:
            return self._known
        try:
            state = json.loads(self._state.read_bytes())
        except (OSError, ValueError):
            return {}
        return state if isinstance(state, dict) else {}

    def write_state(self, **values: Any) -> None:
        """Add `values` to the state, so that a crash leaves either the old or the new state."""
        state = {**self.read_state(), **values}
        new = f"{self._state}.new"
        file = os.open(new, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
        try:
            text = json.dumps(state).encode()
            while text:
                text = text[os.write(file, text) :]
        finally:
            os.close(file)
        os.rename(new, self._state)
        if self._known is not None:
            self._known = state

    def leader(self) -> Process | None:
        """The process of the instance, unless it has ended, or was never started."""
        match self.read_state():
            case {"pid": int(pid), "start_time": int(since)} if (leader := Process(pid, since)).runs():
                return leader
        return None

    def remove(self) -> None:
        """Remove the folder and all in it; fine when it is gone."""
        place = Path(str(self.read_state().get("socket", self.path)))
        if place.parent.name.startswith(_SOCKET_FOLDER):
            shutil.rmtree(place.parent, ignore_errors=True)
        elif self.remove_at_once():
            return
        with contextlib.suppress(FileNotFoundError), beneath.folder(self.path.parent, ()) as root:
            beneath.remove(root, self.id)

    def remove_at_once(self) -> bool:
        """Remove the folder, if there is no more in it than its socket and its state; whether that was so."""
        try:
            if Path(str(self.read_state().get("socket", self.path / "socket"))).parent != self.path:
                return False  # its socket is elsewhere
            for name in ("socket", "state.json"):
                with contextlib.suppress(FileNotFoundError):
                    os.unlink(f"{self.path}/{name}")
            os.rmdir(self.path)
        except OSError:
            return False
        return True

    def _place_for_socket(self) -> Path:
        usual = self.path / "socket"
        if len(os.fsencode(usual)) <= _MAX_SOCKET_PATH:
            return usual
        return Path(tempfile.mkdtemp(prefix=_SOCKET_FOLDER)) / "socket"
