"""Terminals of an instance's own: a program at one end of a pseudo-terminal, and the gateway at the other.

An engine that isolates has the terminal opened in the instance, by the program that enters it. What comes from
there is looked at before it is used: it must be the outer end of a terminal.
"""

from __future__ import annotations

import asyncio
import contextlib
import fcntl
import os
import socket
import struct
import termios
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path

from ..base.errors import StartFailed, TooManyRequests
from ..base.supervision import to_the_end
from . import proc, spawning
from .base import InstanceTerminal
from .descriptors import readable, writable

MOST = 8
"""Terminals of one instance at a time."""
_PIECE_BYTES = 64 << 10
_MAX_SIDE = 1000  # columns or rows
_START_TIMEOUT = 10.0
_THREADS = 2
_MULTIPLEXER = os.makedev(5, 2)
_INPUT_IS_UTF8 = 0x4000  # IUTF8, which Python's termios does not name before 3.13


@dataclass(frozen=True)
class TerminalProgram:
    """What runs in a terminal, and where."""

    arguments: Sequence[str]
    folder: Path
    variables: Mapping[str, str] = field(repr=False)
    order: bytes | None = field(default=None, repr=False)
    """As in `Command`. Such a program opens the terminal itself, sends one end through descriptor 0, and begins
    the session in a child."""


class PseudoTerminals:
    """The terminals of an engine's instances."""

    def __init__(self) -> None:
        self._threads = ThreadPoolExecutor(_THREADS, "terminals")
        self._open: dict[str, int] = {}

    @contextlib.asynccontextmanager
    async def open(
        self, id: str, program: TerminalProgram, check: Callable[[], object], *, columns: int, rows: int
    ) -> AsyncIterator[InstanceTerminal]:
        """A terminal in which the program has begun; leaving ends the program and its session.

        `check` as in `Commands.run`. TooManyRequests when the instance has MOST already.
        """
        if self._open.get(id, 0) >= MOST:
            raise TooManyRequests(f"{MOST} terminals of instance {id!r} are open already; close one")
        self._open[id] = self._open.get(id, 0) + 1
        try:
            running = await self._start(program)
            try:
                check()
                await running.begun(columns, rows)
                yield running
            finally:
                await to_the_end(running.close())
        finally:
            self._open[id] -= 1
            if not self._open[id]:
                del self._open[id]

    async def _start(self, program: TerminalProgram) -> _RunningTerminal:
        ends = _Ends(program)
        try:
            try:
                child = await spawning.started(self._threads, ends.start)
            except (OSError, ValueError) as error:
                raise StartFailed(f"no terminal can be opened: {error}") from error
            return _RunningTerminal(child, ends)
        except BaseException:
            ends.close()
            raise


