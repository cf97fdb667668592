"""The process engine: an instance is a child process in a folder and a session of its own.

Nothing keeps an instance apart from the host: it is for development and for code that you trust.
Everything about an instance is below `<home>/run/instances/<id>/`, so that an engine that is started
after a crash finds what the one before it left.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import signal
import socket
import subprocess
import sys
from pathlib import Path
from typing import Any

from .. import settings
from ..addresses import Origin
from ..errors import Conflict, StartFailed
from . import proc
from .base import Address, InstanceSpec
from .folder import InstanceFolder

_GRACE = 3.0  # seconds between asking an instance to end and ending it
_TAIL_BYTES = 4096


class ProcessEngine:
    """Makes instances as child processes. `python` runs them, and must be able to import `aenv`."""

    name = "process"
    isolation: tuple[str, ...] = ()

    def __init__(self, home: Path, python: str = sys.executable) -> None:
        self._root = home.expanduser().absolute() / "run" / "instances"
        self._python = python
        self._children: dict[str, subprocess.Popen[bytes]] = {}
        self._ending: dict[str, asyncio.Task[None]] = {}

    async def create(self, spec: InstanceSpec) -> Address:
        """Return once the instance serves requests. On failure, and on cancellation, leave nothing behind."""
        folder = InstanceFolder(self._root / spec.id)
        try:
            folder.make()
        except FileExistsError:
            raise Conflict(f"instance {spec.id!r} exists already") from None
        try:
            # Nothing is awaited before the child runs, so whoever destroys this id finds all of it.
            ready = self._spawn(spec, folder)
            try:
                return await self._until_ready(spec, folder, ready)
            finally:
                os.close(ready)
        except BaseException:
            await self._end(spec.id, grace=0.0)
            raise

    async def destroy(self, id: str) -> None:
        """End the instance and everything it started, and remove its folder."""
        await self._end(id, grace=_GRACE)

    async def running(self) -> dict[str, Address]:
        """The instances that live now. What remains of others, whose process is gone, is removed."""
        found: dict[str, Address] = {}
        for path in sorted(self._root.glob("*/")):
            folder = InstanceFolder(path)
            state = folder.read_state()
            if self._leader(state) is None:
                await self.destroy(folder.id)
            else:
                found[folder.id] = Address(_origin(state["socket"]), state["pid"], state.get("tools", []))
        return found

    async def ended(self, id: str) -> str:
        """Return, with the reason, when the instance has ended by itself (or has been destroyed)."""
        child = self._children.get(id)
        if child is None:
            return "it is gone"
        await proc.ended(child.pid)
        return proc.how_it_ended(child.pid)

    # Starting

    def _spawn(self, spec: InstanceSpec, folder: InstanceFolder) -> int:
        """Start the instance's process; returns the pipe on which it says that it is ready."""
        ready, ready_inside = os.pipe()
        listener = socket.socket(socket.AF_UNIX)
        try:
            listener.bind(str(folder.socket))
            listener.listen(1024)
            command = [self._python, "-m", "aenv.main", str(spec.project.absolute())]
            command += [
                "--fd",
                str(listener.fileno()),
                "--ready-fd",
                str(ready_inside),
                "--",
                *spec.arguments,
            ]
            with folder.log.open("ab") as log:
                child = subprocess.Popen(
                    command,
                    cwd=folder.workspace,
                    env=_variables(spec, folder),
                    stdin=subprocess.DEVNULL,
                    stdout=log,
                    stderr=log,
                    pass_fds=(listener.fileno(), ready_inside),
                    start_new_session=True,
                )
        except (OSError, ValueError) as error:
            os.close(ready)
            raise StartFailed(f"cannot start an instance of {spec.environment!r}: {error}") from error
        finally:
            listener.close()
            os.close(ready_inside)  # ours, so that the child's exit reads as end-of-file
        self._children[spec.id] = child
        folder.write_state(pid=child.pid, start_time=proc.start_time(child.pid), environment=spec.environment)
        return ready

    async def _until_ready(self, spec: InstanceSpec, folder: InstanceFolder, ready: int) -> Address:
        what = f"the instance of {spec.environment!r}"
        try:
            async with asyncio.timeout(spec.start_timeout):
                line = await _read_line(ready)
        except TimeoutError:
            printed = _tail(folder.log)
            raise StartFailed(f"{what} was not ready within {spec.start_timeout:g} s{printed}") from None
        if not line.endswith(b"\n"):
            raise StartFailed(f"{what} ended before it was ready{_tail(folder.log)}")
        said = json.loads(line)
        if not said["ready"]:
            raise StartFailed(f"{what} failed to load: {said['error'].strip()}")
        if spec.id in self._ending or not folder.exists():
            raise StartFailed(f"{what} was destroyed while it started")
        folder.write_state(tools=said["tools"])
        return Address(_origin(str(folder.socket)), self._children[spec.id].pid, said["tools"])

    # Ending

    async def _end(self, id: str, grace: float) -> None:
        # One task per instance, shared by all who want it gone, and not theirs to cancel half-way.
        task = self._ending.get(id)
        if task is None:
            task = self._ending[id] = asyncio.create_task(self._clear(id, grace))
            task.add_done_callback(lambda _: self._ending.pop(id))
        await asyncio.shield(task)

    async def _clear(self, id: str, grace: float) -> None:
        folder = InstanceFolder(self._root / id)
        child = self._children.get(id)
        if not child and not folder.exists():
            return
        leader = child.pid if child else self._leader(folder.read_state())
        mark = f"AENV_INSTANCE_ID={id}".encode()
        if leader is not None and grace:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(leader, signal.SIGTERM)
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(grace):
                    await proc.ended(leader)
        # In rounds: what is being killed may have just started something else.
        while rest := await asyncio.to_thread(proc.members, leader, mark):
            for pid in rest:
                proc.send(pid, signal.SIGKILL)
            await asyncio.gather(*(proc.ended(pid) for pid in rest))
        if child:
            child.wait()  # over already; only now may its pid be used again
            self._children.pop(id, None)
        await asyncio.to_thread(folder.remove)

    def _leader(self, state: dict[str, Any]) -> int | None:
        """The pid in `state`, unless that process is gone, or another process has the number by now."""
        pid = state.get("pid")
        return pid if pid and proc.start_time(pid) == state["start_time"] else None


