"""The gateway's home folder: which node it is, and whether another gateway has it open."""

from __future__ import annotations

import asyncio
import contextlib
import fcntl
import secrets
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path
from typing import IO


@dataclass(frozen=True)
class Home:
    """A share of a home folder."""

    node: str
    """Names the folder's engine to all gateways on a store, wherever they are."""
    alone: bool
    """Whether no other gateway has the folder open: then what runs there is nobody else's."""
    _lock: IO[str]

    def share(self) -> None:
        """Let other gateways in: what was to be done alone is done."""
        fcntl.flock(self._lock, fcntl.LOCK_SH)


@contextlib.asynccontextmanager
async def opened(path: Path) -> AsyncIterator[Home]:
    """Hold the folder: alone until `share`, where nobody else has it, and else together with others."""
    run = path / "run"
    run.mkdir(parents=True, exist_ok=True, mode=0o700)
    with (run / "gateway.lock").open("a") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            alone = True
        except BlockingIOError:
            # In a thread: it waits while another gateway that has just started tidies up.
            await asyncio.to_thread(fcntl.flock, lock, fcntl.LOCK_SH)
            alone = False
        yield Home(_node(run / "node"), alone, lock)


def _node(file: Path) -> str:
    with contextlib.suppress(FileExistsError), file.open("x") as new:
        new.write(f"node-{secrets.token_hex(8)}")
    return file.read_text()
