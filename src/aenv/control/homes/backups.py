"""Backups: the records and bundles of a home folder in one file, made while gateways serve, and put back whole.

The file is a tar: `manifest.json`, `aenv.db`, `node`, and `blobs/<sha256>` for each bundle that the records name.
"""

from __future__ import annotations

import contextlib
import hashlib
import io
import json
import os
import re
import secrets
import shutil
import tarfile
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from ... import __version__
from ...base.errors import Conflict, InvalidRequest, NotFound
from ...base.wire import timestamp
from ..stores import copies
from ..stores.opening import sqlite_file
from .pruning import is_served

_FORMAT = 1
_BLOB = re.compile(r"blobs/([0-9a-f]{64})\Z")
_NODE = Path("run") / "node"
_CHUNK = 1 << 20


@dataclass(frozen=True)
class Backup:
    made_at: str
    aenv: str
    bundles: int
    missing: tuple[str, ...] = ()
    """Bundles that the records name and that were not there."""


def save(home: Path, file: Path, *, store: str = "", blobs: str = "", force: bool = False) -> Backup:
    """Write a backup to `file`, for its owner alone; complete, or not there. Gateways go on meanwhile."""
    if file.exists() and not force:
        raise Conflict(f"{str(file)!r} exists already; choose another file, or --force")
    records = sqlite_file(store, home)
    if records is None:
        raise InvalidRequest("records in Redis are not in such a backup; make one with 'redis-cli --rdb FILE'")
    if not records.exists():
        raise NotFound(f"no store {str(records)!r} to back up; name it with --home or --store")
    if blobs.startswith("s3://"):
        raise InvalidRequest("bundles in S3 are not in such a backup; back up the bucket itself")
    with _scratch(file.parent) as name:
        work = Path(name)
        # The records first: what they name stays for a day at least after nothing refers to it any more.
        copies.copy(records, work / "aenv.db")
        folder = Path(blobs) if blobs else home / "blobs"
        digests = copies.keys(work / "aenv.db", "bundles")
        there = [digest for digest in digests if (folder / digest[:2] / digest).is_file()]
        missing = tuple(digest for digest in digests if digest not in there)
        made = Backup(timestamp(), __version__, len(there), missing)
        about = {"format": _FORMAT, "made_at": made.made_at, "aenv": made.aenv, "bundles": there}
        with open(work / "backup", "xb", opener=_private) as raw, tarfile.open(fileobj=raw, mode="w") as archive:
            _add_bytes(archive, "manifest.json", json.dumps(about, indent=1).encode())
            archive.add(work / "aenv.db", "aenv.db", filter=_plain)
            if (home / _NODE).exists():
                _add_bytes(archive, "node", (home / _NODE).read_bytes())
            for digest in there:
                archive.add(folder / digest[:2] / digest, f"blobs/{digest}", filter=_plain)
        _sync(work / "backup")
        (work / "backup").replace(file)
    return made


def restore(home: Path, file: Path, *, store: str = "", blobs: str = "", force: bool = False) -> Backup:
    """Put a backup in place, after all of it was checked. Conflict while a gateway runs, or where records are.

    With `force`, records that are there are kept beside, as `aenv.db.before-<time>`.
    """
    records = sqlite_file(store, home)
    if records is None or blobs.startswith("s3://"):
        raise InvalidRequest("a backup is restored to SQLite and a folder; leave out --store and --blobs")
    if is_served(home):
        raise Conflict(f"a gateway runs on {str(home)!r}; stop it first")
    if records.exists() and not force:
        raise Conflict(f"{str(records)!r} exists already; restore into another --home, or --force")
    for folder in (home, records.parent):
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    with _scratch(records.parent) as name:
        work = Path(name)
        made = _unpacked(file, work)
        copies.check(work / "aenv.db")
        target = Path(blobs) if blobs else home / "blobs"
        for blob in sorted((work / "blobs").glob("*")):
            place = target / blob.name[:2] / blob.name
            place.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
            shutil.move(blob, place)
        if (work / "node").exists():
            (home / _NODE).parent.mkdir(exist_ok=True, mode=0o700)
            (work / "node").replace(home / _NODE)
        if records.exists():
            _set_aside(records)
        (work / "aenv.db").replace(records)  # last: with it the home is as it was
    return made


def _unpacked(file: Path, work: Path) -> Backup:
    """The files of a backup, in `work`; InvalidRequest when one is missing or is not what the manifest says."""
    (work / "blobs").mkdir()
    try:
        with tarfile.open(file) as archive:
            for member in archive:
                blob = _BLOB.match(member.name)
                content = archive.extractfile(member) if member.isreg() else None
                if content is None or not (blob or member.name in ("manifest.json", "aenv.db", "node")):
                    raise InvalidRequest(f"{str(file)!r} is not a backup: it holds {member.name[:100]!r}")
                digest = _write(content, work / member.name)
                if blob and digest != blob[1]:
                    raise InvalidRequest(f"the backup is damaged: bundle {blob[1]} has sha256 {digest}")
        about = json.loads((work / "manifest.json").read_bytes())
    except FileNotFoundError as error:
        if error.filename == str(file):
            raise
        raise InvalidRequest(f"{str(file)!r} is not a backup: it has no manifest.json") from None
    except (tarfile.TarError, EOFError, ValueError) as error:
        raise InvalidRequest(f"{str(file)!r} is not a backup, or is damaged: {error}") from None
    if about.get("format") != _FORMAT:
        raise InvalidRequest(f"the backup has format {about.get('format')!r} and this aenv knows {_FORMAT}")
    lost = [digest for digest in about["bundles"] if not (work / "blobs" / digest).exists()]
    if lost or not (work / "aenv.db").exists():
        raise InvalidRequest(f"the backup is damaged: {(*lost, 'aenv.db')[0]} is missing")
    return Backup(about["made_at"], about["aenv"], len(about["bundles"]))


def _write(content: IO[bytes], path: Path) -> str:
    total = hashlib.sha256()
    with open(path, "xb", opener=_private) as file:
        while chunk := content.read(_CHUNK):
            total.update(chunk)
            file.write(chunk)
        file.flush()
        os.fsync(file.fileno())
    return total.hexdigest()


def _set_aside(records: Path) -> None:
    """Keep what is there, with the log that belongs to it: a log beside another file would be its ruin."""
    suffix = f".before-{time.strftime('%Y%m%dT%H%M%S')}-{secrets.token_hex(2)}"
    for part in ("-wal", "-shm", ""):
        with contextlib.suppress(FileNotFoundError):
            Path(f"{records}{part}").rename(f"{records}{suffix}{part}")


def _add_bytes(archive: tarfile.TarFile, name: str, content: bytes) -> None:
    member = tarfile.TarInfo(name)
    member.size, member.mode = len(content), 0o600
    archive.addfile(member, io.BytesIO(content))


def _plain(member: tarfile.TarInfo) -> tarfile.TarInfo:
    """Without the names and numbers of this machine's users."""
    member.uid = member.gid = 0
    member.uname = member.gname = ""
    member.mode = 0o600
    return member


def _scratch(folder: Path) -> tempfile.TemporaryDirectory[str]:
    """A folder of our own on the same file system; nothing of it is left."""
    return tempfile.TemporaryDirectory(prefix=".aenv-backup-", dir=folder)


def _private(path: str, flags: int) -> int:
    return os.open(path, flags, 0o600)


def _sync(file: Path) -> None:
    with file.open("rb") as content:
        os.fsync(content.fileno())
