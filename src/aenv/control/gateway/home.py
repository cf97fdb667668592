"""The gateway's home folder: which node it is, and whether another gateway has it open."""

from __future__ import annotations

import contextlib
import fcntl
import os
import secrets
from collections.abc import AsyncIterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import IO

from ...base.errors import Unavailable
from ...engines.base import Engine, SharedByGateways


@dataclass(frozen=True)
class Home:
    """A share of a home folder."""

    node: str
    """Names the folder's engine to all gateways on a store, wherever they are."""
    alone: bool
    """Whether no other gateway has the folder open: then what runs there belongs to no other gateway."""
    id: str
    """Names the folder itself."""
    _lock: IO[str]

    def of(self, engine: Engine) -> Home:
        """The same with the node of the engine, where gateways with other folders share that."""
        return replace(self, node=engine.node) if isinstance(engine, SharedByGateways) else self

    def share(self) -> None:
        """Hold it together with others: what was to be done alone is done. Unavailable while another does it."""
        try:
            fcntl.flock(self._lock, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except BlockingIOError:
            raise Unavailable("another gateway on this home folder is starting") from None


@contextlib.asynccontextmanager
async def opened(path: Path) -> AsyncIterator[Home]:
    """The folder: held alone until `share`, where no other gateway has it."""
    run = path / "run"
    run.mkdir(parents=True, exist_ok=True, mode=0o700)
    with (run / "gateway.lock").open("a") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            alone = True
        except BlockingIOError:
            alone = False
        node = _node(run / "node")
        yield Home(node, alone, node, lock)


def _node(file: Path) -> str:
    if not file.exists():
        node = f"node-{secrets.token_hex(8)}"
        new = file.with_name(f".{node}")
        new.write_text(node)
        with contextlib.suppress(FileExistsError):  # another gateway was faster
            os.link(new, file)  # whole, or not at all
        new.unlink()
    return file.read_text()
