"""The way to the sidecar of an instance: the runtime that serves there, behind a unix socket.

Code that an agent runs may have got hold of the other end: what comes from there is bounded and read strictly.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Mapping
from typing import Any

from ...base import mcp
from ...base.errors import NetworkError, NotJudged, TooLarge, from_code
from ...base.limits import MAX_BODY_BYTES, spell_bytes
from ...base.outcomes import Outcome
from ..author.sidecar import Sidecar

_MAX_HEAD_BYTES = 16 << 10
_PIECE_BYTES = 1 << 18


def reached_at(path: str) -> Sidecar:
    """The sidecar whose runtime listens at this path."""

    async def call(name: str, arguments: Mapping[str, Any]) -> Any:
        body = mcp.dumps(dict(arguments))
        if len(body) > MAX_BODY_BYTES:
            raise TooLarge(f"more than {spell_bytes(MAX_BODY_BYTES)} cannot be sent to the sidecar at once")
        status, answer = await _posted(path, f"/functions/{name}", body)
        return _result(status, answer)

    return Sidecar(call)


async def _posted(path: str, target: str, body: bytes) -> tuple[int, bytes]:
    """The status and the body of the answer. One connection for each call: its end is the end of the call."""
    head = (
        f"POST {target} HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\n"
        f"content-length: {len(body)}\r\nconnection: close\r\n\r\n"
    )
    try:
        reader, writer = await asyncio.open_unix_connection(path, limit=_MAX_HEAD_BYTES)
    except OSError as error:
        raise NetworkError(f"the sidecar cannot be reached: {error.strerror or error}") from error
    try:
        writer.write(head.encode() + body)
        first = await reader.readuntil(b"\r\n\r\n")
        answer = bytearray()
        while piece := await reader.read(_PIECE_BYTES):
            answer += piece
            if len(answer) > MAX_BODY_BYTES:
                raise NetworkError(f"the sidecar answered with more than {spell_bytes(MAX_BODY_BYTES)}")
        return int(first.split(maxsplit=2)[1]), bytes(answer)
    except (OSError, EOFError, asyncio.LimitOverrunError, ValueError, IndexError) as error:
        raise NetworkError("the sidecar closed the connection before it answered") from error
    finally:
        writer.close()
        with contextlib.suppress(OSError):
            await writer.wait_closed()


def _result(status: int, answer: bytes) -> Any:
    with contextlib.suppress(ValueError, RecursionError):
        match mcp.loads(answer):
            case {"success": True, "data": data}:
                return data
            case {"success": False, "error": str(message), "outcome": Outcome.NOT_READY}:
                raise NotJudged(Outcome.NOT_READY, message)
            case {"success": False, "error": str(message)}:
                raise from_code("", message, status=status)
    raise NetworkError("the answer of the sidecar cannot be read")