def _variables(spec: InstanceSpec, folder: InstanceFolder) -> dict[str, str]:
    """The variables of an instance: few, and none of this process's own, which may be secret."""
    ours = settings.variables()
    variables = {
        "PATH": ours.get("PATH", os.defpath),
        "LANG": ours.get("LANG", "C.UTF-8"),
        "HOME": str(folder.workspace),
        "TMPDIR": str(folder.temporary),
        **spec.environment_variables,
        "AENV_INSTANCE_ID": spec.id,
        "AENV_ENVIRONMENT": spec.environment,
        "AENV_WORKSPACE": str(folder.workspace),
    }
    if spec.call_timeout is not None:
        variables["AENV_CALL_TIMEOUT"] = f"{spec.call_timeout:g}"
    return variables


def _origin(path: str) -> Origin:
    return Origin("localhost", socket=path)


async def _read_line(descriptor: int) -> bytes:
    """One line from a pipe; what there is of it when the other end closes first."""
    loop = asyncio.get_running_loop()
    line = bytearray()
    complete = loop.create_future()

    def read() -> None:
        chunk = os.read(descriptor, 1 << 16)
        line.extend(chunk)
        if (not chunk or chunk.endswith(b"\n")) and not complete.done():
            complete.set_result(None)

    loop.add_reader(descriptor, read)
    try:
        await complete
    finally:
        loop.remove_reader(descriptor)
    return bytes(line)


def _tail(log: Path) -> str:
    """The end of what an instance printed, set off as a sentence's last part."""
    try:
        text = log.read_bytes()[-_TAIL_BYTES:].decode(errors="replace").strip()
    except OSError:
        text = ""
    return f"; it printed last:\n{text}" if text else " and printed nothing"
