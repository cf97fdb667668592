"""Starting the program that unpacks tars (`unpack_program.py`), and what it says."""

from __future__ import annotations

import asyncio
import contextlib
import os
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from ...base.errors import InvalidRequest, StartFailed, TooLarge
from ..sandbox.typed_json import Broken, decode, encode
from .unpack_messages import TarSource, Unpacked, UnpackFailed, UnpackTask

_Said = Unpacked | UnpackFailed
_KINDS: tuple[type[_Said], ...] = (Unpacked, UnpackFailed)
_ERRORS = {"refused": InvalidRequest, "too large": TooLarge}


@dataclass(frozen=True)
class UnpackLimits:
    most_bytes: int = 20 << 30
    most_files: int = 2_000_000


@dataclass(frozen=True)
class Tar:
    file: IO[bytes]
    digest: str = ""
    """Which it must have without its compression, if that is known."""
    into: str = ""
    """The folder in the target that its entries belong to."""


async def unpack(
    tars: Sequence[Tar],
    target: Path,
    *,
    what: str,
    limits: UnpackLimits,
    whiteouts: bool = False,
) -> int:
    """Unpack into `target`, one over the other; the number of devices left out.

    With `whiteouts`, what a layer of an image says about files that are gone is done. `what` is for errors.
    """
    folder = os.open(target, os.O_RDONLY | os.O_DIRECTORY)
    try:
        said = await _run(tars, folder, limits, whiteouts)
    finally:
        os.close(folder)
    if isinstance(said, UnpackFailed):
        raise _ERRORS.get(said.kind, StartFailed)(f"cannot unpack {what}: {said.error}")
    return said.skipped


async def _run(tars: Sequence[Tar], folder: int, limits: UnpackLimits, whiteouts: bool) -> _Said:
    descriptors = [tar.file.fileno() for tar in tars]
    task = UnpackTask(
        target=folder,
        tars=tuple(TarSource(tar.file.fileno(), tar.digest, tar.into) for tar in tars),
        whiteouts=whiteouts,
        most_bytes=limits.most_bytes,
        most_files=limits.most_files,
    )
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-P", "-m", "aenv.isolation.rootfs.unpack_program", encode(task).decode()),
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
        pass_fds=(folder, *descriptors),
        cwd="/",
    )
    try:
        printed, complaint = await process.communicate()
    finally:
        if process.returncode is None:  # cancelled: it must not write on in a folder that is being removed
            with contextlib.suppress(ProcessLookupError):
                process.kill()
            await process.wait()
    try:
        return decode(printed, *_KINDS)
    except Broken:
        words = complaint.decode(errors="replace").strip()[-500:]
        return UnpackFailed("failed", f"the unpacking ended with status {process.returncode}: {words}")
