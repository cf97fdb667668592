"""What can be done in containers that live, of whichever engine object: logs, commands, files, ports, freezing."""

from __future__ import annotations

import asyncio
import contextlib
import os
from collections.abc import AsyncGenerator, AsyncIterable, AsyncIterator, Mapping, Sequence
from pathlib import Path

from ...base.addresses import Origin
from ...base.errors import InvalidRequest, NotFound
from ..base import MAX_ENTRIES, CommandOutput, FileEntry, ResourceUsage
from ..containers.container_commands import ContainerCommands, PortRelays, Program
from ..containers.ready_log import ReadyLog
from ..folder import InstanceFolder
from ..workspace import Workspace, acting_as
from .container_programs import ContainerProgram, open_relay
from .docker_api import DockerApi, DockerRefused, frames

FILES = "files"
"""The folder of an instance with the workspace, and with files on their way there."""

Entries = list[FileEntry]  # the class below has a method `list`
Ids = list[str]


def container_name(id: str, part: str = "") -> str:
    return f"aenv-{id}.{part}" if part else f"aenv-{id}"


class ContainerAccess:
    """The part of the engine that needs nothing but an instance's folder and its containers.

    `owner` is the user who runs in main containers, as the host counts users.
    """

    def __init__(self, root: Path, api: DockerApi, owner: int) -> None:
        self._root = root
        self._api = api
        self._owner = owner
        self._commands = ContainerCommands()
        self._relays = PortRelays()

    async def logs(self, id: str, *, follow: bool = False) -> AsyncIterator[bytes]:
        self._folder(id)
        log, container = ReadyLog(), container_name(id)
        try:
            output = self._output_to_its_end(container) if follow else self._output(container)
            async with contextlib.aclosing(output):
                async for piece in output:
                    if shown := log.feed(piece):
                        yield shown
        except DockerRefused:
            raise NotFound(f"instance {id!r} not found") from None
        if rest := log.rest():
            yield rest

    async def exec(
        self, id: str, command: Sequence[str], *, stdin: bytes = b"", timeout: float | None = None
    ) -> AsyncIterator[CommandOutput]:
        """Run a command in the workspace, with the instance's variables, as confined as the instance is."""
        self._folder(id)

        async def start(words: Sequence[str]) -> Program:
            return await ContainerProgram.start(self._api, container_name(id), words)

        running = self._commands.run(id, start, command, stdin, timeout)
        async with contextlib.aclosing(running) as outputs:
            async for output in outputs:
                yield output

    async def port(self, id: str, port: int) -> Origin:
        """Where a port of the instance can be reached: through a relay that runs in its container."""
        place = self._folder(id).socket.parent
        try:
            return await self._relays.origin(
                id, port, lambda: open_relay(self._api, container_name(id), id, port, place)
            )
        except NotFound as error:
            raise (error if error.message.startswith("port") else NotFound(f"instance {id!r} not found")) from None

    async def freeze(self, id: str) -> None:
        self._folder(id)
        try:
            for part in self._parts(id):
                await self._pause(part)
        except DockerRefused as error:
            raise NotFound(f"instance {id!r} not found: {error.message}") from None

    async def thaw(self, id: str) -> None:
        for part in self._parts(id):
            with contextlib.suppress(DockerRefused):  # it is not paused, or gone, which its next call will say
                await self._api.call("POST", f"/containers/{part}/unpause")

    async def _pause(self, container: str) -> None:
        try:
            await self._api.call("POST", f"/containers/{container}/pause")
        except DockerRefused as error:
            if "already paused" not in error.message:
                raise

    def _parts(self, id: str) -> Ids:
        """The names of its containers, the sidecar's first."""
        return [*([container_name(id, "sidecar")] if self._has_sidecar(id) else []), container_name(id)]

    async def put(self, id: str, path: str, content: AsyncIterable[bytes]) -> int:
        async with self._workspace(id) as workspace:
            return await workspace.put(path, content)

    async def read(self, id: str, path: str) -> AsyncIterator[bytes]:
        async with self._workspace(id) as workspace:
            async for piece in workspace.read(path):
                yield piece

    async def list(self, id: str, path: str = "", *, after: str = "", limit: int = MAX_ENTRIES) -> Entries:
        async with self._workspace(id) as workspace:
            return await workspace.entries(path, after=after, limit=limit)

    async def remove(self, id: str, path: str) -> None:
        async with self._workspace(id) as workspace:
            await workspace.remove(path)

    @contextlib.asynccontextmanager
    async def _workspace(self, id: str) -> AsyncIterator[Workspace]:
        """The files of an instance that lives, reached as the user who runs in it."""
        folder = self._folder(id)
        try:
            state = (await self._api.call("GET", f"/containers/{container_name(id)}/json"))["State"]
            # Opened before we act as that user, who may not enter the folders above.
            opened = os.open(folder.path / FILES, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
        except (DockerRefused, OSError):
            raise NotFound(f"instance {id!r} not found") from None
        try:
            if not state["Running"]:
                raise NotFound(f"instance {id!r} not found")
            root = f"/proc/self/fd/{opened}/."
            yield Workspace(root, id, ("workspace",), ("aside",), acting=lambda: acting_as(self._owner))
        finally:
            os.close(opened)

    async def used(self, ids: Sequence[str]) -> Mapping[str, ResourceUsage]:
        found = await asyncio.gather(*(self._used(id) for id in ids))
        return {id: usage for id, usage in zip(ids, found, strict=True) if usage}

    async def _used(self, id: str) -> ResourceUsage | None:
        try:
            told = await self._api.call(
                "GET", f"/containers/{container_name(id)}/stats", **{"stream": "false", "one-shot": "true"}
            )
        except DockerRefused:
            return None
        cpu = told.get("cpu_stats", {}).get("cpu_usage", {}).get("total_usage", 0)
        memory = told.get("memory_stats", {}).get("usage", 0)
        processes = told.get("pids_stats", {}).get("current", 0)
        return ResourceUsage(cpu / 1e9, memory, processes) if processes else None

    # Parts

    def _has_sidecar(self, id: str) -> bool:
        with contextlib.suppress(InvalidRequest):
            return InstanceFolder(self._root, id).read_state().sidecar is not None
        return False

    async def _output_to_its_end(self, container: str) -> AsyncGenerator[bytes, None]:
        """Docker stops following when the container ends, sometimes before its last bytes: they are read then."""
        seen = 0
        async with contextlib.aclosing(self._output(container, follow=True)) as output:
            async for piece in output:
                seen += len(piece)
                yield piece
        with contextlib.suppress(DockerRefused):  # it is gone with its log
            async with contextlib.aclosing(self._output(container)) as output:
                async for piece in output:
                    if rest := piece[seen:]:
                        yield rest
                    seen = max(0, seen - len(piece))

    async def _output(self, container: str, *, follow: bool = False) -> AsyncGenerator[bytes, None]:
        response = await self._api.response(
            "GET", f"/containers/{container}/logs", follow=int(follow), stdout=1, stderr=1
        )
        try:
            async for _, piece in frames(aiter(response)):
                yield piece
        finally:
            response.close()

    def _folder(self, id: str) -> InstanceFolder:
        with contextlib.suppress(InvalidRequest):
            folder = InstanceFolder(self._root, id)
            if folder.exists():
                return folder
        raise NotFound(f"instance {id!r} not found")
