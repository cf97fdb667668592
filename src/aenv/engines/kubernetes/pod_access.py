"""What can be done in Pods that run, whichever gateway made them: logs, commands, files and ports.

A Pod cannot be stopped in its tracks, so there is no freezing.
"""

from __future__ import annotations

import asyncio
import contextlib
from abc import ABC, abstractmethod
from collections.abc import AsyncIterable, AsyncIterator, Sequence

from ...base.addresses import Origin
from ...base.errors import NotFound
from ..base import MAX_ENTRIES, CommandOutput, FileEntry
from ..containers.container_commands import ContainerCommands, PortRelays, Program, StartProgram
from ..containers.container_files import ContainerFiles
from ..containers.container_plan import PORT, VARIABLES_FILE
from ..containers.ready_log import ReadyLog
from . import pod_state
from .cluster_client import Cluster
from .pod_programs import PodProgram, listens, open_relay
from .pod_state import Pod

_TAIL_LINES = 60
_TAIL_BYTES = 4096
_REACHED_WITHIN = 2.0  # seconds in which a port of a Pod answers, or a packet filter has swallowed the question

Entries = list[FileEntry]  # the class below has a method `list`


class PodAccess(ABC):
    """The part of the engine that needs nothing but an instance's Pod."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self._commands = ContainerCommands()
        self._relays = PortRelays()

    @abstractmethod
    async def _find(self, id: str) -> Pod:
        """The Pod of an instance that runs; NotFound when it does not."""

    async def logs(self, id: str, *, follow: bool = False) -> AsyncIterator[bytes]:
        pod = await self._find(id)
        log = ReadyLog()
        async with self._cluster.log(_name(pod), "main", follow=follow) as pieces:
            async for piece in pieces:
                if text := log.feed(piece):
                    yield text
        if rest := log.rest():
            yield rest

    async def exec(
        self, id: str, command: Sequence[str], *, stdin: bytes = b"", timeout: float | None = None
    ) -> AsyncIterator[CommandOutput]:
        """Run a command in the workspace, with the instance's variables, as confined as the instance is."""
        start = await self._starter(id)
        running = self._commands.run(id, start, command, stdin, timeout, variables_file=VARIABLES_FILE)
        async with contextlib.aclosing(running) as outputs:
            async for output in outputs:
                yield output

    async def put(self, id: str, path: str, content: AsyncIterable[bytes]) -> int:
        return await (await self._files(id)).put(path, content)

    async def read(self, id: str, path: str) -> AsyncIterator[bytes]:
        async for piece in (await self._files(id)).read(path):
            yield piece

    async def list(self, id: str, path: str = "", *, after: str = "", limit: int = MAX_ENTRIES) -> Entries:
        return await (await self._files(id)).entries(path, after=after, limit=limit)

    async def remove(self, id: str, path: str) -> None:
        await (await self._files(id)).remove(path)

    async def port(self, id: str, port: int) -> Origin:
        """Where a port of the instance can be reached: at its Pod's address, else through a relay in the Pod."""
        pod = await self._find(id)
        host = pod_state.address(pod)
        if 0 < port < 65536 and port != PORT:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(_REACHED_WITHIN):
                    if await listens(host, port):
                        return Origin(host, port)
        return await self._relays.origin(id, port, lambda: open_relay(self._cluster, _name(pod), host, id, port))

    async def _printed(self, name: str) -> str:
        """The end of what its main container printed, set off as a sentence's last part."""
        text = b""
        with contextlib.suppress(Exception):  # boundary: the cluster; the reason is known without it
            async with asyncio.timeout(5), self._cluster.log(name, "main", tail=_TAIL_LINES) as pieces:
                async for piece in pieces:
                    text += piece
        shown = text[-_TAIL_BYTES:].decode(errors="replace").strip()
        return f"; it printed last:\n{shown}" if shown else ""

    async def _files(self, id: str) -> ContainerFiles:
        return ContainerFiles(id, await self._starter(id))

    async def _starter(self, id: str) -> StartProgram:
        """Starts programs in the instance's main container."""
        name = _name(await self._find(id))

        async def start(words: Sequence[str]) -> Program:
            try:
                return await PodProgram.start(self._cluster, name, words)
            except NotFound:
                raise NotFound(f"instance {id!r} not found") from None

        return start


def _name(pod: Pod) -> str:
    return str(pod["metadata"]["name"])
