"""The interpreter as its parent sees it: a child process that is asked, interrupted and ended.

What it does in there: `_python_worker.py`.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import signal
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from _python_worker import REPLIES, REQUESTS
from python_output import CappedOutput

GRACE = 2.0  # seconds for code to end when it is interrupted, before the interpreter is killed
_PIECE = 1 << 18
_MOST_OF_A_REPLY = 200_000_000  # more than the worker ever says, unless the code has taken its place
_BOOT = "import sys; sys.path.insert(0, sys.argv[1]); from _python_worker import main; main()"


class Ended(Exception):
    """The interpreter has ended, and with it its variables. Carries the exit code."""

    def __init__(self, code: int) -> None:
        super().__init__(code)
        self.code = code


class Interpreter:
    """A child process that lives. Made and used on one event loop; `kill` ends it, and so may the code."""

    def __init__(self, folder: Path, variables: Mapping[str, str], packages: Sequence[str]) -> None:
        self.stdout, self.stderr = CappedOutput(), CappedOutput()
        self.is_alive = True
        self._loop = asyncio.get_running_loop()
        self._said = bytearray()
        self._last = 0
        self._reply: asyncio.Future[dict[str, Any]] | None = None
        self._code = 0
        self._gone = asyncio.Event()
        self._spawn(folder, {"MPLBACKEND": "Agg", **variables}, packages)

    async def ask(self, request: Mapping[str, Any], timeout: float) -> dict[str, Any]:
        """Its reply. TimeoutError when it has none in time; Ended when it has ended."""
        self._last += 1
        self._reply = self._loop.create_future()
        if not self.is_alive:
            raise Ended(self._code)
        async with asyncio.timeout(timeout):
            await self._write(json.dumps({**request, "id": self._last}).encode() + b"\n")
            return await asyncio.shield(self._reply)

    async def stop_code(self) -> dict[str, Any]:
        """Interrupt what it runs; its reply. TimeoutError when the code does not let itself be interrupted."""
        if self._reply is None or not self.is_alive:
            raise Ended(self._code)
        self.interrupt()
        async with asyncio.timeout(GRACE):
            return await asyncio.shield(self._reply)

    def interrupt(self) -> None:
        """Raise KeyboardInterrupt in the code that runs, if any does."""
        if self.is_alive:
            os.kill(self.pid, signal.SIGINT)

    async def kill(self) -> None:
        """End it, with what it has started that is still of its group."""
        if self.is_alive:
            os.killpg(self.pid, signal.SIGKILL)
            await self._gone.wait()

    def _spawn(self, folder: Path, variables: dict[str, str], packages: Sequence[str]) -> None:
        requests, self._requests = os.pipe()
        self._replies, replies = os.pipe()
        self._printed, printed = os.pipe()
        self._complained, complained = os.pipe()
        actions = [
            *((os.POSIX_SPAWN_CLOSE, descriptor) for descriptor in _inheritable()),
            (os.POSIX_SPAWN_OPEN, 0, os.devnull, os.O_RDONLY, 0),
            (os.POSIX_SPAWN_DUP2, printed, 1),
            (os.POSIX_SPAWN_DUP2, complained, 2),
            (os.POSIX_SPAWN_DUP2, requests, REQUESTS),
            (os.POSIX_SPAWN_DUP2, replies, REPLIES),
        ]
        here = str(Path(__file__).parent)
        places = json.dumps([*(path for path in sys.path if path not in ("", here)), *packages])
        words = [sys.executable, "-X", "utf8", "-c", _BOOT, here, str(folder), places]
        try:
            self.pid = os.posix_spawn(
                *(sys.executable, words, variables),
                file_actions=actions,
                setsid=True,
                setsigdef=[signal.SIGPIPE, signal.SIGXFSZ, signal.SIGINT],
            )
        finally:
            for descriptor in (requests, replies, printed, complained):
                os.close(descriptor)
        self._process = os.pidfd_open(self.pid)
        self._watch()

    def _watch(self) -> None:
        readers: dict[int, Callable[[], object]] = {
            self._printed: lambda: self._read_output(self._printed, self.stdout),
            self._complained: lambda: self._read_output(self._complained, self.stderr),
            self._replies: self._read_reply,
            self._process: self._collect,
        }
        for descriptor, read in readers.items():
            os.set_blocking(descriptor, False)
            self._loop.add_reader(descriptor, read)
        os.set_blocking(self._requests, False)

    async def _write(self, data: bytes) -> None:
        while data and self.is_alive:
            try:
                data = data[os.write(self._requests, data) :]
            except BlockingIOError:
                can_write = asyncio.Event()
                self._loop.add_writer(self._requests, can_write.set)
                gone = asyncio.ensure_future(self._gone.wait())
                ready = asyncio.ensure_future(can_write.wait())
                try:
                    await asyncio.wait({gone, ready}, return_when=asyncio.FIRST_COMPLETED)
                except BaseException:
                    os.killpg(self.pid, signal.SIGKILL)  # half a request is none
                    raise
                finally:
                    gone.cancel()
                    ready.cancel()
                    if self.is_alive:
                        self._loop.remove_writer(self._requests)
            except BrokenPipeError:
                return  # it is ending, and will be collected

    def _read_output(self, descriptor: int, output: CappedOutput) -> bool:
        """Whether there was something."""
        try:
            piece = os.read(descriptor, _PIECE)
        except BlockingIOError:
            return False
        if not piece:
            self._loop.remove_reader(descriptor)
        output.add(piece)
        return bool(piece)

    def _read_reply(self) -> None:
        with contextlib.suppress(BlockingIOError):
            piece = os.read(self._replies, _PIECE)
            if not piece:
                self._loop.remove_reader(self._replies)
            self._said += piece
            if len(self._said) > _MOST_OF_A_REPLY:
                os.kill(self.pid, signal.SIGKILL)
            if b"\n" in piece:
                *lines, rest = self._said.split(b"\n")
                self._said = bytearray(rest)
                for line in lines:
                    self._take(line)

    def _take(self, line: bytes | bytearray) -> None:
        try:
            said = json.loads(line)
        except ValueError:
            return  # the code has written to a descriptor that is not its own
        if isinstance(said, dict) and said.get("id") == self._last and self._reply and not self._reply.done():
            self._read_rest()
            self._reply.set_result(said)

    def _read_rest(self) -> None:
        """What the code has printed is in the pipes by now; a bound, since what it started may go on printing."""
        for descriptor, output in ((self._printed, self.stdout), (self._complained, self.stderr)):
            left = 8
            while left and self._read_output(descriptor, output):
                left -= 1

    def _collect(self) -> None:
        """The interpreter has ended."""
        _, status = os.waitpid(self.pid, 0)
        code = os.waitstatus_to_exitcode(status)
        self._code = code if code >= 0 else 128 - code
        self._read_rest()
        self.is_alive = False
        for descriptor in (self._printed, self._complained, self._replies, self._process):
            self._loop.remove_reader(descriptor)
        self._loop.remove_writer(self._requests)
        for descriptor in (self._printed, self._complained, self._replies, self._process, self._requests):
            os.close(descriptor)
        if self._reply and not self._reply.done():
            self._reply.set_exception(Ended(self._code))
            self._reply.exception()  # no caller may be waiting for it any more
        self._gone.set()
        _collect_orphans()


def _inheritable() -> list[int]:
    """What a program would get of ours without being given it: the runtime's own socket, for one."""
    found = []
    for name in os.listdir("/proc/self/fd"):
        with contextlib.suppress(OSError):  # the one that was open to list them
            if int(name) > 2 and os.get_inheritable(int(name)):
                found.append(int(name))
    return found


def _collect_orphans() -> None:
    """What an interpreter has left is given to the first process of an instance, when it ends."""
    if os.getpid() == 1:
        with contextlib.suppress(ChildProcessError):
            while os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG):
                pass
