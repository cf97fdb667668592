"""The gateway's home folder: shared by the gateways of a user, and cleared of what a dead one left."""

from __future__ import annotations

import asyncio
import contextlib
import fcntl
import logging
from collections.abc import AsyncIterator
from pathlib import Path

from ..engines.base import Engine

logger = logging.getLogger("aenv.gateway.home")


@contextlib.asynccontextmanager
async def shared(home: Path, engine: Engine) -> AsyncIterator[None]:
    """Hold a share of `home`.

    Records are in memory, so an instance that runs while no gateway does belongs to nobody: it is ended.
    Another gateway on this home, say the one that the SDK started by itself, holds a share too, and
    its instances are left alone.
    """
    run = home / "run"
    run.mkdir(parents=True, exist_ok=True, mode=0o700)
    with (run / "gateway.lock").open("a") as lock:
        with contextlib.suppress(BlockingIOError):
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            await _reap(engine)
        # In a thread: it waits while another gateway that has just started reaps.
        await asyncio.to_thread(fcntl.flock, lock, fcntl.LOCK_SH)
        yield


async def _reap(engine: Engine) -> None:
    leftover = await engine.running()
    await asyncio.gather(*(engine.destroy(id) for id in leftover))
    if leftover:
        logger.info("reaped %d instances that an earlier gateway left", len(leftover))
