"""Programs that the engine starts in a container: commands for callers, and relays to ports.

Docker starts programs in a container and cannot end them. So the program is one of ours, which ends what it has
started as soon as its standard input ends: when the caller leaves, or the gateway is gone.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections import Counter
from collections.abc import AsyncGenerator, AsyncIterator, Sequence
from pathlib import Path
from typing import Literal

from ...base.addresses import Origin
from ...base.errors import NotFound, StartFailed, TooManyRequests
from ...base.supervision import to_the_end
from ..base import CommandOutput
from ..commands import MOST, Command
from ..containers.container_plan import RUN
from .docker_api import DockerApi, DockerRefused, frames

_COMMAND = ("python3", "-P", "-m", "aenv.inside.runtime.command_program")
_RELAY = ("python3", "-P", "-m", "aenv.inside.runtime.port_relay")
_STREAMS: dict[int, Literal["stdout", "stderr"]] = {1: "stdout", 2: "stderr"}
_KILLED = 137
_PIECE_BYTES = 64 << 10
_MAX_PORTS = 16  # of an instance at a time: each is a process
LONGEST = "port-65535"
"""The longest name of a socket that is made in the shared folder."""
_PATIENCE = 10.0  # seconds in which a program ends whose caller has left


class ContainerProgram:
    """A program in a container, and the connection to its standard streams."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self.input = writer

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
                self.input.write_eof()
                async with asyncio.timeout(_PATIENCE):
                    while await self._reader.read(_PIECE_BYTES):
                        pass
        finally:
            self.input.close()


class ContainerCommands:
    """The commands of instances; at most MOST of each at a time."""

    def __init__(self, api: DockerApi) -> None:
        self._api = api
        self._running: Counter[str] = Counter()

    async def run(
        self, id: str, container: str, words: Sequence[str], stdin: bytes, timeout: float | None
    ) -> AsyncGenerator[CommandOutput, None]:
        """What the command prints, then its exit code; 124 when it took too long. Leaving early ends it."""
        Command(words, Path("/"), {}, b"", None)  # says what is wrong with it
        if self._running[id] >= MOST:
            raise TooManyRequests(f"{MOST} commands run in instance {id!r} already; wait until one has ended")
        self._running[id] += 1
        try:
            order = {"command": list(words), "timeout": timeout, "stdin_bytes": len(stdin)}
            try:
                program = await ContainerProgram.start(self._api, container, _COMMAND)
            except NotFound:
                raise NotFound(f"instance {id!r} not found") from None
            try:
                program.input.write(json.dumps(order).encode() + b"\n" + stdin)
                async with contextlib.aclosing(_outputs(program)) as outputs:
                    async for output in outputs:
                        yield output
            finally:
                await to_the_end(program.leave())
        finally:
            self._running[id] -= 1
            if not self._running[id]:
                del self._running[id]


async def _outputs(program: ContainerProgram) -> AsyncGenerator[CommandOutput, None]:
    """The frames of the program that runs the command, which travel in its standard output."""
    held = said = b""
    async for stream, piece in program.outputs():
        if stream != 1:
            said += piece
            continue
        held += piece
        while len(held) >= 5 and len(held) >= (end := 5 + int.from_bytes(held[1:5])):
            content, kind, held = held[5:end], held[0], held[end:]
            if kind == 0:
                yield CommandOutput("exit", exit_code=int(content))
                return
            yield CommandOutput(_STREAMS[kind], content)
    if said:
        raise StartFailed(f"the image cannot run commands: {said.decode(errors='replace').strip()[-500:]}")
    yield CommandOutput("exit", exit_code=_KILLED)  # the container has ended, and the command with it


class PortRelays:
    """Relays to ports of instances, one for each port that a caller has asked for."""

    def __init__(self, api: DockerApi) -> None:
        self._api = api
        self._tasks: dict[tuple[str, int], asyncio.Task[None]] = {}

    async def origin(self, id: str, container: str, port: int, run: Path) -> Origin:
        """Where the port can be reached; `run` is the folder that the container sees as RUN."""
        missing = NotFound(f"port {port} not found: nothing in instance {id!r} listens there")
        if not 0 < port < 65536:
            raise missing
        name = f"port-{port}"
        if (id, port) not in self._tasks:
            if sum(own == id for own, _ in self._tasks) >= _MAX_PORTS:
                raise TooManyRequests(f"{_MAX_PORTS} ports of instance {id!r} are open already")
            words = (*_RELAY, str(port), f"{RUN}/{name}")
            program = await ContainerProgram.start(self._api, container, words)
            said = await _first_line(program)
            if said != b"listening\n":
                await program.leave()
                if said.startswith(b"refused"):
                    raise missing
                raise StartFailed(f"no relay to port {port}: {said.decode(errors='replace').strip()[-500:]}")
            task = self._tasks[id, port] = asyncio.create_task(_until_it_ends(program))
            task.add_done_callback(lambda _: self._tasks.pop((id, port), None))
        return Origin("localhost", socket=str(run / name))

    async def stop(self, id: str) -> None:
        """End those of an instance."""
        await self._end([task for (own, _), task in self._tasks.items() if own == id])

    async def close(self) -> None:
        await self._end([*self._tasks.values()])

    async def _end(self, tasks: list[asyncio.Task[None]]) -> None:
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks)


async def _first_line(program: ContainerProgram) -> bytes:
    said = b""
    async with contextlib.aclosing(program.outputs()) as outputs:
        async for _, piece in outputs:
            said += piece
            if b"\n" in said:
                break
    return said


async def _until_it_ends(program: ContainerProgram) -> None:
    try:
        async for _ in program.outputs():
            pass
    finally:
        program.input.close()
