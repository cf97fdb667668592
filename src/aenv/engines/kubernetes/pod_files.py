"""What a waiting Pod is sent: the tar of an environment's files, and the claim that makes an instance of it."""

from __future__ import annotations

import asyncio
import contextlib
import tarfile
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from ...base.errors import StartFailed
from ...base.pod_claim import PodClaim
from ...isolation.sandbox import protocol
from ..base import InstanceSpec
from ..containers.container_plan import PORT, PROJECT, REQUIREMENTS, folder_place
from .pod_manifest import DATA

MAX_FILES_BYTES = 2 << 30
_MEMORY_BYTES = 4 << 20
_PIECE = 1 << 18
_RETRY = 0.02  # seconds between attempts to connect to a container that has started and does not listen yet


@dataclass(frozen=True)
class PodFiles:
    """A tar, open for reading, and its length."""

    stream: IO[bytes]
    size: int


def places(spec: InstanceSpec) -> Iterator[tuple[Path, str]]:
    """The folders that the instance needs, and where it sees them."""
    if not spec.image:
        yield spec.project, PROJECT
    if spec.requirements and not spec.image:
        yield spec.requirements, REQUIREMENTS
    if spec.data:
        yield spec.data, DATA
    for variable, folder in spec.folders.items():
        yield folder, folder_place(variable)


@contextlib.contextmanager
def packed(spec: InstanceSpec) -> Iterator[PodFiles]:
    """All of them as one tar. StartFailed when they are too large to be sent to each Pod."""
    with tempfile.SpooledTemporaryFile(_MEMORY_BYTES) as file:
        with tarfile.open(fileobj=file, mode="w") as tar:
            for folder, place in places(spec):
                for path in sorted(folder.iterdir()):
                    if path.name not in ("__pycache__", ".git"):
                        tar.add(path, f"{place.lstrip('/')}/{path.name}", filter=_without_caches)
                    if file.tell() > MAX_FILES_BYTES:
                        raise StartFailed(
                            f"the files of {spec.environment!r} take more than {MAX_FILES_BYTES >> 30} GiB; "
                            "put them in an image, with 'aenv build'"
                        )
        size = file.tell()
        file.seek(0)
        yield PodFiles(file, size)


def _without_caches(entry: tarfile.TarInfo) -> tarfile.TarInfo | None:
    return None if "/__pycache__" in f"/{entry.name}" or entry.isdev() else entry


async def claim(host: str, said: PodClaim, files: PodFiles | None) -> bytes:
    """Say a claim to the runtime that waits there, and return its ready line; what there is of it when it ends.

    Connecting is tried again while nothing listens: the container has just started.
    """
    reader, writer = await _connect(host)
    try:
        writer.write(said.line())
        while files and (piece := files.stream.read(_PIECE)):
            writer.write(piece)
            await writer.drain()
        await writer.drain()
        line = bytearray()
        while not line.endswith(b"\n") and len(line) <= protocol.MAX_READY_BYTES:
            piece = await reader.read(1 << 16)
            if not piece:
                break
            line += piece
        return bytes(line)
    except ConnectionError:
        return b""
    finally:
        writer.close()
        with contextlib.suppress(OSError):
            await writer.wait_closed()


async def _connect(host: str) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    while True:
        try:
            return await asyncio.open_connection(host, PORT)
        except OSError:
            await asyncio.sleep(_RETRY)
