"""An instance's folder on the host: its socket, workspace, log, and the state that survives a crash."""

from __future__ import annotations

import json
import os
import shutil
import tempfile
from pathlib import Path
from typing import Any

_MAX_SOCKET_PATH = 107  # bytes, of Linux's sockaddr_un, without the final zero


class InstanceFolder:
    """`<root>/<id>/` with `workspace/`, `tmp/`, `log`, `state.json` and, where its path fits, `socket`."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.id = path.name
        self.workspace = path / "workspace"
        self.temporary = path / "tmp"
        self.log = path / "log"
        self._state = path / "state.json"

    def exists(self) -> bool:
        return self.path.exists()

    @property
    def socket(self) -> Path:
        """Where the instance listens, once the folder is made."""
        return Path(self.read_state()["socket"])

    def make(self) -> None:
        """Make the folder, for its owner only. FileExistsError when it is there."""
        self.path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        self.path.mkdir(mode=0o700)
        self.workspace.mkdir()
        self.temporary.mkdir()
        self.write_state(socket=str(self._place_for_socket()))

    def read_state(self) -> dict[str, Any]:
        """What was written last; empty when nothing was."""
        try:
            state: dict[str, Any] = json.loads(self._state.read_bytes())
        except FileNotFoundError:
            return {}
        return state

    def write_state(self, **values: Any) -> None:
        """Add `values` to the state, so that a crash leaves either the old or the new state."""
        new = self._state.with_suffix(".new")
        new.write_text(json.dumps({**self.read_state(), **values}))
        new.replace(self._state)

    def remove(self) -> None:
        """Remove the folder and all in it; fine when it is gone."""
        place = self.read_state().get("socket")
        if place and Path(place).parent != self.path:
            shutil.rmtree(Path(place).parent, ignore_errors=True)
        try:
            shutil.rmtree(self.path)
        except FileNotFoundError:
            return
        except PermissionError:
            self._allow_removal()
            shutil.rmtree(self.path)

    def _allow_removal(self) -> None:
        """Undo what code in the instance did to the permissions of its folders."""
        for parent, names, _ in os.walk(self.path):
            for name in names:
                if not os.path.islink(path := os.path.join(parent, name)):
                    os.chmod(path, 0o700)

    def _place_for_socket(self) -> Path:
        usual = self.path / "socket"
        if len(os.fsencode(usual)) <= _MAX_SOCKET_PATH:
            return usual
        return Path(tempfile.mkdtemp(prefix="aenv-")) / "socket"
