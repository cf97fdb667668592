"""A lean HTTP/1.1 server on asyncio and httptools: no timer runs while it is idle.

One `Connection` per client; it parses, runs the handler in a task, and writes the reply. Pipelined requests
are answered in order. Not here: what the requests mean (`app.py`), and the shapes that handlers see
(`messages.py`). docs/adr/0028 has what it was compared with.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import socket
from collections import deque
from http import HTTPStatus
from typing import cast

import httptools

from ...base.limits import spell_bytes
from .accepting import WatchedAcceptor
from .messages import Handler, Reply, Request, Stream, refuse

logger = logging.getLogger("aenv.inside.runtime.http")

MAX_HEAD_BYTES = 64 << 10
HEAD_TIMEOUT = 15.0
BODY_TIMEOUT = 60.0
SLOWEST_BODY = 64 << 10  # bytes a second that a large upload must reach on average
WRITE_TIMEOUT = 60.0
# How long a call goes on after its client closed its side. A half-closed client still gets a quick answer; one
# that is gone looks the same on TCP, so the call must end soon.
GONE_GRACE = 0.5
_MAX_PIPELINED = 16


class Connection(asyncio.Protocol):
    def __init__(self, handler: Handler, open_connections: set[Connection], max_body_bytes: int) -> None:
        self._handler = handler
        self._open = open_connections
        self._max_body_bytes = max_body_bytes
        self._loop = asyncio.get_running_loop()
        self._parser = httptools.HttpRequestParser(self)
        self._request = Request()
        self._target = b""
        self._body: list[bytes] = []
        self._body_bytes = 0
        self._head_bytes = 0
        self._in_head = False
        self._receiving = False
        self._body_timeout = BODY_TIMEOUT
        self._waiting: deque[Request | Reply] = deque()
        self.task: asyncio.Task[None] | None = None
        self._deadline: asyncio.TimerHandle | None = None
        self._gone: asyncio.TimerHandle | None = None
        self._drained: asyncio.Future[None] | None = None
        self._chunked = True
        self._refusing = False

    def close(self) -> None:
        """For the server's end: drop the client and cancel its call."""
        self._transport.abort()

    # What asyncio calls.

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)  # uvloop's is one in all but name
        self._open.add(self)

    def data_received(self, data: bytes) -> None:
        if self._refusing:
            return  # an answer is on its way out; what still comes in is dropped
        try:
            self._parser.feed_data(data)
        except httptools.HttpParserUpgrade:
            self._refusing = True  # answered as an ordinary request; nothing after it is HTTP
        except httptools.HttpParserError as error:
            self._reject(refuse(400, f"not an HTTP request: {error}"))
        if self._in_head:
            # httptools gathers a header's value before it tells us: without this, one could grow forever.
            self._head_bytes += len(data)
            if self._head_bytes > MAX_HEAD_BYTES:
                self._reject(refuse(431, f"the request's head is larger than {MAX_HEAD_BYTES} bytes"))
        if self._receiving and self._deadline is None and not self._refusing:
            # Only now: a request that came whole, as most do, needs no timer.
            late = refuse(408, "the request did not arrive in time")
            seconds = HEAD_TIMEOUT if self._in_head else self._body_timeout
            self._deadline = self._loop.call_later(seconds, self._reject, late)

    def eof_received(self) -> bool:
        if self.task is None and not self._waiting:
            return False
        self._gone = self._loop.call_later(GONE_GRACE, self._transport.abort)
        return True

    def connection_lost(self, exc: Exception | None) -> None:
        self._open.discard(self)
        self._waiting.clear()
        self._stop_deadline()
        if self._gone:
            self._gone.cancel()
        self.resume_writing()
        if self.task:
            self.task.cancel()

    def pause_writing(self) -> None:
        self._drained = self._loop.create_future()

    def resume_writing(self) -> None:
        if self._drained and not self._drained.done():
            self._drained.set_result(None)
        self._drained = None

    # What httptools calls.

    def on_message_begin(self) -> None:
        self._request = Request()
        self._target, self._body = b"", []
        self._body_bytes = self._head_bytes = 0
        self._in_head = self._receiving = True

    def on_url(self, url: bytes) -> None:
        self._target += url

    def on_header(self, name: bytes, value: bytes) -> None:
        key = name.decode("latin-1").lower()
        text = value.decode("latin-1")
        headers = self._request.headers
        headers[key] = f"{headers[key]}, {text}" if key in headers else text

    def on_headers_complete(self) -> None:
        self._in_head = False
        headers = self._request.headers
        length = headers.get("content-length", "")
        announced = int(length) if length.isdecimal() else 0
        self._check_body(announced)
        self._body_timeout = BODY_TIMEOUT + announced / SLOWEST_BODY
        self._stop_deadline()
        if headers.get("expect", "").lower() == "100-continue" and not self._refusing:
            self._transport.write(b"HTTP/1.1 100 Continue\r\n\r\n")

    def on_body(self, body: bytes) -> None:
        self._body_bytes += len(body)
        self._check_body(self._body_bytes)
        if not self._refusing:
            self._body.append(body)

    def on_message_complete(self) -> None:
        self._receiving = False
        self._stop_deadline()
        if self._refusing:
            return
        request = self._request
        request.method = self._parser.get_method().decode("ascii")
        path, _, query = self._target.partition(b"?")
        request.path = path.decode("latin-1")
        request.query = query.decode("latin-1")
        request.body = b"".join(self._body)
        request.keep_alive = self._parser.should_keep_alive()
        self._body = []
        self._enqueue(request)

    # Limits.

    def _check_body(self, size: int) -> None:
        if size > self._max_body_bytes:
            self._reject(refuse(413, f"the body is larger than the limit of {spell_bytes(self._max_body_bytes)}"))

    def _reject(self, reply: Reply) -> None:
        """Answer in turn, then close: the rest of what the client sends is not looked at."""
        if not self._refusing:
            self._refusing = True
            self._stop_deadline()
            self._body = []
            self._enqueue(reply)

    def _stop_deadline(self) -> None:
        if self._deadline:
            self._deadline.cancel()
            self._deadline = None

    # Answering.

    def _enqueue(self, item: Request | Reply) -> None:
        self._waiting.append(item)
        if self.task is None:
            self.task = self._loop.create_task(self._answer_all())
        elif len(self._waiting) >= _MAX_PIPELINED:
            self._transport.pause_reading()

    async def _answer_all(self) -> None:
        try:
            while self._waiting:
                item = self._waiting.popleft()
                keep_alive = await self._answer(item)
                if not keep_alive:
                    self._transport.close()
                    return
            if self._gone:
                self._transport.close()
            elif not self._transport.is_closing():
                self._transport.resume_reading()
        finally:
            self.task = None

    async def _answer(self, item: Request | Reply) -> bool:
        if isinstance(item, Reply):
            self._write(item, keep_alive=False, head_only=False)
            await self._drain()
            return False
        stream = Stream(self, item)
        try:
            reply = await self._handler(item, stream)
        except Exception:  # boundary: a bug of ours must not end the connection without an answer
            logger.exception("request failed")
            reply = refuse(500, "internal error")
        finally:
            stream.answered = True
        if reply:
            self._write(reply, item.keep_alive, head_only=item.method == "HEAD")
        await self._drain()
        return item.keep_alive and not self._refusing

    async def _drain(self) -> None:
        if self._drained:
            try:
                async with asyncio.timeout(WRITE_TIMEOUT):
                    await self._drained
            except TimeoutError:
                self._transport.abort()

    def _write(self, reply: Reply, keep_alive: bool, head_only: bool) -> None:
        lines = [f"content-type: {reply.content_type}"] if reply.body else []
        lines += [f"{name}: {value}" for name, value in reply.headers]
        lines.append(f"content-length: {len(reply.body)}")
        if not keep_alive:
            lines.append("connection: close")
        self._transport.write(_head(reply.status, lines) + (b"" if head_only else reply.body))

    def begin_stream(self, request: Request, content_type: str) -> None:
        self._chunked = self._parser.get_http_version() != "1.0"
        lines = [f"content-type: {content_type}", "cache-control: no-cache, no-transform"]
        if self._chunked:
            lines.append("transfer-encoding: chunked")
        else:
            request.keep_alive = False
        if not request.keep_alive:
            lines.append("connection: close")
        self._transport.write(_head(200, lines))

    def write_chunk(self, chunk: bytes, *, droppable: bool = False) -> None:
        if not (droppable and self._drained):
            self._transport.write(b"%x\r\n%b\r\n" % (len(chunk), chunk) if self._chunked else chunk)

    def end_stream(self) -> None:
        if self._chunked:
            self._transport.write(b"0\r\n\r\n")


