"""The per-user platform: with nothing configured, the SDK finds it by its unix socket or starts it.

It is a gateway like any other, in a process of its own, so that several programs share it and none of their
crashes ends the others' instances. It goes away after ten minutes without instances.

A platform that runs may be of another version, after an upgrade for example. The programs that started it go on
using it, and its instances live on. This version does not use it, since it may start instances with modules that
are no longer installed: a platform of this version is started beside it, on the same home folder.
"""

from __future__ import annotations

import asyncio
import fcntl
import os
import select
import socket
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TypeVar

from .. import __version__
from ..base.addresses import Origin
from ..base.errors import ConnectFailed, EnvironmentError, GrantExceeded, NotFound, Unavailable
from ..base.settings import ClientSettings
from .api import Api

T = TypeVar("T")

_IDLE_EXIT = "10m"
_VERSIONS: dict[tuple[Path, int, int], str] = {}
"""What platforms have said, by their sockets: a program asks each of them once."""
# Forks before it starts the platform, so that the platform is not the user's child: no process has to wait
# for it, and no signal to the program's process group reaches it.
_DETACH = """
import os, sys
if os.fork():
    os._exit(0)
os.setsid()
os.execv(sys.executable, [sys.executable, *sys.argv[1:]])
"""


async def platform(settings: ClientSettings, timeout: float, *, instances: bool = True) -> Origin:
    """Where the user's platform listens, started if need be.

    Refused for `instances` that would not be isolated; its hub is there for everyone.
    """
    if settings.instance_id:
        raise GrantExceeded(
            f"instance {settings.instance_id!r} may use no other environments: its config.json has no 'grants'; "
            'add, for example, "grants": {"environments": ["name@^1"]}'
        )
    from ..isolation.sandbox import probe  # what it imports is for this moment alone

    path = await _socket(settings.home / "run", timeout)
    # Asked also when it runs: the program that started it may allow what this one does not.
    missing = await asyncio.to_thread(probe.missing_isolation) if instances or not _answers(path) else None
    if missing and instances and not settings.allow_unisolated:
        raise EnvironmentError(
            f"instances cannot be isolated on this host: {missing}; run 'aenv doctor' for details. "
            "To go on without isolation, set AENV_ALLOW_UNISOLATED=1; to use a gateway, set AENV_SYSTEM_URL"
        )
    if not _answers(path):
        engine = "process" if missing and settings.allow_unisolated else "native"
        await asyncio.to_thread(_start, settings.home, path, engine, timeout)
        if await _socket(settings.home / "run", timeout) != path:  # a program of another version was faster
            return await platform(settings, timeout, instances=instances)
    return _origin(path)


@contextmanager
def other_ways() -> Iterator[None]:
    """An environment that the platform does not have is its author's, perhaps, who is told how to get there."""
    try:
        yield
    except NotFound as error:
        if not error.message.startswith("environment "):
            raise
        raise NotFound(
            f"{error.message}. 'aenv push' in its folder publishes it there; to use what 'aenv run' serves, "
            "set DUMMY_INSTANCE_IP to the address that it prints",
            error.env_name,
            error.details,
        ) from None


def _origin(path: Path) -> Origin:
    return Origin("localhost", socket=str(path), source="your own platform: no gateway is configured")


async def _socket(run: Path, timeout: float) -> Path:
    """Where the platform of this version listens, or will."""
    usual = run / "platform.sock"
    if await _version(usual, timeout) in (None, __version__):
        return usual
    return run / f"platform-{__version__}.sock"


async def _version(path: Path, timeout: float) -> str | None:
    """The version of the platform that listens there: empty for builds that do not tell, None where none does."""
    if not _answers(path):
        return None
    try:
        made = os.stat(path)
        known = (path, made.st_ino, made.st_ctime_ns)  # each platform makes its socket anew
        if known not in _VERSIONS:
            async with Api(_origin(path), timeout=timeout, max_retries=0) as api:
                _VERSIONS[known] = str((await api.call("GET", "/health")).get("version", ""))
    except (FileNotFoundError, ConnectFailed):  # it has just ended
        return None
    return _VERSIONS[known]


def found_by(url: str | None, datasource: str) -> str:
    """A folder of this program's, named so that the platform, which runs elsewhere, finds it; not for others."""
    is_ours = not url and datasource.startswith(("./", "~"))
    return str(Path(datasource).expanduser().absolute()) if is_ours else datasource


def forwarded(url: str | None, environment: str, given: Mapping[str, T]) -> dict[str, str | T]:
    """`given`, and this program's own variables that tell where the data of a built-in environment is.

    The platform may have been started by a program that had others. Not for gateways elsewhere.
    """
    if url:
        return dict(given)
    # Here alone: programs of other gateways need no config.json.
    from ..artifacts.data.data_folders import of_built_in

    return {**of_built_in(environment.partition("@")[0]), **given}


def _answers(path: Path) -> bool:
    with socket.socket(socket.AF_UNIX) as probe:
        try:
            probe.connect(str(path))
        except OSError:
            return False
    return True


def _start(home: Path, path: Path, engine: str, timeout: float) -> None:
    """Start the platform unless another process does so at this moment; return when it listens."""
    path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    with (path.parent / "platform.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if _answers(path):
            return
        ready, ready_child = os.pipe()
        command = ["-m", "aenv.cli", "serve", "--socket", str(path), "--home", str(home), "--engine", engine]
        # What the user can read is theirs to give to their instances.
        command += ["--model-url", "loopback"]
        command += ["--data-root", "/", "--idle-exit", _IDLE_EXIT, "--ready-fd", str(ready_child)]
        log_file = path.with_suffix(".log")
        command += ["--log-file", str(log_file)]
        with log_file.open("ab") as log:  # for what it says before it logs, and when it crashes
            try:
                subprocess.run(
                    [sys.executable, "-c", _DETACH, *command],
                    stdin=subprocess.DEVNULL,
                    stdout=log,
                    stderr=log,
                    pass_fds=(ready_child,),
                    check=True,
                )
            finally:
                os.close(ready_child)  # ours, so that the child's end reads as end-of-file
        _wait(ready, path, timeout)


def _wait(ready: int, path: Path, timeout: float) -> None:
    with os.fdopen(ready, "rb") as pipe:
        readable, _, _ = select.select([pipe], [], [], timeout)
        if not readable or not pipe.readline():
            raise Unavailable(f"the local platform did not start; see {path.with_suffix('.log')}")
