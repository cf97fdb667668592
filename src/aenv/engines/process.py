"""The process engine: an instance is a child process in a folder and a session of its own.

Nothing keeps an instance apart from the host: it is for development and for code that you trust.
Everything about an instance is below `<home>/run/instances/<id>/`, so that an engine that is started
after a crash finds what the one before it left.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import socket
import subprocess
import sys
from collections.abc import AsyncIterator, Iterable, Iterator, Sequence
from dataclasses import fields
from functools import partial
from pathlib import Path
from typing import Any

from ..base import settings
from ..base.addresses import Origin
from ..base.config import Project
from ..base.errors import Conflict, InvalidRequest, NotFound, StartFailed, Unsupported
from ..base.supervision import to_the_end
from ..isolation.sandbox import protocol
from . import logfile, ports, proc
from .base import Address, CommandOutput, InstanceSpec, InstanceTerminal
from .commands import Command, Commands
from .descriptors import readable
from .endings import Endings
from .folder import InstanceFolder, bind
from .gateway_relays import InstanceRelays
from .instance_state import InstanceState
from .ready_lines import read_ready
from .terminals import PseudoTerminals, TerminalProgram
from .workspace import Workspace, WorkspaceFiles

logger = logging.getLogger("aenv.engines.process")

_MARK = "AENV_INSTANCE_ID"
_ROOT = "the host's own, all of it"
_GRACE = 3.0  # seconds between asking an instance to end and ending it
_TAIL_BYTES = 4096

Ids = list[str]


class ProcessEngine(WorkspaceFiles):
    """Makes instances as child processes. `python` runs those that ask for no other, and can import `aenv`."""

    name = "process"
    isolation: tuple[str, ...] = ()
    summary = "does not isolate instances, so serve only code that you trust"

    def __init__(self, home: Path, python: str = sys.executable) -> None:
        super().__init__(home.expanduser().absolute() / "run" / "instances")
        self._python = python
        self._commands = Commands()
        self._terminals = PseudoTerminals()
        self._instance_relays = InstanceRelays()
        self.lead_to = self._instance_relays.lead_to
        self._children: dict[str, subprocess.Popen[bytes]] = {}
        self._ending = Endings()

    def describe_rootfs(self, project: Project) -> str:
        return _ROOT

    def why_no_shared_workspaces(self) -> str:
        return ""

    async def create(self, spec: InstanceSpec) -> Address:
        _refuse(spec)
        folder = InstanceFolder(self._root, spec.id)
        try:
            folder.make(works_in=spec.works_in)
        except FileExistsError:
            raise Conflict(f"instance {spec.id!r} exists already") from None
        try:
            if spec.model or spec.uses_environments:
                spec = await self._instance_relays.opened(spec)
            # Nothing is awaited from here until the child runs, so that destroying this id finds all of it.
            if spec.id in self._ending or not folder.exists():
                raise StartFailed(f"the instance of {spec.environment!r} was destroyed while it started")
            ready = self._spawn(spec, folder)
            try:
                return await self._until_ready(spec, folder, ready)
            finally:
                os.close(ready)
        except BaseException:
            await to_the_end(self._end(spec.id, grace=0.0))
            raise

    async def destroy(self, id: str) -> None:
        """End the instance and everything it started, and remove its folder."""
        with contextlib.suppress(InvalidRequest):  # no instance has such an id
            await self._end(id, grace=_GRACE)

    async def running(self) -> dict[str, Address]:
        """The instances that live and are ready, also those of other engine objects on this home."""
        found: dict[str, Address] = {}
        for folder in self._folders():
            leader, state = folder.leader(), folder.read_state()
            if leader and state.tools is not None:
                not_enforced = state.not_enforced or ()
                found[folder.id] = _address(str(folder.socket), leader.pid, state.tools, not_enforced)
        return found

    async def leftovers(self) -> Ids:
        """Those that are not running: their process is gone, or they never became ready."""
        running = await self.running()
        return [folder.id for folder in self._folders() if folder.id not in running]

    async def ended(self, id: str) -> str:
        """Return, with the reason, when the instance has ended by itself (or has been destroyed)."""
        child = self._children.get(id)
        if child:
            await proc.ended(child.pid)
            return proc.how_it_ended(child.pid)
        with contextlib.suppress(NotFound):
            _, leader = self._living(id)
            with leader.opened() as process:
                if process is not None:
                    await readable(process)
        return "its process ended"  # only its parent learns how

    # What living instances can do besides

    def logs(self, id: str, *, follow: bool = False) -> AsyncIterator[bytes]:
        _, leader = self._living(id)
        place = logfile.LogLocation(self._root, (id,), "log")
        return logfile.follow(place, id, leader) if follow else logfile.read(place, id)

    def exec(
        self, id: str, command: Sequence[str], *, stdin: bytes = b"", timeout: float | None = None
    ) -> AsyncIterator[CommandOutput]:
        """Run a command in the workspace, with the instance's variables."""
        folder, leader = self._living(id)
        try:
            variables = {**proc.variables(leader.pid), _MARK: id}
        except OSError:  # it has just ended
            raise NotFound(f"instance {id!r} not found") from None
        wanted = Command(command, folder.workspace, variables, stdin, timeout)
        return self._commands.run(id, wanted, check=lambda: self._living(id))

    def terminal(
        self, id: str, command: Sequence[str], *, columns: int, rows: int
    ) -> contextlib.AbstractAsyncContextManager[InstanceTerminal]:
        folder, leader = self._living(id)
        try:
            variables = {**proc.variables(leader.pid), _MARK: id}
        except OSError:  # it has just ended
            raise NotFound(f"instance {id!r} not found") from None
        program = TerminalProgram(command, folder.workspace, variables)
        check = partial(self._living, id)
        return self._terminals.open(id, program, check, columns=columns, rows=rows)

    def why_no_terminal(self, id: str) -> str:
        self._living(id)
        return ""

    async def port(self, id: str, port: int) -> Origin:
        """Where a port of the instance can be reached: only one on which a process of the instance listens."""
        _, leader = self._living(id)
        origin = await asyncio.to_thread(lambda: ports.find(port, proc.members(leader.pid, _mark(id))))
        if origin is None:
            raise NotFound(f"port {port} not found: nothing in instance {id!r} listens there")
        return origin

    def _workspace(self, id: str) -> Workspace:
        folder, _ = self._living(id)
        return Workspace(self._root, id, (folder.works_in, "workspace"), (id,))

    def _folders(self) -> Iterator[InstanceFolder]:
        for path in sorted(self._root.glob("*/")):
            with contextlib.suppress(InvalidRequest):  # a folder that is not an instance's
                yield InstanceFolder(self._root, path.name)

    # Starting

    def _spawn(self, spec: InstanceSpec, folder: InstanceFolder) -> int:
        """Start the instance's process; returns the pipe on which it says that it is ready."""
        ready, ready_inside = os.pipe()
        listener = socket.socket(socket.AF_UNIX)
        try:
            bind(listener, folder.socket)
            listener.listen(1024)
            python = str(spec.python.executable) if spec.python else self._python
            command = [python, "-m", "aenv.main", str(spec.project.absolute())]
            command += ["--fd", str(listener.fileno()), "--ready-fd", str(ready_inside), *_options(spec)]
            if spec.storage:
                spec.storage.mkdir(parents=True, exist_ok=True, mode=0o700)
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
        started = proc.start_time(child.pid)
        folder.write_state(InstanceState(pid=child.pid, start_time=started, environment=spec.environment))
        return ready

    async def _until_ready(self, spec: InstanceSpec, folder: InstanceFolder, ready: int) -> Address:
        what = f"the instance of {spec.environment!r}"
        try:
            async with asyncio.timeout(spec.start_timeout):
                line = await _read_line(ready)
        except TimeoutError:
            printed = _tail(folder.log)
            raise StartFailed(f"{what} was not ready within {spec.start_timeout:g} s{printed}") from None
        if not line.endswith(b"\n") and len(line) <= protocol.MAX_READY_BYTES:
            raise StartFailed(f"{what} ended before it was ready{_tail(folder.log)}")
        said = await read_ready(lambda: protocol.ready(line), what)
        if spec.id in self._ending or not folder.exists():
            raise StartFailed(f"{what} was destroyed while it started")
        not_enforced = _not_enforced(spec)
        folder.write_state(InstanceState(tools=said.tools, not_enforced=not_enforced))
        return _address(str(folder.socket), self._children[spec.id].pid, said.tools, not_enforced)

    # Ending

    async def _end(self, id: str, grace: float) -> None:
        await self._ending.end(id, lambda: self._clear(id, grace))

    async def _clear(self, id: str, grace: float) -> None:
        folder = InstanceFolder(self._root, id)
        await self._instance_relays.stop(id)
        child = self._children.get(id)
        if not child and not folder.exists():
            return
        leader = folder.leader()
        await proc.end(child.pid if child else leader.pid if leader else None, _mark(id), grace)
        if child:
            child.wait()  # over already; only now may its pid be used again
            self._children.pop(id, None)
        await asyncio.to_thread(folder.remove)


