"""The sidecar of an instance: another root file system, in which the main part's tools run commands.

    @register_tool
    async def bash(command: str, sidecar: Sidecar) -> str:
        return (await sidecar.exec(command)).stdout

Not here: how the sidecar is reached, which is the runtime's matter.
"""

from __future__ import annotations

import asyncio
import functools
import json
from collections.abc import Awaitable, Callable, Coroutine, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Concatenate, ParamSpec, TypeVar

from ...base.errors import InvalidRequest
from .sidecar_replies import CommandReply, PythonReply, nonsense, packed, unpacked

P = ParamSpec("P")
T = TypeVar("T")
Call = Callable[[str, Mapping[str, Any]], Awaitable[Any]]
"""Calls a function of the sidecar by its name, and gives what it returns."""


@dataclass(frozen=True)
class CommandResult:
    """A command that has ended."""

    exit_code: int
    """As shells say it: 124 when it took too long, 127 when there is no such program."""
    stdout: str
    stderr: str
    truncated: bool = False
    """Whether it printed more than is kept: the beginning, 4 MiB of each stream."""


@dataclass(frozen=True)
class PythonResult(CommandResult):
    """Python code that has ended."""

    answer: Any = None
    """What its `main` gave back; None when it failed, which `stderr` explains."""


class Sidecar:
    """Runs commands in the sidecar, and reads and writes its files. For async tools."""

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
        reply = CommandReply.read(await self._call("run", asked))
        return CommandResult(reply.exit_code, _text(reply.stdout), _text(reply.stderr), reply.truncated)

    async def read_file(self, path: str) -> bytes:
        """The content of a file; a path that does not begin with "/" is below the image's folder."""
        return unpacked(await self._told(str, "read_file", {"path": path}))

    async def write_file(self, path: str, data: bytes | str) -> None:
        """Write a file, and make the folders above it."""
        await self._call("write_file", {"path": path, "data": _packed(data)})

    async def terminal(
        self, keys: str = "", *, wait: float = 0.0, history: bool = False, folder: str | None = None
    ) -> str:
        """Type into the terminal of the sidecar, and give what it shows, `wait` seconds later.

        It has 40 rows of 160 columns and one shell, which begins in `folder`, and anew when it has ended. Without
        `wait`, the terminal is given a moment to answer. With `history` comes also what has scrolled away.
        """
        asked = {"keys": keys, "wait": wait, "history": history, "folder": folder or ""}
        return await self._told(str, "terminal", asked)

    # For a verdict

    async def end_processes(self) -> None:
        """End every process there, and the terminal's shell with them."""
        await self._call("end_processes", {})

    async def processes(self) -> int:
        """How many processes there are."""
        return await self._told(int, "processes", {})

    async def restore(self) -> list[str]:
        """Put back the programs and libraries that the image has; the paths of what was changed.

        What was added stays, unless it would be taken for a program of the image.
        """
        return [str(path) for path in await self._told(list, "restore", {})]

    async def put_folder(self, path: str, files: Mapping[str, bytes], executable: Sequence[str] = ()) -> None:
        """Make a folder that holds these files, by their path in it, in the place of whatever is there."""
        texts = {name: data.decode("utf-8", "surrogateescape") for name, data in files.items()}
        modes = dict.fromkeys(executable, 0o755)
        await self._call("put_folder", {"path": path, "files": texts, "modes": modes})

    async def remove(self, path: str) -> None:
        """Remove a file, or a folder with all that is in it; fine when there is none."""
        await self._call("remove", {"path": path})

    async def python(
        self,
        code: str,
        arguments: Mapping[str, Any] | None = None,
        *,
        timeout: float | None = None,
        variables: Mapping[str, str] | None = None,
    ) -> PythonResult:
        """Run `main(**arguments)`, which the code defines, with this instance's own Python and not the image's.

        No program of the sidecar takes part in that, and no process there can look into it. What `main`
        gives back must fit into JSON.
        """
        asked = {
            "code": code,
            "arguments": dict(arguments or {}),
            "timeout": timeout,
            "variables": dict(variables or {}),
        }
        reply = PythonReply.read(await self._call("python", asked))
        answer = json.loads(reply.answer) if reply.answer else None
        out, err = _text(reply.stdout), _text(reply.stderr)
        return PythonResult(reply.exit_code, out, err, reply.truncated, answer)

    async def _told(self, kind: type[T], name: str, asked: Mapping[str, Any]) -> T:
        """What a function of the sidecar returns. NetworkError when it is of another kind."""
        said = await self._call(name, asked)
        if not isinstance(said, kind):
            raise nonsense()
        return said


def _blocking(
    method: Callable[Concatenate[Sidecar, P], Coroutine[Any, Any, T]],
) -> Callable[Concatenate[SyncSidecar, P], T]:
    """The method that waits for what `method` of the sidecar gives."""

    @functools.wraps(method)
    def blocking(self: SyncSidecar, /, *args: P.args, **kwargs: P.kwargs) -> T:
        return self._wait(method(self._part, *args, **kwargs))

    return blocking


class SyncSidecar:
    """The same for sync tools, which run in threads of their own: each method is as that of `Sidecar`."""

    def __init__(self, part: Sidecar, loop: asyncio.AbstractEventLoop) -> None:
        self._part = part
        self._loop = loop

    exec = _blocking(Sidecar.exec)
    read_file = _blocking(Sidecar.read_file)
    write_file = _blocking(Sidecar.write_file)
    terminal = _blocking(Sidecar.terminal)
    python = _blocking(Sidecar.python)
    end_processes = _blocking(Sidecar.end_processes)
    processes = _blocking(Sidecar.processes)
    restore = _blocking(Sidecar.restore)
    put_folder = _blocking(Sidecar.put_folder)
    remove = _blocking(Sidecar.remove)

    def _wait(self, work: Coroutine[Any, Any, T]) -> T:
        try:
            running = asyncio.get_running_loop()
        except RuntimeError:
            running = None
        if running is self._loop:  # it would wait for itself
            work.close()
            raise InvalidRequest("an async tool takes a 'Sidecar'; 'SyncSidecar' is for sync tools")
        return asyncio.run_coroutine_threadsafe(work, self._loop).result()


def _packed(data: bytes | str) -> str:
    return packed(data.encode() if isinstance(data, str) else data)


def _text(data: str) -> str:
    return unpacked(data).decode(errors="replace")
