"""The files of a workspace that only programs in its container can reach: each request is such a program."""

from __future__ import annotations

import contextlib
import json
from collections.abc import AsyncGenerator, AsyncIterable, AsyncIterator
from typing import Any

from ...base.errors import StartFailed, from_code
from ...base.supervision import to_the_end
from ..base import FileEntry
from .container_commands import Program, StartProgram
from .workspace_program import CONTENT, DONE, FAILED, PIECE_BYTES, FileOrder

_PROGRAM = ("python3", "-P", "-m", "aenv.engines.containers.workspace_program")


class ContainerFiles:
    """The workspace of one instance. `start` starts programs in its main container."""

    def __init__(self, id: str, start: StartProgram) -> None:
        self._id = id
        self._start = start

    async def put(self, path: str, content: AsyncIterable[bytes]) -> int:
        async with self._ordered(FileOrder("put", self._id, path)) as program:
            # An error is said before all was sent: what follows then goes nowhere.
            async for piece in content:
                for at in range(0, len(piece), PIECE_BYTES):
                    part = piece[at : at + PIECE_BYTES]
                    await program.write(len(part).to_bytes(4) + part)
            await program.write(bytes(4))
            return int(await _result(program))

    async def read(self, path: str) -> AsyncIterator[bytes]:
        order = FileOrder("read", self._id, path)
        async with self._ordered(order) as program, contextlib.aclosing(_frames(program)) as frames:
            async for kind, content in frames:
                if kind == CONTENT:
                    yield content

    async def entries(self, path: str, *, after: str, limit: int) -> list[FileEntry]:
        async with self._ordered(FileOrder("list", self._id, path, after, limit)) as program:
            return [FileEntry(**entry) for entry in await _result(program)]

    async def remove(self, path: str) -> None:
        async with self._ordered(FileOrder("remove", self._id, path)) as program:
            await _result(program)

    @contextlib.asynccontextmanager
    async def _ordered(self, order: FileOrder) -> AsyncIterator[Program]:
        program = await self._start(_PROGRAM)
        try:
            await program.write(order.line())
            yield program
        finally:
            await to_the_end(program.leave())


async def _result(program: Program) -> Any:
    async with contextlib.aclosing(_frames(program)) as frames:
        async for kind, content in frames:
            if kind == DONE:
                return json.loads(content)
    raise AssertionError("the last frame is a result, or an error")


async def _frames(program: Program) -> AsyncGenerator[tuple[int, bytes], None]:
    """What it says, up to its result. An error that it says is raised; StartFailed when it ends without either."""
    held = said = b""
    async with contextlib.aclosing(program.outputs()) as outputs:
        async for stream, piece in outputs:
            if stream != 1:
                said = (said + piece)[-500:]
                continue
            held += piece
            while len(held) >= 5 and len(held) >= (end := 5 + int.from_bytes(held[1:5])):
                kind, content, held = held[0], held[5:end], held[end:]
                if kind == FAILED:
                    error = json.loads(content)
                    raise from_code(str(error["code"]), str(error["message"]))
                yield kind, content
                if kind == DONE:
                    return
    reason = said.decode(errors="replace").strip() or "its container has ended"
    raise StartFailed(f"the image cannot reach its workspace: {reason}")
