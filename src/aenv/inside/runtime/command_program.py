"""Runs one command in a container, for an engine that can start programs there and cannot end them.

    python3 -P -m aenv.inside.runtime.command_program

Standard input brings the order (`base/command_order.py`), then the command's own input, and stays open: its end,
or a byte more, means that the caller has left, and ends the command. Standard output carries frames: the number of
a stream (1 or 2; 0 for the exit code), the length in four bytes, the content.
"""

from __future__ import annotations

import contextlib
import json
import os
import selectors
import signal
import subprocess
import sys
import time
from typing import NoReturn

from ...base import settings
from ...base.command_order import CommandOrder

_GRACE = 3.0  # seconds between asking a command to end and ending it
_PIECE_BYTES = 64 << 10
_PIPE_BYTES = 1 << 20
_TIMED_OUT = 124
_OWN = ("AENV_START",)


class RunningOrder:
    """The command, its pipes, and its caller."""

    def __init__(self, child: subprocess.Popen[bytes], timeout: float | None) -> None:
        assert child.stdout is not None
        assert child.stderr is not None
        self._child = child
        self._streams = {child.stdout.fileno(): 1, child.stderr.fileno(): 2}
        self._process = os.pidfd_open(child.pid)
        self._deadline = None if timeout is None else time.monotonic() + timeout
        self._late = False
        for descriptor in self._streams:
            os.set_blocking(descriptor, False)

    def run(self) -> int:
        """Pass on what it prints, until it ends; its exit code, as shells say it."""
        with selectors.DefaultSelector() as selector:
            for descriptor in (0, self._process, *self._streams):
                selector.register(descriptor, selectors.EVENT_READ)
            while True:
                ready = {key.fd for key, _ in selector.select(self._left())}
                if 0 in ready:
                    self.end(signal.SIGKILL)
                    self._child.wait()
                    os._exit(1)
                if self._process in ready:
                    break
                for descriptor in ready & {*self._streams}:
                    if not self._pass_on(descriptor, _PIECE_BYTES):
                        selector.unregister(descriptor)
                        del self._streams[descriptor]
                self._watch_the_time()
        for descriptor in self._streams:
            self._pass_on(descriptor, _PIPE_BYTES)
        if self._late:
            self.end(signal.SIGKILL)
        code = self._child.wait()
        return _TIMED_OUT if self._late else code if code >= 0 else 128 - code

    def _left(self) -> float | None:
        return None if self._deadline is None else max(0.0, self._deadline - time.monotonic())

    def _watch_the_time(self) -> None:
        if self._deadline is None or time.monotonic() < self._deadline:
            return
        self.end(signal.SIGKILL if self._late else signal.SIGTERM)
        self._late, self._deadline = True, time.monotonic() + _GRACE

    def _pass_on(self, descriptor: int, most: int) -> bool:
        """Whether there may be more."""
        try:
            data = os.read(descriptor, most)
        except BlockingIOError:
            return True
        for at in range(0, len(data), _PIECE_BYTES):
            say(self._streams[descriptor], data[at : at + _PIECE_BYTES])
        return bool(data)

    def end(self, number: signal.Signals) -> None:
        """Signal every process of the command's session, also those that have left its group."""
        for pid in _session(self._child.pid):
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.kill(pid, number)


def _session(leader: int) -> list[int]:
    found = []
    for name in os.listdir("/proc"):
        if name.isdecimal():
            with contextlib.suppress(OSError), open(f"/proc/{name}/stat", "rb") as file:
                if int(file.read().rpartition(b")")[2].split()[3]) == leader:
                    found.append(int(name))
    return found


def say(stream: int, data: bytes) -> None:
    """Write a frame. One that the caller does not take yet is waited for; a caller who has left ends us."""
    rest = memoryview(bytes([stream]) + len(data).to_bytes(4) + data)
    with selectors.DefaultSelector() as selector:
        selector.register(0, selectors.EVENT_READ)
        selector.register(1, selectors.EVENT_WRITE)
        while rest:
            ready = {key.fd for key, _ in selector.select()}
            if 0 in ready:
                raise BrokenPipeError
            if 1 in ready:
                with contextlib.suppress(BlockingIOError):
                    rest = rest[os.write(1, rest) :]


def main() -> NoReturn:
    order = CommandOrder.parse(_line())
    given = _spooled(order.stdin_bytes)
    os.set_blocking(1, False)
    ours = {**settings.variables(), **_variables(order.variables_file)}
    folder = ours.get("AENV_WORKSPACE", "/")
    variables = {name: value for name, value in ours.items() if name not in _OWN}
    try:
        child = subprocess.Popen(
            order.command,
            cwd=folder,
            env=variables,
            stdin=given,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            start_new_session=True,
            restore_signals=True,
        )
    except OSError as error:
        code = 127 if isinstance(error, FileNotFoundError) else 126
        reason = "not found" if code == 127 else (error.strerror or str(error)).lower()
        say(2, f"{order.command[0]}: {reason}\n".encode(errors="replace"))
        say(0, str(code).encode())
        os._exit(0)
    running = RunningOrder(child, order.timeout)
    try:
        say(0, str(running.run()).encode())
    except BrokenPipeError:
        running.end(signal.SIGKILL)
        child.wait()
        os._exit(1)
    os._exit(0)


def _variables(file: str) -> dict[str, str]:
    """Those of an instance that was told them after its container had started."""
    if not file:
        return {}
    try:
        with open(file, encoding="utf-8", errors="surrogateescape") as told:
            found = json.load(told)
    except (OSError, ValueError):  # its container has them itself, or its code has spoilt its own note
        return {}
    return {str(name): str(value) for name, value in found.items()} if isinstance(found, dict) else {}


def _line() -> bytes:
    """The first line of standard input, and not a byte more."""
    line = bytearray()
    while not line.endswith(b"\n"):
        byte = os.read(0, 1)
        if not byte:
            sys.exit(1)
        line += byte
    return bytes(line)


def _spooled(size: int) -> int:
    """The command's input as a file in memory: it has an end, and need not be fed while the command runs."""
    if not size:
        return os.open(os.devnull, os.O_RDONLY)
    handle = os.memfd_create("stdin")
    while size:
        piece = os.read(0, min(size, _PIECE_BYTES))
        if not piece:
            sys.exit(1)
        size -= len(piece)
        while piece:
            piece = piece[os.write(handle, piece) :]
    os.lseek(handle, 0, os.SEEK_SET)
    return handle


if __name__ == "__main__":
    main()