class _Ends:
    """Both ends of a terminal, and what else its program is given."""

    def __init__(self, program: TerminalProgram) -> None:
        self._program = program
        self.ours = -1
        self.channel: socket.socket | None = None
        """Where our end will come from, if the program opens the terminal."""
        self.name = ""
        self._theirs: list[int] = []
        try:
            if program.order is None:
                self._open()
            else:
                self._ask_for_one(program.order)
        except OSError as error:
            self.close()
            raise StartFailed(f"no terminal can be opened: {error.strerror}") from error

    def _open(self) -> None:
        """On the host: the session of the program gets it, as the first one that the session opens."""
        self.ours, inner = os.openpty()
        self._theirs = [inner, inner, inner]
        self.name = os.ttyname(inner)
        os.set_blocking(self.ours, False)

    def _ask_for_one(self, order: bytes) -> None:
        """In the instance, which has terminals of its own."""
        self.channel, theirs = socket.socketpair()
        self._theirs.append(theirs.detach())
        self.channel.setblocking(False)
        null = os.open(os.devnull, os.O_RDWR)
        self._theirs += [null, null, _in_memory(order), null]

    def take(self) -> None:
        """Our end, which the program has sent. StartFailed when it sent none, or something else."""
        assert self.channel
        try:
            said, found, _, _ = socket.recv_fds(self.channel, 4096, 1)
        except OSError as error:
            raise StartFailed(f"no terminal can be opened: {error.strerror}") from error
        if not found:
            raise StartFailed(
                said.decode(errors="replace").strip() or "the instance ended before its terminal was open"
            )
        [self.ours] = found
        os.set_inheritable(self.ours, False)
        if os.fstat(self.ours).st_rdev != _MULTIPLEXER:
            raise StartFailed("what was sent is not a terminal")
        os.set_blocking(self.ours, False)

    def prepare(self, columns: int, rows: int) -> None:
        attributes = termios.tcgetattr(self.ours)
        attributes[0] |= _INPUT_IS_UTF8
        termios.tcsetattr(self.ours, termios.TCSANOW, attributes)
        self.resize(columns, rows)

    def start(self) -> spawning.Child:
        program = self._program
        words, folder, variables = program.arguments, program.folder, program.variables
        return spawning.start(words, folder, variables, self._theirs, terminal=self.name)

    def resize(self, columns: int, rows: int) -> None:
        sides = (min(max(side, 1), _MAX_SIDE) for side in (rows, columns))
        fcntl.ioctl(self.ours, termios.TIOCSWINSZ, struct.pack("HHHH", *sides, 0, 0))

    def hand_over(self) -> None:
        """The program has its own ends now."""
        theirs, self._theirs = self._theirs, []
        for descriptor in set(theirs):
            os.close(descriptor)

    def close(self) -> None:
        self.hand_over()
        if self.channel:
            self.channel.close()
        if self.ours >= 0:
            os.close(self.ours)
        self.ours = -1


class _RunningTerminal:
    """A terminal whose program runs."""

    def __init__(self, child: spawning.Child, ends: _Ends) -> None:
        self._child = child
        self._ends = ends
        self._begins_in_child = ends.channel is not None
        ends.hand_over()
        try:
            self._end = os.pidfd_open(child.pid)
        except OSError:  # no descriptor is left to watch it with
            child.kill()
            child.wait()
            raise

    @property
    def exit_code(self) -> int | None:
        code = self._child.returncode
        return code if code is None or code >= 0 else 128 - code

    async def begun(self, columns: int, rows: int) -> None:
        """Return when there is a terminal of this size. StartFailed when there is none."""
        if self._ends.channel:
            try:
                async with asyncio.timeout(_START_TIMEOUT):
                    await readable(self._ends.channel.fileno(), self._end)
            except TimeoutError:
                raise StartFailed(f"the terminal did not open within {_START_TIMEOUT:g} s") from None
            self._ends.take()
        self._ends.prepare(columns, rows)

    async def read(self) -> bytes:
        """What the program has written; empty when it has ended."""
        while self._child.returncode is None:
            ready = await readable(self._ends.ours, self._end)
            # EIO: no process has the program's end open. More may come, since one may open it again.
            with contextlib.suppress(OSError):
                if data := os.read(self._ends.ours, _PIECE_BYTES):
                    return data
            if self._end in ready:
                self._child.wait()
            else:
                await readable(self._end)
        return b""

    async def write(self, data: bytes) -> None:
        """Return when the terminal has taken it, or its program has ended."""
        while data and self._child.returncode is None:
            try:
                data = data[os.write(self._ends.ours, data) :]
            except BlockingIOError:
                await writable(self._ends.ours)
            except OSError:  # no process has the other end open
                return

    def resize(self, columns: int, rows: int) -> None:
        self._ends.resize(columns, rows)

    async def close(self) -> None:
        """Hang up, end the session of the terminal, and leave nothing open."""
        if self._child.returncode is None:
            session = self._child.pid
            if self._begins_in_child:
                inner = await asyncio.to_thread(proc.children, session)
                for pid in inner:
                    await proc.end(pid, None, grace=0)
            await proc.end(session, None, grace=0)
            self._child.wait()
        os.close(self._end)
        self._ends.close()


def _in_memory(content: bytes) -> int:
    handle = os.memfd_create("order")
    os.write(handle, content)
    os.lseek(handle, 0, os.SEEK_SET)
    return handle
