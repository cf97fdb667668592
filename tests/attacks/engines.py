"""Engines to attack: one of root's, one of an ordinary user; each in a process of its own."""

from __future__ import annotations

import json
import os
import resource
import secrets
import shutil
import subprocess
import sys
import tempfile
import textwrap
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from aenv.attacks.projects import PROGRAMS, make_project
from tests.ordinary import OrdinaryUser

__all__ = ["PROGRAMS", "AttackedEngine", "Refused", "attacked_engine"]

_SOFT_LIMIT = 1024  # open files: what most systems start programs with


class Refused(Exception):
    """The engine raised something; `kind` is its class."""

    def __init__(self, kind: str, message: str) -> None:
        super().__init__(f"{kind}: {message}")
        self.kind = kind


class AttackedEngine:
    """The other end of `engine_process.py`."""

    def __init__(self, process: subprocess.Popen[str], folder: Path, user: OrdinaryUser | None) -> None:
        self.user = user
        self.folder = folder
        self.home = folder / "home"
        self.project = folder / "project"
        self.private = folder / "private"
        self.token = f"token-{secrets.token_hex(16)}"
        self._process = process
        self._number = 0
        self._replies: dict[int, dict[str, Any]] = {}
        self._changed = threading.Condition()
        self._reader = threading.Thread(target=self._read)
        self._reader.start()

    @property
    def is_root(self) -> bool:
        return self.user is None

    @property
    def owner(self) -> int:
        return self.user.id if self.user else 0

    def start(self, do: str, **arguments: Any) -> int:
        """Ask for something, and do not wait for it."""
        assert self._process.stdin
        with self._changed:
            self._number += 1
            self._process.stdin.write(json.dumps({"number": self._number, "do": do, **arguments}) + "\n")
            self._process.stdin.flush()
            return self._number

    def reply(self, number: int, timeout: float = 20.0) -> Any:
        """What came of it. Refused when the engine raised."""
        with self._changed:
            if not self._changed.wait_for(
                lambda: number in self._replies or self._process.poll() is not None, timeout
            ):
                raise TimeoutError(f"the engine did not answer within {timeout:g} s")
            reply = self._replies.pop(number, {"error": "its process ended", "kind": "EOFError"})
        if "error" in reply:
            raise Refused(reply["kind"], reply["error"])
        return reply["result"]

    def ask(self, do: str, **arguments: Any) -> Any:
        return self.reply(self.start(do, **arguments))

    def evaluate(self, id: str, code: str) -> Any:
        """What `code` leaves in `said`, run in the runtime's own process."""
        return self.ask("call", id=id, tool="evaluate", code=textwrap.dedent(code))["said"]

    def attack(
        self, id: str, family: str, names: Sequence[str], given: dict[str, Any], how: str
    ) -> dict[str, Any]:
        """The verdict on each attack; `how` is "tool" or "exec"."""
        if how == "tool":
            verdicts = [
                self.ask("call", id=id, tool="attack", family=family, name=name, given=given) for name in names
            ]
        else:
            orders = json.dumps({**given, "attacks": [*names]})
            said = self.ask("exec", id=id, command=["python3", f"/environment/programs/{family}.py", orders])
            verdicts = [json.loads(line) for line in said["stdout"].splitlines()]
            # One that took the whole program along, by memory that ran out.
            verdicts += [{"name": name, "succeeded": None, "said": str(said)} for name in names[len(verdicts) :]]
        return {verdict["name"]: verdict for verdict in verdicts}

    def close(self) -> None:
        """It ends its instances, and then itself."""
        assert self._process.stdin
        self._process.stdin.close()
        try:
            self._process.wait(timeout=20)
        finally:
            self._process.kill()
            self._process.wait()
            self._reader.join()

    def _read(self) -> None:
        assert self._process.stdout
        with self._process.stdout as lines:
            for line in lines:
                reply = json.loads(line)
                with self._changed:
                    self._replies[reply["number"]] = reply
                    self._changed.notify_all()
        self._process.wait()
        with self._changed:
            self._changed.notify_all()


@contextmanager
def attacked_engine(user: OrdinaryUser | None) -> Iterator[AttackedEngine]:
    """An engine that runs as `user`, or as root. Its instances end with it."""
    parent = user.folder if user else None
    with tempfile.TemporaryDirectory(prefix="attacked-", dir=parent) as name:
        folder = Path(name)
        make_project(folder / "project")
        (folder / "home").mkdir(mode=0o700)
        private = folder / "private"
        private.mkdir()
        driver = folder / "engine_process.py"
        shutil.copy(Path(__file__).parent / "engine_process.py", driver)
        folder.chmod(0o755)
        if user:
            user.give(folder)
        make_private(private)
        python = str(user.python) if user else sys.executable
        command = [python, str(driver), str(folder / "home"), str(folder / "project"), str(private)]
        process = subprocess.Popen(
            user.command(*command) if user else command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            preexec_fn=_usual_limits,
        )
        engine = AttackedEngine(process, folder, user)
        try:
            engine.reply(0)
            (private / "secret").write_text(engine.token)
            yield engine
        finally:
            engine.close()


def make_private(folder: Path) -> None:
    """Root's: a file for nobody else, and a program that makes whoever runs it root."""
    (folder / "secret").touch(mode=0o600)
    (folder / "secret").chmod(0o600)
    shutil.copy("/usr/bin/cat", folder / "setuid-cat")
    (folder / "setuid-cat").chmod(0o4755)
    folder.chmod(0o755)
    for path in (folder, *folder.iterdir()):
        os.chown(path, 0, 0)
    (folder / "setuid-cat").chmod(0o4755)  # a change of owner takes the bit away


def _usual_limits() -> None:
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(_SOFT_LIMIT, hard), hard))
