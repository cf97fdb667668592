"""Network namespaces: a loopback of its own for clients and servers whose ports are hard-wired.

Published clients always dial 8080 and 8081; inside a namespace those ports are free whatever else runs here.
"""

from __future__ import annotations

import secrets
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass


@dataclass(frozen=True)
class Namespace:
    """A network namespace that exists now. It sees only its own loopback."""

    name: str

    def command(self, *command: str) -> list[str]:
        """`command` so that it runs inside the namespace: with the same pid, since `ip` execs it."""
        return ["ip", "netns", "exec", self.name, *command]


@contextmanager
def namespace() -> Iterator[Namespace]:
    """A fresh namespace with its loopback up, removed afterwards. Needs root and iproute2."""
    space = Namespace(f"aenv-test-{secrets.token_hex(4)}")
    _ip("netns", "add", space.name)
    try:
        _ip("-netns", space.name, "link", "set", "lo", "up")
        yield space
    finally:
        _ip("netns", "delete", space.name)


def _ip(*arguments: str) -> None:
    subprocess.run(["ip", *arguments], check=True, capture_output=True, text=True)
