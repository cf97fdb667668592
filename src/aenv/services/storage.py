"""Storage of services: folders that outlive the instances which write to them, each owner's apart."""

from __future__ import annotations

import asyncio
import hashlib
import logging
import re
import shutil
from pathlib import Path
from urllib.parse import quote

from ..errors import InvalidRequest

logger = logging.getLogger("aenv.services")

_NAME = re.compile(r"[A-Za-z0-9](?:[A-Za-z0-9._-]{0,251}[A-Za-z0-9])?\Z")
_MAX_FILE_NAME = 255


def check_name(name: str) -> str:
    """Return `name` if storage may have it: it becomes the name of a folder."""
    if not _NAME.match(name):
        raise InvalidRequest(
            f"field 'pvc_name': {name!r} is no name for storage; use letters, digits, '-' and '.'"
        )
    return name


def folder(home: Path, owner: str | None, name: str) -> Path:
    """Where an owner's storage of this name is."""
    return home / "storage" / _folder_of(owner) / check_name(name)


def make(path: Path) -> None:
    """Make a folder that `folder` named, for its user only; fine when it is there."""
    path.parent.parent.parent.mkdir(parents=True, exist_ok=True)
    for each in (path.parent.parent, path.parent, path):
        each.mkdir(mode=0o700, exist_ok=True)


async def remove(home: Path, owner: str | None, name: str) -> None:
    """Remove it with all that is in it; fine when it is gone."""
    path = folder(home, owner, name)
    await asyncio.to_thread(shutil.rmtree, path, ignore_errors=True)
    if path.exists():
        logger.warning("storage %s could not be removed whole", path)


def _folder_of(owner: str | None) -> str:
    """A file name for a user's name, which may hold anything: no two have the same, and none leads elsewhere."""
    if owner is None:
        return "="
    text = quote(owner, safe="").replace(".", "%2E")
    return text if len(text) <= _MAX_FILE_NAME else f"={hashlib.sha256(owner.encode()).hexdigest()}"
