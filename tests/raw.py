"""HTTP by hand: whatever bytes a test wants on a socket, and the replies that come back."""

from __future__ import annotations

import json
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import urlsplit

import httptools

TIMEOUT = 20.0  # for a server that never answers; a good one is never waited for


@dataclass
class Reply:
    """One response."""

    status: int = 0
    headers: dict[str, str] = field(default_factory=dict)
    body: bytes = b""

    def json(self) -> Any:
        return json.loads(self.body)

    def error(self) -> str:
        """The message of a refusal, in either envelope: a runtime's, or JSON-RPC's."""
        error = self.json()["error"]
        return str(error["message"] if isinstance(error, dict) else error)


class Raw:
    """One connection."""

    def __init__(self, connection: socket.socket) -> None:
        self.socket = connection
        self._parser = httptools.HttpResponseParser(self)
        self._reply = Reply()
        self._body: list[bytes] = []
        self._replies: list[Reply] = []

    def send(self, data: bytes) -> None:
        self.socket.sendall(data)

    def request(
        self, method: str, path: str, body: bytes = b"", headers: tuple[tuple[str, str], ...] = ()
    ) -> Reply:
        self.send(request(method, path, body, headers))
        return self.reply()

    def call(self, path: str, arguments: Any = None) -> Reply:
        """POST `arguments` as JSON."""
        return self.request("POST", path, json.dumps({} if arguments is None else arguments).encode())

    def reply(self) -> Reply:
        """The next reply. ConnectionError when the server hangs up before it."""
        while not self._replies:
            data = self.socket.recv(1 << 20)
            if not data:
                raise ConnectionError("the server closed the connection without an answer")
            self._parser.feed_data(data)
        return self._replies.pop(0)

    def is_closed(self) -> bool:
        """Whether the server ends the connection; waits for it."""
        try:
            return self.socket.recv(1) == b""
        except ConnectionError:
            return True

    # What httptools calls.

    def on_message_begin(self) -> None:
        self._reply = Reply()
        self._body = []

    def on_header(self, name: bytes, value: bytes) -> None:
        self._reply.headers[name.decode().lower()] = value.decode("latin-1")

    def on_body(self, body: bytes) -> None:
        self._body.append(body)

    def on_message_complete(self) -> None:
        self._reply.status = self._parser.get_status_code()
        self._reply.body = b"".join(self._body)
        if self._reply.status >= 200:  # 100 Continue only announces the real one
            self._replies.append(self._reply)


def request(
    method: str,
    path: str,
    body: bytes = b"",
    headers: tuple[tuple[str, str], ...] = (),
    host: str = "localhost",
) -> bytes:
    lines = [f"{method} {path} HTTP/1.1", f"host: {host}", f"content-length: {len(body)}"]
    lines += [f"{name}: {value}" for name, value in headers]
    return ("\r\n".join(lines) + "\r\n\r\n").encode("latin-1") + body


@contextmanager
def connected(address: str) -> Iterator[Raw]:
    """A connection to the server at `address` ("http://host:port")."""
    parts = urlsplit(address)
    assert parts.hostname
    assert parts.port
    with socket.create_connection((parts.hostname, parts.port), timeout=TIMEOUT) as connection:
        yield Raw(connection)


@contextmanager
def surviving(address: str) -> Iterator[Raw]:
    """A connection to a runtime with an `echo` tool, which must still answer afterwards, on a new connection."""
    with connected(address) as raw:
        yield raw
    with connected(address) as after:
        assert after.request("GET", "/health").json()["success"] is True
        answer = after.call("/tools/echo", {"text": "still here"})
        assert answer.json()["data"]["content"] == [{"type": "text", "text": "still here"}]
