"""Does one thing with the files of a workspace, in the container whose workspace it is.

    python3 -P -m aenv.engines.containers.workspace_program

Standard input brings a `FileOrder` as one line of JSON, and for `put` the content in frames, of which the last is
empty.
Standard output carries frames: the kind in one byte, the length in four, the content. It is started by an engine
that cannot reach the workspace from outside (`container_files.py`).
"""

from __future__ import annotations

import asyncio
import json
import os
import sys
from collections.abc import AsyncIterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import BinaryIO, Literal

from ...base.errors import AEnvError
from ..workspace import Workspace
from .container_plan import FILES, WORKSPACE

CONTENT, DONE, FAILED = 1, 2, 3
"""Kinds of frames: a piece of a file, the result as JSON, an error as JSON."""
PIECE_BYTES = 48 << 10


@dataclass(frozen=True)
class FileOrder:
    """What to do with which file. The program may be of another version, so a new field needs a default."""

    do: Literal["put", "read", "list", "remove"]
    id: str
    """The instance's."""
    path: str
    after: str = ""
    limit: int = 0
    """Of a list: the name before the first entry, and the most entries."""

    def line(self) -> bytes:
        return json.dumps(asdict(self)).encode() + b"\n"


def frame(kind: int, content: bytes) -> bytes:
    return bytes([kind]) + len(content).to_bytes(4) + content


async def do(order: FileOrder, given: BinaryIO) -> object:
    """The result, which has a JSON form. What is read is written to standard output meanwhile."""
    workspace, path = _workspace(order.id), order.path
    match order.do:
        case "put":
            return await workspace.put(path, _content(given))
        case "read":
            async for piece in workspace.read(path):
                for at in range(0, len(piece), PIECE_BYTES):
                    _say(CONTENT, piece[at : at + PIECE_BYTES])
        case "list":
            found = await workspace.entries(path, after=order.after, limit=order.limit)
            return [asdict(entry) for entry in found]
        case "remove":
            await workspace.remove(path)
    return None


def _workspace(id: str) -> Workspace:
    """Where half a file can lie beside the workspace, it does; where the operator has mounted one, within."""
    if Path(FILES, "workspace").is_dir():
        os.makedirs(f"{FILES}/aside", exist_ok=True)
        return Workspace(FILES, id, ("workspace",), ("aside",))
    os.makedirs(f"{WORKSPACE}/.aenv-aside", exist_ok=True)
    return Workspace(WORKSPACE, id, (), (".aenv-aside",))


async def _content(given: BinaryIO) -> AsyncIterator[bytes]:
    while size := int.from_bytes(_exactly(given, 4)):
        yield _exactly(given, size)


def _exactly(given: BinaryIO, size: int) -> bytes:
    data = given.read(size)
    if len(data) < size:
        raise EOFError
    return data


def _say(kind: int, content: bytes) -> None:
    sys.stdout.buffer.write(frame(kind, content))
    sys.stdout.buffer.flush()


def main() -> None:
    given = sys.stdin.buffer
    try:
        order = FileOrder(**json.loads(given.readline()))
        result = asyncio.run(do(order, given))
    except AEnvError as error:
        _say(FAILED, json.dumps({"code": error.code, "message": error.message}).encode())
    except EOFError:  # the caller has left
        sys.exit(1)
    else:
        _say(DONE, json.dumps(result).encode())


if __name__ == "__main__":
    main()
