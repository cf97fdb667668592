"""A gateway for the time of one command: a child process on free ports, with a home folder of its own."""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from . import output
from .supervise import end, read_ready


@asynccontextmanager
async def own_gateway(project: Path, home: Path, *, idle_exit: str = "1m") -> AsyncIterator[str]:
    """`aenv serve` with the process engine; gives its address. Killed with us or not, it ends when it is idle."""
    reading, writing = os.pipe()
    log = home.with_suffix(".log")
    command = [sys.executable, "-m", "aenv.cli", "serve", str(project), "--home", str(home), "--engine", "process"]
    command += ["--port", "0", "--data-port", "0", "--log-level", "WARNING", "--ready-fd", str(writing)]
    command += ["--idle-exit", idle_exit]
    with log.open("wb") as stderr:
        process = await asyncio.create_subprocess_exec(
            *command, stderr=stderr, pass_fds=(writing,), start_new_session=True
        )
    os.close(writing)  # ours, so that the child's exit reads as end-of-file
    try:
        ready = await read_ready(reading)
        if not ready:
            raise output.Failure(f"the gateway did not start: {log.read_text(errors='replace')}")
        yield ready["url"]
    finally:
        await end(process)
