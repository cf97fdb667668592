"""Opening the place where instances are made: a gateway that is there, or one for the time of a command.

A project's folder is served by a gateway of its own, as `aenv test` does, with the native engine where this host
can isolate instances.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import sys
import tempfile
from collections.abc import AsyncIterator, Callable, Coroutine, Mapping
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any, TypeVar

from .. import mcp, refs, settings
from ..bundles import packing
from ..client.address import control_origin
from ..client.api import Api
from ..client.embedded import platform
from ..client.hub import Hub
from ..config import Project
from ..errors import StartFailed
from .instances import Place

T = TypeVar("T")

_START = 60.0
_GRACE = 15.0


def run(main: Callable[[], Coroutine[Any, Any, T]]) -> T:
    """Run to the end. Ctrl-C, SIGTERM and a closing terminal end it in order, and then as KeyboardInterrupt."""
    stopped: list[bool] = []

    async def watched() -> T | None:
        loop, task = asyncio.get_running_loop(), asyncio.current_task()
        assert task

        def stop() -> None:
            if not stopped:  # once: what is being given back shall not be left half way
                stopped.append(True)
                task.cancel()

        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            loop.add_signal_handler(number, stop)
        try:
            return await main()
        except asyncio.CancelledError:
            if stopped:
                return None
            raise

    answer = asyncio.run(watched())
    if stopped:
        raise KeyboardInterrupt
    return answer  # type: ignore[return-value]  # None only when it was stopped


@asynccontextmanager
async def opened(place: Place, project: Project | None) -> AsyncIterator[Place]:
    """The place, ready for instances, with what is known about its environment."""
    if project is None:
        yield await _known(place)
        return
    with tempfile.TemporaryDirectory(prefix="aenv-tasks-") as folder:
        packed = await asyncio.to_thread(packing.pack, project.path, Path(folder) / "project.tar.gz")
        eval_only = project.raw.get("evalOnly") is True
        async with _gateway(project, Path(folder) / "home") as url:
            yield replace(
                place, name=str(project.ref), url=url, api_key=None, digest=packed.digest, eval_only=eval_only
            )


async def _known(place: Place) -> Place:
    """The place with what the hub's record says about the environment, if there is one."""
    known = settings.client_settings()
    origin = control_origin(place.url) if place.url else await platform(known, _START)
    async with Api(origin, api_key=place.api_key, max_retries=3) as api:
        record = await Hub(api).find(refs.parse(place.name))
    return replace(place, digest=(record or {}).get("digest"))


@asynccontextmanager
async def _gateway(project: Project, home: Path) -> AsyncIterator[str]:
    """`aenv serve` of one project as a child process; its address."""
    from ..sandbox import probe

    missing = await asyncio.to_thread(probe.missing_isolation)
    reading, writing = os.pipe()
    command = [sys.executable, "-m", "aenv.cli", "serve", str(project.path), "--home", str(home)]
    command += ["--engine", "process" if missing else "native", "--port", "0", "--data-port", "0"]
    command += ["--data-root", "/", "--log-level", "WARNING", "--ready-fd", str(writing), "--idle-exit", "10m"]
    log = home.with_suffix(".log")
    with log.open("wb") as stderr:
        process = await asyncio.create_subprocess_exec(
            *command, stderr=stderr, pass_fds=(writing,), env=_variables(project), start_new_session=True
        )
    os.close(writing)  # ours, so that the child's exit reads as end-of-file
    try:
        line = await asyncio.to_thread(_line, reading)
        if not line:
            raise StartFailed(f"the gateway did not start: {log.read_text(errors='replace')}")
        yield mcp.loads(line)["url"]
    finally:
        await _end(process)


def _line(descriptor: int) -> bytes:
    with os.fdopen(descriptor, "rb") as pipe:
        return pipe.readline()


def _variables(project: Project) -> Mapping[str, str]:
    """Ours, and where the data is that the user has pulled: the gateway's own home has none."""
    data = project.raw.get("data")
    variables = dict(settings.variables())
    if isinstance(data, dict) and isinstance(data.get("name"), str) and isinstance(data.get("variable"), str):
        folder = settings.home() / "data" / data["name"]
        if folder.is_dir():
            variables.setdefault(data["variable"], str(folder))
    return variables


async def _end(process: asyncio.subprocess.Process) -> None:
    """Ask it to end, which ends its instances too, and see to it."""
    if process.returncode is None:
        with contextlib.suppress(ProcessLookupError):
            process.terminate()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(_GRACE):
                await process.wait()
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    await process.wait()
