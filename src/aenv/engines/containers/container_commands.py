"""Programs of ours that an engine starts in a container: commands for callers, and relays to ports.

Engines of containers start programs and cannot end them. So the program is one of ours, which ends what it has
started as soon as its caller says so or its standard input ends: when the caller leaves, or the gateway is gone.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections import Counter
from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, Protocol

from ...base.addresses import Origin
from ...base.command_order import CommandOrder
from ...base.errors import NotFound, StartFailed, TooManyRequests
from ...base.supervision import to_the_end
from ..base import CommandOutput
from ..commands import MOST, Command

PROGRAM = ("python3", "-P", "-m", "aenv.inside.runtime.command_program")
RELAY = ("python3", "-P", "-m", "aenv.inside.runtime.port_relay")
_STREAMS: dict[int, Literal["stdout", "stderr"]] = {1: "stdout", 2: "stderr"}
_KILLED = 137
_MAX_PORTS = 16  # of an instance at a time: each is a process


class Program(Protocol):
    """A program in a container, and the connection to its standard streams."""

    async def write(self, data: bytes) -> None: ...

    def outputs(self) -> AsyncGenerator[tuple[int, bytes], None]:
        """What it writes, by stream (1 or 2); ends with the program, or with its container."""
        ...

    async def leave(self) -> None:
        """Let it end, and return when it has."""
        ...

    def close(self) -> None:
        """Let it end, and wait for nothing."""
        ...


StartProgram = Callable[[Sequence[str]], Awaitable[Program]]
"""Starts a program in the main container of an instance. NotFound when that does not run."""


class ContainerCommands:
    """The commands of instances; at most MOST of each at a time."""

    def __init__(self) -> None:
        self._running: Counter[str] = Counter()

    async def run(
        self,
        id: str,
        start: StartProgram,
        words: Sequence[str],
        stdin: bytes,
        timeout: float | None,
        *,
        variables_file: str = "",
    ) -> AsyncGenerator[CommandOutput, None]:
        """What the command prints, then its exit code; 124 when it took too long. Leaving early ends it.

        `variables_file`: where the container has the instance's variables, if not in its own.
        """
        Command(words, Path("/"), {}, b"", None)  # says what is wrong with it
        if self._running[id] >= MOST:
            raise TooManyRequests(f"{MOST} commands run in instance {id!r} already; wait until one has ended")
        self._running[id] += 1
        try:
            order = CommandOrder(tuple(words), timeout, len(stdin), variables_file)
            try:
                program = await start(PROGRAM)
            except NotFound:
                raise NotFound(f"instance {id!r} not found") from None
            try:
                await program.write(order.line() + stdin)
                async with contextlib.aclosing(_outputs(program)) as outputs:
                    async for output in outputs:
                        yield output
            finally:
                await to_the_end(program.leave())
        finally:
            self._running[id] -= 1
            if not self._running[id]:
                del self._running[id]


async def _outputs(program: Program) -> AsyncGenerator[CommandOutput, None]:
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


@dataclass(frozen=True)
class OpenRelay:
    """A relay that serves."""

    program: Program
    origin: Origin
    close: Callable[[], None] = lambda: None


class PortRelays:
    """Relays to ports of instances, one for each port that a caller has asked for."""

    def __init__(self) -> None:
        self._tasks: dict[tuple[str, int], asyncio.Task[None]] = {}
        self._origins: dict[tuple[str, int], Origin] = {}

    async def origin(self, id: str, port: int, start: Callable[[], Awaitable[OpenRelay]]) -> Origin:
        """Where the port can be reached. `start` makes its relay, where there is none yet."""
        if not 0 < port < 65536:
            raise missing_port(id, port)
        if (id, port) not in self._tasks:
            if sum(own == id for own, _ in self._tasks) >= _MAX_PORTS:
                raise TooManyRequests(f"{_MAX_PORTS} ports of instance {id!r} are open already")
            relay = await start()
            self._origins[id, port] = relay.origin
            task = self._tasks[id, port] = asyncio.create_task(_until_it_ends(relay))
            task.add_done_callback(lambda _: self._tasks.pop((id, port), None))
        return self._origins[id, port]

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


def missing_port(id: str, port: int) -> NotFound:
    return NotFound(f"port {port} not found: nothing in instance {id!r} listens there")


async def until_listening(program: Program, id: str, port: int) -> bytes:
    """The line in which a relay says that it serves. NotFound when nothing listens on the port."""
    said = b""
    async with contextlib.aclosing(program.outputs()) as outputs:
        async for _, piece in outputs:
            said += piece
            if b"\n" in said:
                break
    if not said.startswith(b"listening"):
        await program.leave()
        if said.startswith(b"refused"):
            raise missing_port(id, port)
        raise StartFailed(f"no relay to port {port}: {said.decode(errors='replace').strip()[-500:]}")
    return said


async def _until_it_ends(relay: OpenRelay) -> None:
    try:
        async for _ in relay.program.outputs():
            pass
    finally:
        relay.close()
        relay.program.close()
