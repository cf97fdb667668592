"""What an instance prints: a file of its folder, read as far as it goes, or followed until the instance ends."""

from __future__ import annotations

import asyncio
import contextlib
import io
import os
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass
from pathlib import Path

from ..base.errors import InvalidRequest, NotFound, Unavailable
from . import files_below
from .descriptors import readable, watch
from .proc import Process

_PIECE_BYTES = 64 << 10


@dataclass(frozen=True)
class LogLocation:
    """Where a log is: a file `name` in the folder `above` below `root`."""

    root: Path | str
    above: tuple[str, ...]
    name: str
    acting: Callable[[], contextlib.AbstractContextManager[None]] = contextlib.nullcontext
    """Inside it, this thread has the rights with which the file is opened."""


async def read(place: LogLocation, id: str) -> AsyncIterator[bytes]:
    """What the instance has printed up to now."""
    with _opened(place, id) as log:
        left = os.fstat(log.fileno()).st_size
        while piece := await asyncio.to_thread(log.read, min(left, _PIECE_BYTES)):
            left -= len(piece)
            yield piece


async def follow(place: LogLocation, id: str, leader: Process) -> AsyncIterator[bytes]:
    """What the instance has printed, and what it prints until its leading process ends."""
    with contextlib.ExitStack() as stack:
        log = stack.enter_context(_opened(place, id))
        try:
            changes = watch(log.fileno())
        except OSError as error:
            raise Unavailable("too many logs are followed at the same time", retry_after=60) from error
        stack.callback(os.close, changes)
        process = stack.enter_context(leader.opened())
        while True:
            while piece := await asyncio.to_thread(log.read1, _PIECE_BYTES):
                yield piece
            if process is None:
                return
            ready = await readable(process, changes)
            if process in ready:
                process = None  # and read once more, for what it printed at its end
            if changes in ready:
                os.read(changes, 1 << 12)  # the events say no more than that there were some


def _opened(place: LogLocation, id: str) -> io.BufferedReader:
    try:
        with place.acting(), files_below.folder(place.root, place.above) as own:
            return files_below.open_file(own, place.name)
    # Code inside may have put anything in its place.
    except (FileNotFoundError, NotADirectoryError, BlockingIOError, PermissionError, InvalidRequest):
        raise NotFound(f"the log of instance {id!r} was not found") from None
