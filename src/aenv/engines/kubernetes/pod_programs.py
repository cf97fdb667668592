"""Programs that are started in a Pod through the API server, and the way to a port through one of them."""

from __future__ import annotations

import asyncio
import contextlib
import json
import secrets
import tempfile
from collections.abc import AsyncGenerator, Sequence
from pathlib import Path

from ...base.addresses import Origin
from ...base.errors import AEnvError, InvalidRequest, NotFound, StartFailed, Unavailable
from ..containers.container_commands import RELAY, OpenRelay, until_listening
from .cluster_client import Cluster, ProgramChannels

_PIECE_BYTES = 64 << 10
_WAITING = 4  # messages that are held for who reads slowly
_PATIENCE = 10.0  # seconds in which a program ends whose caller has left
# Before version 5 of the protocol, standard input cannot be ended alone: one byte more says the same.
_LEAVE = b"\x04"


class PodProgram:
    """A program in a container of a Pod. The task that it is read in owns the connection."""

    def __init__(self) -> None:
        self._pieces: asyncio.Queue[tuple[int, bytes]] = asyncio.Queue(_WAITING)
        self._opened: asyncio.Future[ProgramChannels] = asyncio.get_running_loop().create_future()
        self._task: asyncio.Task[None] | None = None

    @classmethod
    async def start(cls, cluster: Cluster, pod: str, words: Sequence[str], container: str = "main") -> PodProgram:
        """NotFound when there is no such Pod, or its container does not run."""
        program = cls()
        program._task = asyncio.create_task(program._run(cluster, pod, container, words))
        try:
            await program._opened
        except BaseException:
            program.close()
            raise
        return program

    async def _run(self, cluster: Cluster, pod: str, container: str, words: Sequence[str]) -> None:
        try:
            async with cluster.program(pod, container, words) as channels:
                self._opened.set_result(channels)
                while message := await channels.receive():
                    await self._pieces.put(message)
        except AEnvError as error:
            # A container that has ended is a bad request, or an error of its node.
            is_gone = isinstance(error, NotFound | InvalidRequest | Unavailable)
            failure = NotFound(error.message) if is_gone else StartFailed(error.message)
            if not self._opened.done():
                self._opened.set_exception(failure)
        finally:
            self._opened.cancel()

    async def write(self, data: bytes) -> None:
        with contextlib.suppress(OSError):  # it has ended, which its outputs say
            for at in range(0, len(data), _PIECE_BYTES):
                await self._opened.result().send(data[at : at + _PIECE_BYTES])

    async def outputs(self) -> AsyncGenerator[tuple[int, bytes], None]:
        """What it writes, by stream; ends with the program, or with its container."""
        while (message := await self._next()) is not None:
            channel, piece = message
            if channel in (1, 2):
                yield channel, piece
            elif channel == 3:
                if reason := _failure(piece):
                    yield 2, reason.encode()
                return

    async def _next(self) -> tuple[int, bytes] | None:
        assert self._task
        if self._pieces.empty() and not self._task.done():
            getting = asyncio.ensure_future(self._pieces.get())
            try:
                await asyncio.wait((getting, self._task), return_when=asyncio.FIRST_COMPLETED)
                if getting.done():
                    return getting.result()
            finally:
                getting.cancel()
        return None if self._pieces.empty() else self._pieces.get_nowait()

    async def leave(self) -> None:
        """Let it end, and return when it has."""
        try:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(_PATIENCE):
                    await self.write(_LEAVE)
                    async for _ in self.outputs():
                        pass
        finally:
            self.close()
            assert self._task
            await asyncio.wait({self._task})

    def close(self) -> None:
        assert self._task
        self._task.cancel()  # its connection ends, and so does the program's standard input


def _failure(status: bytes) -> str:
    """Why a program could not be started, as its last message says; empty when it has run."""
    try:
        said = json.loads(status)
    except ValueError:
        return "the API server broke off"
    if said.get("status") == "Success" or said.get("reason") == "NonZeroExitCode":
        return ""
    return str(said.get("message") or "the API server does not say why")


async def open_relay(cluster: Cluster, pod: str, host: str, id: str, port: int) -> OpenRelay:
    """A relay to a port on the Pod's loopback, behind a unix socket of this machine.

    In the Pod it listens on the Pod's address, and answers only who brings its token.
    """
    token = secrets.token_urlsafe(24).encode()
    program = await PodProgram.start(cluster, pod, (*RELAY, str(port)))
    try:
        await program.write(token + b"\n")
        relay_port = int((await until_listening(program, id, port)).split()[1])
        folder = tempfile.TemporaryDirectory(prefix="aenv-port-")
        path = Path(folder.name) / "socket"

        async def pass_on(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            with contextlib.closing(writer), contextlib.suppress(OSError):
                there, back = await asyncio.open_connection(host, relay_port)
                with contextlib.closing(back):
                    back.write(token)
                    await asyncio.gather(_copy(reader, back), _copy(there, writer))

        server = await asyncio.start_unix_server(pass_on, path)
    except BaseException:
        program.close()
        raise

    def close() -> None:
        server.close()
        folder.cleanup()

    return OpenRelay(program, Origin("localhost", socket=str(path)), close)


async def _copy(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Pass on all that comes, and then its end."""
    while piece := await reader.read(_PIECE_BYTES):
        writer.write(piece)
        await writer.drain()
    writer.write_eof()


async def listens(host: str, port: int) -> bool:
    """Whether something in the Pod listens on that port of the Pod's own address."""
    try:
        _, writer = await asyncio.open_connection(host, port)
    except OSError:
        return False
    writer.close()
    return True
