"""Commands beside an instance's own code: a session of their own, read as slowly as the caller reads."""

from __future__ import annotations

import asyncio
import contextlib
import os
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from ..base.errors import InvalidRequest, TooManyRequests
from ..base.supervision import to_the_end
from . import proc, spawning
from .base import CommandOutput
from .descriptors import readable

MOST = 32
"""Commands of one instance at a time."""
TIMED_OUT = 124  # the exit codes that shells and timeout(1) use
_NOT_EXECUTABLE = 126
_NOT_FOUND = 127
_GRACE = 3.0  # seconds between asking a command to end and ending it
_PIPE_BYTES = 1 << 20  # the most that a pipe holds
_PIECE_BYTES = 64 << 10
# Commands of one instance that start at the same time: each is an interpreter that loads, and half of all
# processors are for others.
_STARTING = max(1, (os.cpu_count() or 2) // 2)
_START_TIMEOUT = 10.0  # seconds after which the next one starts all the same
_THREADS = 4


@dataclass(frozen=True)
class Command:
    """What is to be run, and where."""

    arguments: Sequence[str]
    folder: Path
    variables: Mapping[str, str] = field(repr=False)
    stdin: bytes = field(repr=False)
    timeout: float | None
    order: bytes | None = field(default=None, repr=False)
    """What the program reads from descriptor 3 and not from its arguments; it closes 4 once it has begun."""

    def __post_init__(self) -> None:
        if not self.arguments or not self.arguments[0]:
            raise InvalidRequest("the command is empty; give a program and its arguments")
        for argument in self.arguments:
            try:
                os.fsencode(argument)
            except UnicodeEncodeError:
                raise InvalidRequest(f"cannot run {self.arguments[0]!r}: an argument has no UTF-8 form") from None
            if "\0" in argument:
                raise InvalidRequest(f"cannot run {self.arguments[0]!r}: an argument has a NUL character")


class Commands:
    """The commands of an engine's instances. However many there are, nothing else here waits for them."""

    def __init__(self) -> None:
        self._threads = ThreadPoolExecutor(_THREADS, "commands")
        self._own: dict[str, _Own] = {}

    async def run(self, id: str, command: Command, check: Callable[[], object]) -> AsyncIterator[CommandOutput]:
        """What the command prints, then its exit code; 124 when it took too long.

        `check` is called when the process exists, and raises when its instance does not any more: from then on
        ending the instance finds the command too. Leaving early ends the command and its session. What it
        left running when it ended by itself runs on. TooManyRequests when the instance has MOST already.
        """
        own = self._own.setdefault(id, _Own())
        if own.running >= MOST:
            raise TooManyRequests(f"{MOST} commands run in instance {id!r} already; wait until one has ended")
        own.running += 1
        try:
            async with contextlib.aclosing(self._run(own, command, check)) as outputs:
                async for output in outputs:
                    yield output
        finally:
            own.running -= 1
            if not own.running:
                del self._own[id]

    async def _run(
        self, own: _Own, command: Command, check: Callable[[], object]
    ) -> AsyncGenerator[CommandOutput, None]:
        try:
            async with own.starting:
                running = await self._start(command)
                try:
                    check()
                    await running.begun()
                except BaseException:
                    await to_the_end(running.close())
                    raise
        except OSError as error:
            check()
            code = _NOT_FOUND if isinstance(error, FileNotFoundError) else _NOT_EXECUTABLE
            reason = "not found" if code == _NOT_FOUND else (error.strerror or str(error)).lower()
            told = f"{error.filename or command.arguments[0]}: {reason}\n"
            yield CommandOutput("stderr", told.encode(errors="replace"))
            yield CommandOutput("exit", exit_code=code)
            return
        except ValueError as error:
            raise InvalidRequest(f"cannot run {command.arguments[0]!r}: {error}") from error
        try:
            while running.returncode is None:
                for output in await running.outputs():
                    yield output
            yield CommandOutput("exit", exit_code=running.exit_code())
        finally:
            await to_the_end(running.close())

    async def _start(self, command: Command) -> _RunningCommand:
        pipes = _Pipes(command)
        try:
            child = await spawning.started(self._threads, pipes.start)
            return _RunningCommand(child, pipes, command.timeout)
        except BaseException:
            pipes.close()
            raise


@dataclass
class _Own:
    """What one instance runs."""

    running: int = 0
    starting: asyncio.Semaphore = field(default_factory=lambda: asyncio.Semaphore(_STARTING))


class _Pipes:
    """What a command reads and writes; our ends of it, and until it has started, its own."""

    def __init__(self, command: Command) -> None:
        self._command = command
        self._ours: list[int] = []
        self._theirs: list[int] = []
        try:
            self._theirs.append(
                _file("stdin", command.stdin) if command.stdin else os.open(os.devnull, os.O_RDONLY)
            )
            self.stdout = self._pipe()
            self.stderr = self._pipe()
            self.begun: int | None = None
            if command.order is not None:
                self._theirs.append(_file("order", command.order))
                self.begun = self._pipe()
        except BaseException:
            self.close()
            raise

    def _pipe(self) -> int:
        reading, writing = os.pipe()
        self._ours.append(reading)
        self._theirs.append(writing)
        os.set_blocking(reading, False)
        return reading

    def start(self) -> spawning.Child:
        command = self._command
        return spawning.start(command.arguments, command.folder, command.variables, self._theirs)

    def hand_over(self) -> None:
        """The command has its own ends now."""
        while self._theirs:
            os.close(self._theirs.pop())

    def close(self) -> None:
        self.hand_over()
        while self._ours:
            os.close(self._ours.pop())


class _RunningCommand:
    """A command's process, its pipes, and its time limit."""

    def __init__(self, child: spawning.Child, pipes: _Pipes, timeout: float | None) -> None:
        self._child = child
        self._pipes = pipes
        pipes.hand_over()
        self._streams: dict[int, Literal["stdout", "stderr"]] = {pipes.stdout: "stdout", pipes.stderr: "stderr"}
        try:
            self._end = os.pidfd_open(child.pid)
        except OSError:  # no descriptor is left to watch it with
            child.kill()
            child.wait()
            raise
        self._late = False
        self._limit = asyncio.create_task(self._end_after(timeout)) if timeout is not None else None

    @property
    def returncode(self) -> int | None:
        return self._child.returncode

    async def begun(self) -> None:
        """Return when what came before the command is done, where something does."""
        if self._pipes.begun is not None:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(_START_TIMEOUT):
                    await readable(self._pipes.begun, self._end)

    async def outputs(self) -> list[CommandOutput]:
        """The next pieces. When the process has ended: the last ones, and `returncode` is set."""
        ready = await readable(self._end, *self._streams)
        over = self._end in ready
        outputs = []
        # All pipes at the end: one read takes all that they hold. What comes after it is from the command's
        # children that go on, and is not waited for.
        for descriptor in list(self._streams) if over else ready:
            with contextlib.suppress(BlockingIOError):
                data = os.read(descriptor, _PIPE_BYTES if over else _PIECE_BYTES)
                if not data:
                    del self._streams[descriptor]
                for at in range(0, len(data), _PIECE_BYTES):
                    outputs.append(CommandOutput(self._streams[descriptor], data[at : at + _PIECE_BYTES]))
        if over:
            await self._stop_limit()
            self._child.wait()  # last: it frees the pid, which must not be signalled from now on
        return outputs

    def exit_code(self) -> int:
        code = self._child.returncode
        assert code is not None
        if self._late:
            return TIMED_OUT
        return code if code >= 0 else 128 - code

    async def close(self) -> None:
        """End what runs, and leave nothing open."""
        if self._limit:
            self._limit.cancel()
            await asyncio.wait({self._limit})
        if self._child.returncode is None:
            await proc.end(self._child.pid, None, grace=0)
            self._child.wait()
        os.close(self._end)
        self._pipes.close()

    async def _stop_limit(self) -> None:
        if self._limit:
            if not self._late:
                self._limit.cancel()
            await asyncio.wait({self._limit})  # when late: until the whole session is gone

    async def _end_after(self, timeout: float) -> None:
        # A task of its own: a caller who has stopped reading must not give the command more time.
        await asyncio.sleep(timeout)
        if proc.start_time(self._child.pid) is not None:
            self._late = True
            await proc.end(self._child.pid, None, _GRACE)


def _file(name: str, content: bytes) -> int:
    """A file in memory: it has an end, and need not be fed while the command runs."""
    handle = os.memfd_create(name)
    rest = memoryview(content)
    while rest:
        rest = rest[os.write(handle, rest) :]
    os.lseek(handle, 0, os.SEEK_SET)
    return handle
