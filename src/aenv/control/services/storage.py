"""Storage of services: folders, or volumes of a size, that outlive the instances which write to them."""

from __future__ import annotations

import asyncio
import hashlib
import logging
import re
import secrets
import shutil
from pathlib import Path, PurePosixPath
from urllib.parse import quote

from ...base.errors import InvalidRequest, StartFailed
from ...engines.base import Engine, Volumes

logger = logging.getLogger("aenv.control.services")

_NAME = re.compile(r"[A-Za-z0-9](?:[A-Za-z0-9._-]{0,251}[A-Za-z0-9])?\Z")
_MAX_FILE_NAME = 255
# What an instance has of its own, what is made while it is set up, and what others may have something below.
_TAKEN = {"bin", "boot", "data", "dev", "environment", "etc", "glue", "layers", "lib", "lib32", "lib64", "libx32"}
_TAKEN |= {"new", "old", "overlays", "own", "proc", "run", "sbin", "sys", "tmp", "usr", "workspace"}
_SHARED = {"home", "media", "mnt", "opt", "root", "srv", "var"}


def check_name(name: str) -> str:
    """Return `name` if storage may have it: it becomes the name of a folder."""
    if not _NAME.match(name):
        raise InvalidRequest(
            f"field 'pvc_name': {name!r} is not a name for storage; use letters, digits, '-' and '.'"
        )
    return name


def check_place(path: str) -> str:
    """Return `path` if storage may be mounted there: nothing that an instance is made of may be hidden by it."""
    parts = PurePosixPath(path).parts
    wrong = not path.startswith("/") or ".." in parts or "\0" in path or len(parts) < 2 or len(path) > 1024
    if wrong or parts[1] in _TAKEN or (parts[1] in _SHARED and len(parts) < 3):
        raise InvalidRequest(
            f"field 'mount_path': storage cannot be mounted at {path!r}; use a path such as '/home/admin/data'"
        )
    return str(PurePosixPath(path))


def folder(home: Path, owner: str | None, name: str) -> Path:
    """Where an owner's storage of this name is."""
    return home / "storage" / _folder_of(owner) / check_name(name)


def make(path: Path) -> None:
    """Make a folder that `folder` named, for its user only; fine when it is there."""
    path.parent.parent.parent.mkdir(parents=True, exist_ok=True)
    for each in (path.parent.parent, path.parent, path):
        each.mkdir(mode=0o700, exist_ok=True)


async def place(engine: Engine, path: Path, size_bytes: int | None) -> Path:
    """What a replica gets as its storage: the volume for a folder that `folder` named, or the folder, made."""
    found = await asyncio.to_thread(_volume, path)
    if found and not isinstance(engine, Volumes):
        raise StartFailed(f"the storage {path.name!r} has a fixed size, which the {engine.name} engine cannot use")
    if found:
        return found
    await asyncio.to_thread(make, path)
    if size_bytes is None or not isinstance(engine, Volumes):
        return path
    if await asyncio.to_thread(lambda: bool(unlimited(engine, path))):
        return path
    # Another name each time: what was mounted under the one before may be in use for a while after it was removed.
    new = path.with_name(f"={path.name}.{secrets.token_hex(4)}")
    await engine.make_volume(new, size_bytes)
    return new


def unlimited(engine: Engine, path: Path) -> str:
    """Why the storage of a folder that `folder` named cannot have a size; empty when it can."""
    if not isinstance(engine, Volumes):
        return f"the {engine.name} engine cannot limit the size of storage"
    if _volume(path) is None and path.is_dir() and any(path.iterdir()):
        return "it was made without one and has files; use another 'pvc_name', or delete it with its storage"
    return engine.why_no_volumes()


async def remove(home: Path, owner: str | None, name: str) -> None:
    """Remove it with all that is in it; fine when it is gone."""
    path = folder(home, owner, name)
    while found := await asyncio.to_thread(_volume, path):
        await asyncio.to_thread(found.unlink, missing_ok=True)
    await asyncio.to_thread(shutil.rmtree, path, ignore_errors=True)
    if path.exists():
        logger.warning("storage %s could not be removed whole", path)


def _volume(path: Path) -> Path | None:
    """The volume that there is for a folder, beside it: `=<name>.<number>`, which no name of storage is like."""
    for entry in sorted(path.parent.glob("=*")):
        name, _, number = entry.name[1:].rpartition(".")
        if name == path.name and number != "new":
            return entry
    return None


def _folder_of(owner: str | None) -> str:
    """A file name for a user's name, which may hold anything: no two have the same, and none leads elsewhere."""
    if owner is None:
        return "="
    text = quote(owner, safe="").replace(".", "%2E")
    return text if len(text) <= _MAX_FILE_NAME else f"={hashlib.sha256(owner.encode()).hexdigest()}"
