"""An instance from outside, through its gateway: what it printed, commands beside it, its files and its past.

Not here: the instance's own tools and functions (`session.py`).
"""

from __future__ import annotations

import asyncio
import base64
import os
import secrets
from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import IO, Any, Literal
from urllib.parse import quote, urlencode

from ..base import limits, mcp
from ..base.errors import EnvironmentError, InvalidRequest, NetworkError, NotFound, TooLarge
from ..base.http1 import Response
from .api import Api

_CHUNK = 256 << 10
_UPLOAD_TIMEOUT = 3600.0
_MAX_LINE = 1 << 20  # bytes without a line end after which what is there is taken for a line


@dataclass(frozen=True)
class RemoteOutput:
    """A piece of what a command printed, or, at last, its exit code."""

    stream: Literal["stdout", "stderr", "exit"]
    data: bytes = b""
    exit_code: int | None = None


@dataclass(frozen=True)
class Finished:
    """A command that has ended."""

    stdout: str
    stderr: str
    exit_code: int


class Remote:
    """The instance `id` of the gateway behind `api`."""

    def __init__(self, api: Api, id: str) -> None:
        self.api = api
        self.id = id
        self._path = f"/env-instance/{quote(id, safe='')}"

    async def events(self) -> list[dict[str, Any]]:
        """What happened to the instance, oldest first."""
        return await self._list("/events")

    async def history(self) -> list[dict[str, Any]]:
        """The last calls, oldest first."""
        return await self._list("/history")

    async def _list(self, target: str) -> list[dict[str, Any]]:
        return await self.api.call("GET", self._path + target) or []

    def logs(self, *, follow: bool = False) -> AsyncGenerator[str]:
        """The lines that the instance has printed; with `follow` also those that come, until it ends."""
        return text_lines(self.api, f"{self._path}/logs{'?follow=1' if follow else ''}")

    # Commands.

    async def exec(
        self, command: str | Sequence[str], *, timeout: float | None = None, stdin: str | bytes = b""
    ) -> Finished:
        """What a command printed, and its exit code. TooLarge above 64 MiB: `exec_stream` takes any amount."""
        printed: dict[str, bytearray] = {"stdout": bytearray(), "stderr": bytearray()}
        async with aclosing(self.exec_stream(command, timeout=timeout, stdin=stdin)) as pieces:
            async for piece in pieces:
                if piece.exit_code is not None:
                    stdout, stderr = (text.decode("utf-8", "replace") for text in printed.values())
                    return Finished(stdout, stderr, piece.exit_code)
                printed[piece.stream] += piece.data
                if sum(map(len, printed.values())) > limits.MAX_BODY_BYTES:
                    most = limits.spell_bytes(limits.MAX_BODY_BYTES)
                    raise TooLarge(f"the command printed more than {most}; read it with exec_stream")
        raise NetworkError(f"{self.api.origin} ended the stream before the command did")

    async def exec_stream(
        self, command: str | Sequence[str], *, timeout: float | None = None, stdin: str | bytes = b""
    ) -> AsyncGenerator[RemoteOutput]:
        """Each piece of output as it comes, and the exit code last. Leaving early ends the command."""
        body: dict[str, Any] = {"command": command if isinstance(command, str) else list(command)}
        body |= {"timeout": timeout} if timeout is not None else {}
        body |= {"stdin": _text(stdin)} if stdin else {}
        headers = [("accept", "text/event-stream"), ("content-type", "application/json")]
        response = await self.api.raw("POST", f"{self._path}/exec", headers, mcp.dumps(body))
        async with aclosing(_events(response)) as events:
            async for name, data in events:
                if name == "exit":
                    yield RemoteOutput("exit", exit_code=int(data["code"]))
                elif name == "error":
                    raise EnvironmentError(str(data.get("message")))
                else:
                    text = data.get("text")
                    printed = base64.b64decode(data["base64"]) if text is None else text.encode()
                    yield RemoteOutput("stderr" if name == "stderr" else "stdout", printed)

    # Files. Paths are relative to the workspace.

    async def list_files(self, path: str = "") -> list[dict[str, Any]]:
        """What is in a folder, by name."""
        found: list[dict[str, Any]] = []
        page = {"path": path}
        while page:
            reply = await self.api.call("GET", f"{self._path}/files?{urlencode(page)}", whole=True)
            found += reply["data"] or []
            page = {"path": path, "cursor": reply["next"]} if reply.get("next") else {}
        return found

    async def upload(self, local: str | Path, remote: str) -> int:
        """Copy a file, or all files in a folder, and say how many. `remote` ending in "/" keeps a file's name."""
        source = Path(local)
        files = await asyncio.to_thread(_files_below, source)
        keeps_name = not remote or remote.endswith("/")
        for file in files:
            inside = file.relative_to(source).as_posix() if file != source else source.name if keeps_name else ""
            await self._put(file, str(PurePosixPath(remote, inside)))
        return len(files)

    async def download(self, remote: str, local: str | Path) -> int:
        """Copy a file, or all files in a folder, and say how many. Into a folder `local` a file keeps its name.

        Links below a folder are left out: one could lead back to where it is.
        """
        path, target = PurePosixPath(remote), Path(local)
        kind = await self._kind(path)
        if kind == "folder":
            return await self._fetch_folder(path, target)
        is_folder = await asyncio.to_thread(target.is_dir)
        await self._fetch(path, target / path.name if is_folder else target)
        return 1

    async def _kind(self, path: PurePosixPath) -> str:
        if path == PurePosixPath("."):
            return "folder"
        parent = "" if path.parent == PurePosixPath(".") else str(path.parent)
        for entry in await self.list_files(parent):
            if PurePosixPath(entry["path"]) == path:
                return str(entry["kind"])
        raise NotFound(f"no file {str(path)!r} in instance {self.id!r}")

    async def _fetch_folder(self, path: PurePosixPath, target: Path) -> int:
        count = 0
        await asyncio.to_thread(target.mkdir, parents=True, exist_ok=True)
        for entry in await self.list_files("" if path == PurePosixPath(".") else str(path)):
            # By its last part alone: what the other side says must not choose a place outside of `target`.
            name = PurePosixPath(entry["path"]).name
            if name in ("", ".."):
                raise EnvironmentError(f"instance {self.id!r} has a file with the name {entry['path']!r}")
            if entry["kind"] == "folder":
                count += await self._fetch_folder(path / name, target / name)
            elif entry["kind"] == "file":
                await self._fetch(path / name, target / name)
                count += 1
        return count

    async def _put(self, source: Path, target: str) -> None:
        file = await asyncio.to_thread(source.open, "rb")
        with file:
            response = await self.api.raw("PUT", self._file(target), body=_chunks(file), timeout=_UPLOAD_TIMEOUT)
            await response.read()

    async def _fetch(self, source: PurePosixPath, target: Path) -> None:
        """The file, whole or not at all."""
        part = target.with_name(f".{secrets.token_hex(8)}.part")
        response = await self.api.raw("GET", self._file(str(source)), [("accept", "*/*")])
        try:
            await asyncio.to_thread(target.parent.mkdir, parents=True, exist_ok=True)
            with await asyncio.to_thread(part.open, "xb") as file:
                async for chunk in response:
                    await asyncio.to_thread(file.write, chunk)
            part.replace(target)
        finally:
            response.close()
            part.unlink(missing_ok=True)

    def _file(self, path: str) -> str:
        return f"{self._path}/files/{quote(path)}"


