"""The same attacks without the sandbox: each of them succeeds when nothing is in its way."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Sequence
from typing import Any

import pytest

from tests.attacks.engines import PROGRAMS

# Namespaces in which root can do no harm: its mounts, names, interfaces and processes are gone with the command.
THROWAWAY = (
    *("unshare", "--mount", "--propagation", "private", "--uts", "--ipc", "--net"),
    *("--pid", "--fork", "--mount-proc"),
)
_ABSENT = ("Function not implemented", "No such file or directory: '/etc/shadow'")


class Outside:
    """Runs attack programs on the host, as root unless told."""

    def __init__(self, python: str, given: dict[str, Any]) -> None:
        self.given = given
        self._python = python

    def attack(
        self, family: str, name: str, wrapper: Sequence[str] = (), pass_fds: Sequence[int] = (), **given: Any
    ) -> str:
        """What the attack has got. Fails when it has got nothing; skips when this kernel has no such thing."""
        orders = json.dumps({**self.given, **given, "attacks": [name]})
        command = [*wrapper, self._python, str(PROGRAMS / f"{family}.py"), orders]
        done = subprocess.run(command, capture_output=True, text=True, pass_fds=pass_fds, timeout=20)
        lines = [line for line in done.stdout.splitlines() if line.startswith("{")]
        assert lines, done.stderr
        verdict = json.loads(lines[0])
        if any(text in verdict["said"] for text in _ABSENT):
            pytest.skip(f"this host has nothing to attack: {verdict['said']}")
        assert verdict["succeeded"] is True, f"it does not succeed outside either: {verdict['said']}"
        return str(verdict["said"])
