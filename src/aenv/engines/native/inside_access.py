"""What can be done in an instance that lives, of whichever engine object: logs, commands, files, ports."""

from __future__ import annotations

import asyncio
import contextlib
import os
import sys
from collections.abc import AsyncIterator, Callable, Sequence
from pathlib import Path

from ...base.addresses import Origin
from ...base.errors import NotFound, StartFailed
from ...isolation import cgroups
from ...isolation.sandbox import interpreter, volumes
from ...isolation.sandbox.enter import EnterOrder
from ...isolation.sandbox.inside_paths import WORKSPACE
from ...isolation.sandbox.typed_json import encode
from .. import logfile, proc
from ..base import CommandOutput
from ..commands import Command, Commands
from ..folder import InstanceFolder
from ..gateway_relays import InstanceRelays
from ..workspace import Workspace, WorkspaceFiles, acting_as
from . import gvisor, sidecars
from .gvisor import Gvisor
from .relays import Relays

_LOG = ("var", "log"), "instance.log"
_OPEN_FILES = 1024  # of a command in an instance whose limit was not written down


class InsideAccess(WorkspaceFiles):
    """The part of the engine that needs nothing but an instance's folder and its processes."""

    _gvisor: Gvisor

    def __init__(self, root: Path, group_of: Callable[[InstanceFolder], cgroups.ControlGroup | None]) -> None:
        super().__init__(root)
        self._group_of = group_of
        self._relays = Relays()
        self._instance_relays = InstanceRelays(self._relays.listener)
        self.lead_to = self._instance_relays.lead_to
        self._commands = Commands()

    def logs(self, id: str, *, follow: bool = False) -> AsyncIterator[bytes]:
        folder, leader = self._living(id)
        if gvisor.is_one(folder):
            return self._gvisor.logs(folder, follow=follow)
        above, name = _LOG
        place = logfile.LogLocation(_files_of(leader), above, name, _acting_for(folder))
        return logfile.follow(place, id, leader) if follow else logfile.read(place, id)

    def exec(
        self, id: str, command: Sequence[str], *, stdin: bytes = b"", timeout: float | None = None
    ) -> AsyncIterator[CommandOutput]:
        """Run a command in the workspace, with the instance's variables, as confined as the instance is."""
        folder, leader = self._living(id)
        if gvisor.is_one(folder):
            return self._gvisor.exec(id, command, stdin=stdin, timeout=timeout)
        Command(command, Path("/"), {}, b"", None)  # says what is wrong with it
        group = self._group_of(folder)
        state = folder.read_state()
        order = EnterOrder(
            pid=leader.pid,
            start_time=leader.start_time,
            open_files=state.open_files or _OPEN_FILES,
            shares_network=bool(state.host_network),
            # Those that there are: the one for freezing is made when it is needed.
            groups=tuple(filter(os.path.isdir, group.folders if group else ())),
            command=tuple(command),
        )
        enter = [sys.executable, "-P", "-m", "aenv.isolation.sandbox.enter"]
        wanted = Command(enter, Path("/"), interpreter.variables(), stdin, timeout, encode(order))
        return self._commands.run(id, wanted, check=lambda: self._living(id))

    def why_no_volumes(self) -> str:
        return volumes.why_not()

    async def make_volume(self, place: Path, size_bytes: int) -> None:
        try:
            await asyncio.to_thread(volumes.make, place, size_bytes)
        except OSError as error:
            raise StartFailed(f"no storage of {size_bytes} bytes can be made: {error.strerror}") from error

    def why_no_shared_workspaces(self) -> str:
        return volumes.why_not()

    async def port(self, id: str, port: int) -> Origin:
        """Where a port of the instance can be reached: through a relay that stands in its network."""
        folder, leader = self._living(id)
        gvisor.refuse(folder, "ports")
        origin = await self._relays.origin(folder, leader, port)
        if origin is None:
            raise NotFound(f"port {port} not found: nothing in instance {id!r} listens there")
        return origin

    async def _adopted_ended(self, id: str) -> str:
        with contextlib.suppress(NotFound):
            return await sidecars.ended(*self._living(id))
        return "its process ended"

    def _workspace(self, id: str) -> Workspace:
        folder, leader = self._living(id)
        gvisor.refuse(folder, "files")
        acting = _acting_for(folder)
        if folder.read_state().workspace:  # a mount of ours; no file can be moved into it from elsewhere
            return Workspace(f"/proc/{leader.pid}/root{WORKSPACE}", id, (), (), acting=acting)
        return Workspace(_files_of(leader), id, ("workspace",), ("run",), acting=acting)


def _acting_for(folder: InstanceFolder) -> Callable[[], contextlib.AbstractContextManager[None]]:
    owner = folder.read_state().owner
    if owner is None:
        raise NotFound(f"files of instance {folder.id!r} not found: its state does not say which user it runs as")
    return lambda: acting_as(owner)


def _files_of(leader: proc.Process) -> str:
    """The root of an instance, as the host reaches it. Below it every step is taken without following links."""
    return f"/proc/{leader.pid}/root/."  # with the dot, or it would be the link itself that is opened