async def text_lines(api: Api, target: str) -> AsyncGenerator[str]:
    """A reply line by line, as it comes."""
    rest = b""
    async for chunk in await api.raw("GET", target, [("accept", "text/plain")]):
        *lines, rest = (rest + chunk).split(b"\n")
        for line in lines:
            yield line.decode("utf-8", "replace")
        if len(rest) > _MAX_LINE:
            yield rest.decode("utf-8", "replace")
            rest = b""
    if rest:
        yield rest.decode("utf-8", "replace")


def _text(stdin: str | bytes) -> str:
    try:
        return stdin if isinstance(stdin, str) else stdin.decode()
    except UnicodeDecodeError:
        raise InvalidRequest("stdin must be text in UTF-8; upload a file for anything else") from None


async def _chunks(file: IO[bytes]) -> AsyncGenerator[bytes]:
    while chunk := await asyncio.to_thread(file.read, _CHUNK):
        yield chunk


async def _events(response: Response) -> AsyncGenerator[tuple[str, dict[str, Any]]]:
    """The named events of a stream of ours, with their JSON."""
    rest = b""
    async for chunk in response:
        *blocks, rest = (rest + chunk).split(b"\n\n")
        for block in blocks:
            fields = dict(line.split(b": ", 1) for line in block.split(b"\n") if b": " in line)
            if b"event" in fields:
                yield fields[b"event"].decode(), mcp.loads(fields[b"data"])


def _files_below(folder: Path) -> list[Path]:
    """Every file in a folder and in the folders below, or the file itself; links to folders are not followed."""
    if not folder.is_dir():
        return [folder]
    return sorted(
        Path(where) / name
        for where, _, names in os.walk(folder)
        for name in names
        if (Path(where) / name).is_file()
    )
