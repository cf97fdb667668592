"""The second part of an instance: another root file system, in which the first part's tools run commands.

    @register_tool
    async def bash(command: str, second: SecondPart) -> str:
        return (await second.exec(command)).stdout

Not here: how the second part is reached, which is the runtime's matter.
"""

from __future__ import annotations

import asyncio
import base64
from collections.abc import Awaitable, Callable, Coroutine, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

from ..errors import InvalidRequest, NetworkError

T = TypeVar("T")
Call = Callable[[str, Mapping[str, Any]], Awaitable[Any]]
"""Calls a function of the second part by its name, and gives what it returns."""


@dataclass(frozen=True)
class CommandResult:
    """A command that has ended."""

    exit_code: int
    """As shells say it: 124 when it took too long, 127 when there is no such program."""
    stdout: str
    stderr: str
    truncated: bool = False
    """Whether it printed more than is kept: the beginning, 4 MiB of each stream."""


class SecondPart:
    """Runs commands in the second part, and reads and writes its files. For async tools."""

    def __init__(self, call: Call) -> None:
        self._call = call

    async def exec(
        self,
        command: Sequence[str],
        *,
        stdin: bytes | str = b"",
        timeout: float | None = None,
        folder: str | None = None,
        variables: Mapping[str, str] | None = None,
    ) -> CommandResult:
        """Run a program with its arguments, or a line of text with `/bin/sh`. Cancelling ends it.

        It runs in the image's folder and with its variables, unless others are given. What it has left running
        when it ends runs on; after `timeout` seconds it is ended with all of its session.
        """
        words = ["/bin/sh", "-c", command] if isinstance(command, str) else list(command)
        if not words or not words[0]:
            raise InvalidRequest("the command is empty; give a program and its arguments")
        asked = {
            "command": words,
            "stdin": _packed(stdin),
            "timeout": timeout,
            "folder": folder or "",
            "variables": dict(variables or {}),
        }
        match await self._call("run", asked):
            case {"exit_code": int(code), "stdout": str(out), "stderr": str(err), "truncated": bool(cut)}:
                return CommandResult(code, _text(out), _text(err), cut)
        raise _nonsense()

    async def read_file(self, path: str) -> bytes:
        """The content of a file; a path that does not begin with "/" is below the image's folder."""
        match await self._call("read_file", {"path": path}):
            case str(data):
                return _unpacked(data)
        raise _nonsense()

    async def write_file(self, path: str, data: bytes | str) -> None:
        """Write a file, and make the folders above it."""
        await self._call("write_file", {"path": path, "data": _packed(data)})


class SyncSecondPart:
    """The same for sync tools, which run in threads of their own."""

    def __init__(self, part: SecondPart, loop: asyncio.AbstractEventLoop) -> None:
        self._part = part
        self._loop = loop

    def exec(
        self,
        command: Sequence[str],
        *,
        stdin: bytes | str = b"",
        timeout: float | None = None,
        folder: str | None = None,
        variables: Mapping[str, str] | None = None,
    ) -> CommandResult:
        """As `SecondPart.exec`."""
        return self._wait(
            self._part.exec(command, stdin=stdin, timeout=timeout, folder=folder, variables=variables)
        )

    def read_file(self, path: str) -> bytes:
        """As `SecondPart.read_file`."""
        return self._wait(self._part.read_file(path))

    def write_file(self, path: str, data: bytes | str) -> None:
        """As `SecondPart.write_file`."""
        self._wait(self._part.write_file(path, data))

    def _wait(self, work: Coroutine[Any, Any, T]) -> T:
        try:
            running = asyncio.get_running_loop()
        except RuntimeError:
            running = None
        if running is self._loop:  # it would wait for itself
            work.close()
            raise InvalidRequest("an async tool takes a 'SecondPart'; 'SyncSecondPart' is for sync tools")
        return asyncio.run_coroutine_threadsafe(work, self._loop).result()


def _packed(data: bytes | str) -> str:
    return base64.b64encode(data.encode() if isinstance(data, str) else data).decode()


def _unpacked(data: str) -> bytes:
    try:
        return base64.b64decode(data, validate=True)
    except ValueError:
        raise _nonsense() from None


def _text(data: str) -> str:
    return _unpacked(data).decode(errors="replace")


def _nonsense() -> NetworkError:
    # Code that runs there may have got hold of it.
    return NetworkError("the second part answered with something that makes no sense")
