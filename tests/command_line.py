"""Drives the installed `aenv`, as a user does: one command to its end, or a server for the time of a block."""

from __future__ import annotations

import contextlib
import fcntl
import os
import re
import signal
import struct
import subprocess
import sys
import termios
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

AENV = Path(sys.executable).with_name("aenv")
NO_ISOLATION = ("--engine", "process")  # for `aenv serve`: most tests are not about isolation


def environ(**changes: str) -> dict[str, str]:
    """The variables of this process without those that choose a mode, and with `changes`."""
    ours = {name: value for name, value in os.environ.items() if not name.startswith(("AENV_", "DUMMY_", "HUB_"))}
    return {**ours, **changes}


def aenv(
    *arguments: str | Path, cwd: Path | None = None, env: Mapping[str, str] | None = None, stdin: str = ""
) -> subprocess.CompletedProcess[str]:
    """Run a command to its end."""
    return subprocess.run(
        _command(arguments), cwd=cwd, env=env or environ(), input=stdin, capture_output=True, text=True
    )


def on_terminal(
    *arguments: str | Path,
    env: Mapping[str, str] | None = None,
    columns: int = 80,
    when: tuple[str, Callable[[], None]] | None = None,
) -> str:
    """What a command prints to a terminal so wide: stdout and stderr together, without colours.

    `when` is a text, and what to do as soon as it stands there.
    """
    ours, theirs = os.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 24, columns, 0, 0))
    variables = {**(env or environ()), "TERM": "xterm", "NO_COLOR": "1"}
    for name in ("COLUMNS", "LINES"):  # they would count for more than the terminal
        variables.pop(name, None)
    with subprocess.Popen(
        _command(arguments), env=variables, stdin=theirs, stdout=theirs, stderr=theirs
    ) as process:
        os.close(theirs)
        said = b""
        with contextlib.suppress(OSError):  # how the end of a terminal reads
            while piece := os.read(ours, 1 << 16):
                said += piece
                if when and when[0].encode() in said:
                    when[1]()
                    when = None
        os.close(ours)
        process.wait()
    return re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", said.decode()).replace("\r\n", "\n")


def _command(arguments: Sequence[str | Path]) -> list[str | Path]:
    serves = arguments[:1] == ("serve",) and not {"--engine", "--help"} & set(arguments)
    return [AENV, *arguments, *(NO_ISOLATION if serves else ())]


class Server:
    """An `aenv` command that serves; its output is read line by line."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self.process = process

    def until(self, text: str, *, on: str = "stdout") -> list[str]:
        """The lines up to the one that contains `text`, which the last is. Fails when the output ends before."""
        stream = self.process.stdout if on == "stdout" else self.process.stderr
        assert stream
        lines = []
        for line in stream:
            lines.append(line.rstrip("\n"))
            if text in line:
                return lines
        raise AssertionError(f"the output ended before {text!r}: {lines}")

    def stop(self, number: signal.Signals = signal.SIGTERM) -> int:
        """Send a signal and wait for the end; the exit code."""
        self.process.send_signal(number)
        return self.process.wait()

    def wait(self) -> tuple[int, str]:
        """The exit code and what stood on stderr, once the command has ended by itself."""
        _, stderr = self.process.communicate()
        return self.process.returncode, stderr


@contextmanager
def serving(
    *arguments: str | Path, cwd: Path | None = None, env: Mapping[str, str] | None = None
) -> Iterator[Server]:
    """A command that runs until told to stop; it has ended when the block ends."""
    with subprocess.Popen(
        _command(arguments),
        cwd=cwd,
        env=env or environ(),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        try:
            yield Server(process)
        finally:
            if process.poll() is None:
                process.terminate()
                process.wait()
