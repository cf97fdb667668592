"""The names of images: `debian:12` and `docker.io/library/debian:12` are one."""

from __future__ import annotations

import platform
import re

from ...base.errors import InvalidRequest

_REFERENCE = re.compile(r"[a-z0-9][\w.:/-]*(@sha256:[0-9a-f]{64})?\Z", re.ASCII)
_ARCHITECTURES = {"x86_64": "amd64", "aarch64": "arm64", "armv7l": "arm", "i686": "386"}


def canonical(reference: str) -> str:
    """The short form with its tag: "debian:12"."""
    name = reference.strip()
    if len(name) > 512 or not _REFERENCE.match(name) or ".." in name:
        raise InvalidRequest(f"{reference!r} is not the name of an image; write it like 'debian:12'")
    name = re.sub(r"\A(index\.)?docker\.io/", "", name).removeprefix("library/")
    has_tag = "@" in name or ":" in name.rpartition("/")[2]
    return name if has_tag else f"{name}:latest"


def architecture() -> str:
    """This machine's, as images spell it."""
    machine = platform.machine()
    return _ARCHITECTURES.get(machine, machine)
