"""Programs that Docker starts in a container, and the way to a port through one of them."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncGenerator, AsyncIterator, Sequence
from pathlib import Path

from ...base.addresses import Origin
from ...base.errors import NotFound, StartFailed
from ..containers.container_commands import RELAY, OpenRelay, until_listening
from ..containers.container_plan import RUN
from ..folder import take_socket
from .docker_api import DockerApi, DockerRefused, frames

_PIECE_BYTES = 64 << 10
LONGEST = "port-65535"
"""The longest name of a socket."""
SHARED_RUN = "run"
"""The folder, beside the sockets that the gateway connects to, which the container sees as RUN."""
_PATIENCE = 10.0  # seconds in which a program ends whose caller has left


class ContainerProgram:
    """A program in a container, and the connection to its standard streams."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._input = writer

    @classmethod
    async def start(cls, api: DockerApi, container: str, words: Sequence[str]) -> ContainerProgram:
        """NotFound when the container does not run."""
        asked = {
            "Cmd": list(words),
            "AttachStdin": True,
            "AttachStdout": True,
            "AttachStderr": True,
            "Tty": False,
        }
        try:
            made = await api.call("POST", f"/containers/{container}/exec", asked)
            return cls(*await api.hijacked(f"/exec/{made['Id']}/start", {"Detach": False, "Tty": False}))
        except DockerRefused as error:
            # 409: it is stopped or paused. A paused one is thawed before it is asked.
            if error.answered in (404, 409):
                raise NotFound(f"container {container!r} not found: {error.message}") from None
            raise StartFailed(f"no program can be started in {container!r}: {error.message}") from None

    async def write(self, data: bytes) -> None:
        with contextlib.suppress(OSError):  # it has ended, which its outputs say
            self._input.write(data)
            await self._input.drain()

    async def outputs(self) -> AsyncGenerator[tuple[int, bytes], None]:
        """What it writes, by stream; ends with the program, or with its container."""
        with contextlib.suppress(OSError):
            async for frame in frames(self._pieces()):
                yield frame

    async def _pieces(self) -> AsyncIterator[bytes]:
        while piece := await self._reader.read(_PIECE_BYTES):
            yield piece

    async def leave(self) -> None:
        """Let it end, and return when it has."""
        try:
            with contextlib.suppress(OSError, TimeoutError):
                self._input.write_eof()
                async with asyncio.timeout(_PATIENCE):
                    while await self._reader.read(_PIECE_BYTES):
                        pass
        finally:
            self.close()

    def close(self) -> None:
        self._input.close()


async def open_relay(api: DockerApi, container: str, id: str, port: int, place: Path) -> OpenRelay:
    """A relay to a port of the container; `place` is the folder of the instance's sockets."""
    name = f"port-{port}"
    program = await ContainerProgram.start(api, container, (*RELAY, str(port), f"{RUN}/{name}"))
    try:
        await until_listening(program, id, port)
        take_socket(place / SHARED_RUN / name, place / name)
        return OpenRelay(program, Origin("localhost", socket=str(place / name)))
    except BaseException:
        program.close()
        raise
