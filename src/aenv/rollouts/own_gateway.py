"""A gateway for the time of one command: a child process on free ports, with a home folder of its own."""

from __future__ import annotations

import asyncio
import json
import os
import sys
import tempfile
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from ..base import settings
from ..base.child_processes import end, read_line
from ..base.errors import StartFailed
from . import live
from .task_instances import InstanceSource

if TYPE_CHECKING:
    from ..base.config import Project

# What is made once for all gateways of a user: roots, packages, and the data that was pulled.
_SHARED = ("roots", "requirements", "data")


@asynccontextmanager
async def own_gateway(
    project: Path, home: Path, *, engine: str = "process", idle_exit: str = "1m", options: Sequence[str] = ()
) -> AsyncIterator[str]:
    """`aenv serve`; gives its address. Killed with us or not, it ends when it is idle."""
    reading, writing = os.pipe()
    log = home.with_suffix(".log")
    command = [sys.executable, "-m", "aenv.cli", "serve", str(project), "--home", str(home), "--engine", engine]
    command += ["--port", "0", "--data-port", "0", "--log-level", "WARNING", "--ready-fd", str(writing)]
    command += ["--idle-exit", idle_exit, *options]
    with log.open("wb") as stderr:
        process = await asyncio.create_subprocess_exec(
            *command, stderr=stderr, pass_fds=(writing,), start_new_session=True
        )
    os.close(writing)  # ours, so that the child's exit reads as end-of-file
    try:
        line = await read_line(reading)
        if not line:
            raise StartFailed(f"the gateway did not start: {log.read_text(errors='replace')}")
        yield json.loads(line)["url"]  # as `aenv serve --ready-fd` writes it
    finally:
        await end(process)


@asynccontextmanager
async def served(place: InstanceSource, project: Project) -> AsyncIterator[InstanceSource]:
    """The place, behind a gateway for this project alone that isolates instances where this host can do that.

    What the project's Dockerfile and requirements lead to stays in the user's home, for the next time.
    """
    from ..artifacts.bundles import packing
    from ..isolation.sandbox import probe

    with tempfile.TemporaryDirectory(prefix="aenv-tasks-") as folder:
        packed = await asyncio.to_thread(packing.pack, project.path, Path(folder) / "project.tar.gz")
        engine = "process" if await asyncio.to_thread(probe.missing_isolation) else "native"
        home = Path(folder) / "home"
        _share(home)
        # A rootfs may have to be built first, and a build does not go on after the command.
        options = ("--model-url", "loopback", "--data-root", "/", "--start-timeout", f"{place.limit:g}s")
        started = own_gateway(project.path, home, engine=engine, idle_exit="10m", options=options)
        async with AsyncExitStack() as stack:
            with live.lines("starting a gateway"):
                url = await stack.enter_async_context(started)
            name, eval_only = str(project.ref), project.eval_only
            yield replace(place, name=name, url=url, api_key=None, digest=packed.digest, eval_only=eval_only)


def _share(home: Path) -> None:
    home.mkdir(mode=0o700)
    for name in _SHARED:
        kept = settings.home() / name
        kept.mkdir(parents=True, exist_ok=True, mode=0o700)
        (home / name).symlink_to(kept)
