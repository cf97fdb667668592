"""What a handler of the runtime's server sees: requests, replies, and a stream for early output."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Any, Protocol

from ...base import masks, mcp
from ...base.limits import MAX_BODY_BYTES, spell_bytes


@dataclass(slots=True)
class Request:
    method: str = ""
    path: str = ""
    query: str = ""
    headers: dict[str, str] = field(default_factory=dict)
    body: bytes = b""
    keep_alive: bool = True


@dataclass(slots=True)
class Reply:
    status: int = 200
    body: bytes = b""
    content_type: str = "application/json"
    headers: tuple[tuple[str, str], ...] = ()


def json_reply(value: Any, status: int = 200, headers: tuple[tuple[str, str], ...] = ()) -> Reply:
    return Reply(status, mcp.dumps(value), headers=headers)


def refuse(status: int, message: str, headers: tuple[tuple[str, str], ...] = ()) -> Reply:
    """An error in the runtime's envelope."""
    return json_reply({"success": False, "error": message}, status, headers)


def too_large(size: int) -> str:
    """What is said instead of a result above the limit."""
    return f"the result has {size} bytes, more than the limit of {spell_bytes(MAX_BODY_BYTES)}; return less"


class StreamWriter(Protocol):
    """The connection, as a stream needs it."""

    def begin_stream(self, request: Request, content_type: str) -> None: ...

    def write_chunk(self, chunk: bytes, *, droppable: bool = False) -> None: ...

    def end_stream(self) -> None: ...


class Stream:
    """A response that is sent piece by piece; made by the handler when it has something to send early."""

    def __init__(self, connection: StreamWriter, request: Request) -> None:
        self._connection = connection
        self._request = request
        self.started = False
        self.answered = False
        self.masks = masks.NONE
        """What hides the secrets of the instance in what is sent."""

    def send(self, chunk: bytes) -> None:
        """Send now, without waiting: dropped when the client reads too slowly, or has its answer already."""
        if self.answered:
            return
        if not self.started:
            self.started = True
            self._connection.begin_stream(self._request, "text/event-stream")
        self._connection.write_chunk(self.masks.events(chunk), droppable=True)

    def finish(self, chunk: bytes) -> None:
        self._connection.write_chunk(self.masks.events(chunk))
        self._connection.end_stream()


Handler = Callable[[Request, Stream], Awaitable[Reply | None]]
"""Answers a request: with a Reply, or with None after it has finished the Stream."""