def _mark(id: str) -> bytes:
    """What the variables of an instance's processes hold."""
    return f"{_MARK}={id}".encode()


def _refuse(spec: InstanceSpec) -> None:
    """What must not be ignored is refused; what makes no difference to others is only mentioned."""
    if spec.isolation:
        raise Unsupported(f"the process engine cannot isolate by {spec.isolation!r}, nor by anything else")
    if (spec.data and not spec.data_variable) or spec.sidecar:
        logger.warning("the process engine has no use for its datasource")


def _not_enforced(spec: InstanceSpec) -> tuple[str, ...]:
    names = [field.name for field in fields(spec.limits) if getattr(spec.limits, field.name) is not None]
    names += ["network"] if spec.network.kind != "full" else []
    return tuple(f"{name}: the process engine limits nothing" for name in names)


def _options(spec: InstanceSpec) -> list[str]:
    """What the runtime is told besides where it listens."""
    requirements = ["--requirements", str(spec.requirements.absolute())] if spec.requirements else []
    history = [] if spec.keep_history else ["--no-history"]
    return [*requirements, *history, "--", *spec.arguments]


def _variables(spec: InstanceSpec, folder: InstanceFolder) -> dict[str, str]:
    """The variables of an instance: few, and none of this process's own, which may be secret."""
    ours = settings.variables()
    variables = {
        "PATH": ours.get("PATH", os.defpath),
        "LANG": ours.get("LANG", "C.UTF-8"),
        "HOME": str(folder.workspace),
        "TMPDIR": str(folder.temporary),
        **spec.environment_variables,
        **({spec.data_variable: str(spec.data)} if spec.data_variable else {}),
        **{variable: str(folder) for variable, folder in spec.folders.items()},
        _MARK: spec.id,
        "AENV_ENVIRONMENT": spec.environment,
        "AENV_WORKSPACE": str(folder.workspace),
    }
    if spec.call_timeout is not None:
        variables["AENV_CALL_TIMEOUT"] = f"{spec.call_timeout:g}"
    if spec.storage:
        variables["AENV_STORAGE"] = str(spec.storage.absolute())
    return variables


def _address(path: str, pid: int, tools: list[dict[str, Any]], not_enforced: Iterable[str]) -> Address:
    return Address(Origin("localhost", socket=path), pid, tools, _ROOT, tuple(not_enforced))


async def _read_line(descriptor: int) -> bytes:
    """One line from a pipe; what there is of it when the other end closes first."""
    line = bytearray()
    while not line.endswith(b"\n") and len(line) <= protocol.MAX_READY_BYTES:
        await readable(descriptor)
        chunk = os.read(descriptor, 1 << 16)
        if not chunk:
            break
        line += chunk
    return bytes(line)


def _tail(log: Path) -> str:
    """The end of what an instance printed, set off as a sentence's last part."""
    try:
        text = log.read_bytes()[-_TAIL_BYTES:].decode(errors="replace").strip()
    except OSError:
        text = ""
    return f"; it printed last:\n{text}" if text else " and printed nothing"
