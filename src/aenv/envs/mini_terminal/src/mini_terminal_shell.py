"""One bash that runs one command after another, and what is read from it and told to it.

It is an interactive bash, so that an interrupt ends what runs and not the shell. It reads from a pipe of its own;
what a command reads is a terminal, which is how programs are fed and interrupted. For each command it is told

    . /dev/fd/93 …       with the command as a here-document, its input the terminal, its outputs one pipe
    printf TOKEN CODE    to a pipe that no command has

The second line is read also when the first was interrupted. A command is read to its end before it is run, so that
unbalanced quotes take nothing of ours with them. The token is new each time: what a command prints is never taken
for its end. What the shell itself prints between commands, such as prompts, goes nowhere.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import pty
import secrets
import shutil
import signal
import termios
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from mini_terminal_output import CappedOutput
from mini_terminal_processes import collect_orphans

from aenv import ToolError

STATUS, TERMINAL, OUTPUT, COMMAND = 90, 91, 92, 93  # above what scripts and bash itself use, below any limit
_PIECE = 1 << 18
_MOST_PENDING = 4096
_PREPARE = "set +o history +o histexpand; unset HISTFILE; PS1= PS2=\n"
# A bash that finds no end of these may crash at the next command: so another one reads them first.
_INNER_COMMANDS = ("$(", "`", "<(", ">(")
_DEFAULTS = {"PATH": os.defpath, "TERM": "dumb", "LANG": "C.UTF-8"}


class Shell:
    """A bash that lives. Made and used on one event loop; `stop` ends it, and so does the command `exit`."""

    def __init__(self, folder: Path, variables: Mapping[str, str], output: CappedOutput) -> None:
        self.output = output
        self.code = 0
        """The exit code of the last command that has ended; 128 + n when signal n has ended the shell."""
        self.is_alive = True
        self._is_done = asyncio.Event()
        self._is_done.set()
        self._may_write = asyncio.Event()
        self._is_gone = asyncio.Event()
        self._token = b""
        self._said = b""
        self._last_code: int | None = None
        """Of the command after which the shell is ended by us."""
        self._loop = asyncio.get_running_loop()
        self._spawn({**_DEFAULTS, **variables}, folder)

    @property
    def is_busy(self) -> bool:
        """Whether a command has begun and not ended."""
        return not self._is_done.is_set()

    async def run(self, command: str, timeout: float) -> bool:
        """Start a command, and say whether it has ended within `timeout` seconds."""
        try:
            async with asyncio.timeout(timeout):
                await self._start(command)
                await self._is_done.wait()
        except TimeoutError:
            return False
        return True

    async def ended(self, timeout: float) -> bool:
        """Whether the command has ended, waiting for it up to `timeout` seconds."""
        try:
            async with asyncio.timeout(timeout):
                await self._is_done.wait()
        except TimeoutError:
            return False
        return True

    async def feed(self, text: bytes, timeout: float) -> None:
        """Let the running program read this from its terminal."""
        try:
            async with asyncio.timeout(timeout):
                await self._write(self._terminal, text)
        except TimeoutError:
            raise ToolError("the program does not read what it was sent before; nothing more fits") from None

    def send(self, number: signal.Signals) -> None:
        """Send a signal to what runs in the foreground: a program with its children, or the shell itself."""
        if self.is_alive:
            with contextlib.suppress(ProcessLookupError):
                group = os.tcgetpgrp(self._terminal) or self.pid
                os.killpg(group, number)
                os.killpg(group, signal.SIGCONT)  # what is stopped does not hear it

    async def gone(self) -> None:
        """Wait until the shell, which has been killed, has been collected, with all that it left."""
        await self._is_gone.wait()
        collect_orphans(keep=0)

    def stop(self) -> None:
        """End the shell and what runs in its foreground. What runs in the background goes on."""
        self.send(signal.SIGKILL)
        if self.is_alive:
            os.kill(self.pid, signal.SIGKILL)

    async def _start(self, command: str) -> None:
        """Hand the command over. When this is cancelled half-way, the shell is of no use, and is ended."""
        token = secrets.token_hex(16)
        self._token, self._said = token.encode(), b""
        self._is_done.clear()
        # The last program may have changed the modes, and left what it was sent unread: it was not for this one.
        termios.tcflush(self._terminal, termios.TCOFLUSH)
        termios.tcsetattr(self._terminal, termios.TCSAFLUSH, self._modes)
        # So that "$?" is that of the last command; in a list, or it would end a shell with `set -e`.
        before = f"(exit {self.code}) && ((1))\n" if self.code else ""
        closed = f"{STATUS}>&- {TERMINAL}>&- {OUTPUT}>&-"
        check, checked = "", ""
        if any(sign in command for sign in _INNER_COMMANDS):
            check = f"{self._bash} --norc -O extglob -n <<'{token}-' >&{OUTPUT} 2>&1 {closed} && "
            checked = f"{command}\n{token}-\n"
        source = f"\\builtin . /dev/fd/{COMMAND} <&{TERMINAL} >&{OUTPUT} 2>&1 {COMMAND}<<'{token}' {closed}"
        run = f"{before}{check}{source}\n{checked}{command}\n{token}\n"
        tell = f'\\builtin printf \'{token} %d %s\\n\' "$?" "$-" >&{STATUS}\n'
        try:
            await self._write(self._script, (run + tell).encode())
        except BaseException:
            self.stop()
            raise

    def _spawn(self, variables: dict[str, str], folder: Path) -> None:
        program = shutil.which("bash", path=variables["PATH"])
        if program is None:
            raise ToolError("there is no bash on the PATH of this instance; use an image that has one")
        self._bash = _quoted(program)
        self._terminal, slave = pty.openpty()
        script, self._script = os.pipe()
        self._status, status = os.pipe()
        self._printed, printed = os.pipe()
        self._modes = _modes(slave)
        termios.tcsetwinsize(slave, (24, 80))
        actions = [
            *((os.POSIX_SPAWN_CLOSE, descriptor) for descriptor in _inheritable()),
            (os.POSIX_SPAWN_DUP2, script, 0),
            (os.POSIX_SPAWN_OPEN, 1, os.devnull, os.O_WRONLY, 0),
            (os.POSIX_SPAWN_DUP2, 1, 2),
            (os.POSIX_SPAWN_DUP2, status, STATUS),
            (os.POSIX_SPAWN_DUP2, printed, OUTPUT),
            # Opened rather than handed over: so it becomes the terminal of the new session.
            (os.POSIX_SPAWN_OPEN, TERMINAL, os.ttyname(slave), os.O_RDWR, 0),
        ]
        words = ["bash", "--noprofile", "--norc", "--noediting", "-i", "-s"]
        ignored_by_python = [signal.SIGPIPE, signal.SIGXFSZ]
        try:
            self.pid = os.posix_spawn(
                program, words, variables, file_actions=actions, setsid=True, setsigdef=ignored_by_python
            )
        finally:
            for descriptor in (script, status, printed, slave):
                os.close(descriptor)
        self._process = os.pidfd_open(self.pid)
        os.write(self._script, f"{_PREPARE}cd -- {_quoted(str(folder))} || cd /\n".encode())
        self._watch()

    def _watch(self) -> None:
        readers: dict[int, Callable[[], object]] = {
            self._printed: lambda: self._read_output(self._printed),
            self._terminal: lambda: self._read_output(self._terminal),
            self._status: self._read_status,
            self._process: self._collect,
        }
        for descriptor, read in readers.items():
            os.set_blocking(descriptor, False)
            self._loop.add_reader(descriptor, read)
        os.set_blocking(self._script, False)

    async def _write(self, descriptor: int, data: bytes) -> None:
        while data and self.is_alive:
            try:
                data = data[os.write(descriptor, data) :]
            except BlockingIOError:
                self._may_write.clear()
                self._loop.add_writer(descriptor, self._may_write.set)
                try:
                    await self._may_write.wait()
                finally:
                    if self.is_alive:
                        self._loop.remove_writer(descriptor)
            except BrokenPipeError:
                return  # it has ended, and will be collected

    def _read_output(self, descriptor: int) -> bool:
        """Whether there was something."""
        try:
            piece = os.read(descriptor, _PIECE)
        except BlockingIOError:
            return False
        except OSError:  # a terminal that no process has open
            piece = b""
        if not piece:
            self._loop.remove_reader(descriptor)
        self.output.add(piece)
        return bool(piece)

    def _read_status(self) -> None:
        with contextlib.suppress(BlockingIOError):
            piece = os.read(self._status, _PIECE)
            if not piece:
                self._loop.remove_reader(self._status)
            *lines, rest = (self._said + piece).split(b"\n")
            self._said = rest[-_MOST_PENDING:]
            for line in lines:
                match line.split(b" "):
                    case [self._token, code, options] if code.isdigit():
                        if b"r" in options:  # a restricted shell would not run what it is told
                            self._last_code = int(code)
                            self.stop()
                            return
                        self.code = int(code)
                        self._finish()

    def _collect(self) -> None:
        """The shell has ended."""
        _, status = os.waitpid(self.pid, 0)
        code = os.waitstatus_to_exitcode(status)
        self.code = code if code >= 0 else 128 - code
        if self._last_code is not None:
            self.code = self._last_code
        self._finish()
        self.is_alive = False
        for descriptor in (self._printed, self._terminal, self._status, self._process):
            self._loop.remove_reader(descriptor)
        for descriptor in (self._terminal, self._script):
            self._loop.remove_writer(descriptor)
        for descriptor in (self._printed, self._terminal, self._status, self._process, self._script):
            os.close(descriptor)
        self._may_write.set()
        self._is_gone.set()

    def _finish(self) -> None:
        # What the command has printed is in the pipe by now; a bound, since others may go on printing.
        for descriptor in (self._printed, self._terminal):
            left = 8
            while left and self._read_output(descriptor):
                left -= 1
        collect_orphans(self.pid)
        self._token = b""
        self._is_done.set()


def _inheritable() -> list[int]:
    """What a program would get of ours without being given it: the runtime's own socket, for one."""
    found = []
    for name in os.listdir("/proc/self/fd"):
        with contextlib.suppress(OSError):  # the one that was open to list them
            if int(name) > 2 and os.get_inheritable(int(name)):
                found.append(int(name))
    return found


def _modes(terminal: int) -> list[Any]:
    """Those of a terminal that shows nothing of what is typed, and changes nothing of what is printed."""
    modes = termios.tcgetattr(terminal)
    modes[1] &= ~termios.OPOST
    modes[3] &= ~termios.ECHO
    return modes


def _quoted(text: str) -> str:
    return "'" + text.replace("'", "'\\''") + "'"