_REASONS = {status.value: status.phrase for status in HTTPStatus}


def _head(status: int, lines: list[str]) -> bytes:
    text = "\r\n".join([f"HTTP/1.1 {status} {_REASONS.get(status, '')}", *lines])
    return f"{text}\r\n\r\n".encode("latin-1")


class Listener:
    """A handler on one listening socket; `async with` stops it and drops its clients."""

    def __init__(self, handler: Handler, *, max_body_bytes: int) -> None:
        self._handler = handler
        self._max_body_bytes = max_body_bytes
        self._connections: set[Connection] = set()
        self._server: asyncio.Server | None = None
        self._acceptor: WatchedAcceptor | None = None

    async def listen(self, sock: socket.socket) -> None:
        """Start serving on a bound socket, TCP or unix."""
        loop = asyncio.get_running_loop()
        if sock.family == socket.AF_UNIX:
            self._acceptor = WatchedAcceptor(sock, self.connection)
            self._acceptor.open()
        else:
            self._server = await loop.create_server(self.connection, sock=sock, backlog=1024)

    def connection(self) -> Connection:
        return Connection(self._handler, self._connections, self._max_body_bytes)

    @property
    def port(self) -> int:
        assert self._server
        return int(self._server.sockets[0].getsockname()[1])

    async def drain(self, seconds: float) -> None:
        """Return when no request is under way, and after so long in any case."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                while tasks := [connection.task for connection in self._connections if connection.task]:
                    await asyncio.wait(tasks)
                    await asyncio.sleep(0)  # one turn, in which their connections notice

    async def __aenter__(self) -> Listener:
        return self

    async def __aexit__(self, *exc: object) -> None:
        if self._server:
            self._server.close()
        if self._acceptor:
            self._acceptor.close()
        for connection in list(self._connections):
            connection.close()
        await asyncio.sleep(0)  # one turn, so that cancelled calls see it before the loop goes
