"""Commands beside an instance's own code: a session of their own, read as slowly as the caller reads."""

from __future__ import annotations

import asyncio
import contextlib
import os
import subprocess
from collections.abc import AsyncIterator, Callable, Coroutine, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from ..errors import InvalidRequest
from . import proc
from .base import Output
from .descriptors import readable

TIMED_OUT = 124  # the exit codes that shells and timeout(1) use
_NOT_EXECUTABLE = 126
_NOT_FOUND = 127
_GRACE = 3.0  # seconds between asking a command to end and ending it
_PIPE_BYTES = 1 << 20  # the most that a pipe holds


@dataclass(frozen=True)
class Command:
    """What is to be run, and where."""

    arguments: Sequence[str]
    folder: Path
    variables: Mapping[str, str] = field(repr=False)
    stdin: bytes = field(repr=False)
    timeout: float | None

    def __post_init__(self) -> None:
        if not self.arguments or not self.arguments[0]:
            raise InvalidRequest("the command is empty; give a program and its arguments")


async def run(command: Command, check: Callable[[], object]) -> AsyncIterator[Output]:
    """What the command prints, then its exit code; 124 when it took too long.

    `check` is called when the process exists, and raises when its instance does not any more: from then on
    whoever ends the instance finds the command too. Leaving early ends the command and its session. What it left
    running when it ended by itself runs on.
    """
    try:
        child = _start(command)
    except OSError as error:
        check()
        code = _NOT_FOUND if isinstance(error, FileNotFoundError) else _NOT_EXECUTABLE
        reason = "not found" if code == _NOT_FOUND else (error.strerror or str(error)).lower()
        yield Output("stderr", f"{error.filename or command.arguments[0]}: {reason}\n".encode(errors="replace"))
        yield Output("exit", exit_code=code)
        return
    except ValueError as error:
        raise InvalidRequest(f"cannot run {command.arguments[0]!r}: {error}") from error
    try:
        running = _Running(child, command.timeout)
    except OSError:  # no descriptor is left to watch it with
        child.kill()
        child.wait()
        raise
    try:
        check()
        while child.returncode is None:
            for output in await running.outputs():
                yield output
        yield Output("exit", exit_code=running.exit_code())
    finally:
        await _finish(running.close())


class _Running:
    """A command's process, its pipes, and its time limit."""

    def __init__(self, child: subprocess.Popen[bytes], timeout: float | None) -> None:
        assert child.stdout
        assert child.stderr
        self._child = child
        self._streams: dict[int, Literal["stdout", "stderr"]] = {
            child.stdout.fileno(): "stdout",
            child.stderr.fileno(): "stderr",
        }
        for descriptor in self._streams:
            os.set_blocking(descriptor, False)
        self._end = os.pidfd_open(child.pid)
        self._late = False
        self._limit = asyncio.create_task(self._end_after(timeout)) if timeout is not None else None

    async def outputs(self) -> list[Output]:
        """The next pieces. When the process has ended: the last ones, and `returncode` is set."""
        ready = await readable(self._end, *self._streams)
        over = self._end in ready
        outputs = []
        # All pipes at the end: one read takes all that they hold. What comes after it is from the command's
        # children that go on, and is not waited for.
        for descriptor in list(self._streams) if over else ready:
            with contextlib.suppress(BlockingIOError):
                if data := os.read(descriptor, _PIPE_BYTES):
                    outputs.append(Output(self._streams[descriptor], data))
                else:
                    del self._streams[descriptor]
        if over:
            await self._stop_limit()
            self._child.wait()  # last: it frees the pid, which nobody may signal from now on
        return outputs

    def exit_code(self) -> int:
        code: int = self._child.returncode
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
        for pipe in (self._child.stdout, self._child.stderr):
            assert pipe
            pipe.close()

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


def _start(command: Command) -> subprocess.Popen[bytes]:
    with contextlib.ExitStack() as stack:
        stdin: Any = subprocess.DEVNULL
        if command.stdin:
            # A file in memory: it has an end, and nobody needs to feed it while the command runs.
            stdin = stack.enter_context(open(os.memfd_create("stdin"), "w+b"))
            stdin.write(command.stdin)
            stdin.seek(0)
        return subprocess.Popen(
            list(command.arguments),
            cwd=command.folder,
            env=command.variables,
            stdin=stdin,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            bufsize=0,
            start_new_session=True,
        )


async def _finish(work: Coroutine[Any, Any, None]) -> None:
    """Do all of `work`, also when cancelled meanwhile; only then be cancelled."""
    task = asyncio.create_task(work)
    cancelled = False
    while not task.done():
        try:
            await asyncio.wait({task})
        except asyncio.CancelledError:
            cancelled = True
    task.result()
    if cancelled:
        raise asyncio.CancelledError
