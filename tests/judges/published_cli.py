"""The published command line, as a user of it runs it: in a network namespace, with a home folder of their own."""

from __future__ import annotations

import json
import os
import subprocess
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.netns import Namespace


@dataclass(frozen=True)
class Said:
    """What a command printed, and how it ended."""

    code: int
    output: str
    """Both streams: it uses either for the same things."""
    stdout: str

    def json(self) -> Any:
        """The JSON that it printed, among other things."""
        start = min(at for at in (self.stdout.find("\n{"), self.stdout.find("\n["), self._first()) if at >= 0)
        value, _ = json.JSONDecoder().raw_decode(self.stdout[start:].lstrip())
        return value

    def _first(self) -> int:
        return 0 if self.stdout[:1] in ("{", "[") else -1


@dataclass(frozen=True)
class User:
    """Somebody at a shell, with the published package installed by `python`."""

    space: Namespace
    python: Path
    home: Path
    key: str = ""
    """Their token, where there are accounts."""

    def configured(self) -> User:
        """With the file that its documentation tells users to write: where the hub is, and who they are."""
        file = self.home / ".aenv" / "cli_config.json"
        file.parent.mkdir(parents=True)
        hub = {"hub_backend": "http://127.0.0.1:8080", "api_key": self.key, "timeout": 30}
        storage = {"type": "aenv_hub", "custom": {"prefix": "oss://bucket/envs"}}
        file.write_text(
            json.dumps({"hub_config": hub, "storage_config": storage, "system_url": "http://127.0.0.1"})
        )
        return self

    def aenv(self, *arguments: str, within: Path | None = None, **variables: str) -> Said:
        """Run a command of its command line in the folder `within`."""
        return self._run(str(self.python.parent / "aenv"), *arguments, within=within, **variables)

    def runs(self, script: Path, *arguments: str, python: Path | None = None, **variables: str) -> Said:
        """Run a script of their own, with the package that `python` has."""
        return self._run(str(python or self.python), str(script), *arguments, **variables)

    def _run(self, *command: str, within: Path | None = None, **variables: str) -> Said:
        done = subprocess.run(
            self.space.command(*command),
            cwd=within or self.home,
            # Wide, since it folds long lines, also those of JSON.
            env={"PATH": os.environ["PATH"], "HOME": str(self.home), "COLUMNS": "400", **variables},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
        )
        return Said(done.returncode, done.stdout + done.stderr, done.stdout)
