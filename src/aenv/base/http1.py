"""A lean HTTP/1.1 client: kept-alive connections on asyncio and httptools.

The SDK and the gateway's proxy share it. docs/adr/0003 has the measurement that it rests on:
a quarter of aiohttp's CPU time a call, and a two-millisecond import. Not here: retries, redirects, cookies,
compression, which our servers do not need, and proxies, which a caller adds with `dial` (`client/proxies.py`).
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import select
from collections import deque
from collections.abc import AsyncIterable, AsyncIterator, Iterable
from typing import TYPE_CHECKING, Any, cast

import httptools

from . import sockets
from .addresses import Origin
from .errors import ConnectFailed, InvalidRequest, NetworkError, TooLarge

if TYPE_CHECKING:
    import ssl

Headers = Iterable[tuple[str, str]]
RawHeaders = list[tuple[bytes, bytes]]

_MAX_HEAD_BYTES = 256 << 10
_HIGH_WATER = 1 << 20  # bytes of a response held back before the socket is paused


class Response:
    """A response whose head has arrived. Read the body with `read()` or by iterating, or `close()` it."""

    def __init__(self, connection: _ClientConnection) -> None:
        self.status = 0
        self.headers: RawHeaders = []
        """Their names are in lower case."""
        self._connection = connection
        self._chunks: deque[bytes] = deque()
        self._buffered = 0
        self._complete = False
        self._error: NetworkError | None = None

    def header(self, name: bytes) -> str | None:
        """The value of the header `name` (lower case), or None."""
        for key, value in self.headers:
            if key == name:
                return value.decode("latin-1")
        return None

    async def read(self, limit: int | None = None) -> bytes:
        """The whole body. Above `limit` bytes the connection is closed and TooLarge raised."""
        size = 0
        parts: list[bytes] = []
        async for chunk in self:
            size += len(chunk)
            if limit is not None and size > limit:
                self.close()
                raise TooLarge(f"the response is larger than {limit} bytes")
            parts.append(chunk)
        return parts[0] if len(parts) == 1 else b"".join(parts)

    async def __aiter__(self) -> AsyncIterator[bytes]:
        try:
            while True:
                while self._chunks:
                    chunk = self._chunks.popleft()
                    self._buffered -= len(chunk)
                    self._connection.reading_may_resume(self._buffered)
                    yield chunk
                if self._error:
                    raise self._error
                if self._complete:
                    return
                await self._connection.wait()
        finally:
            # Left early (an error, a cancellation, a break): the rest is still on the wire.
            if not self._complete:
                self.close()

    async def piece(self) -> bytes:
        """What has come of the body, and empty at its end. When that is cancelled, the connection stays open."""
        while not self._chunks:
            if self._error:
                raise self._error
            if self._complete:
                return b""
            await self._connection.wait()
        chunks = b"".join(self._chunks)
        self._chunks.clear()
        self._buffered = 0
        self._connection.reading_may_resume(0)
        return chunks

    def close(self) -> None:
        """Drop the connection if the body was not read to its end: the server sees a disconnect."""
        if not self._complete:
            self._connection.abort()


class PushedBody:
    """A request's body that is sent piece by piece, also after the response has begun: both sides talk."""

    def __init__(self) -> None:
        self._connection: _ClientConnection | None = None

    def begin(self, connection: _ClientConnection) -> None:
        self._connection = connection

    def send(self, piece: bytes) -> None:
        """Send it now. Nothing happens when the connection has ended: the response says so."""
        if self._connection and not self._connection.closed:
            self._connection.push(b"%x\r\n%b\r\n" % (len(piece), piece))

    def end(self) -> None:
        if self._connection and not self._connection.closed:
            self._connection.push(b"0\r\n\r\n")

    def fileno(self) -> int:
        """Of the connection, for a process that was forked; -1 when there is none."""
        return -1 if self._connection is None or self._connection.closed else self._connection.fileno


Body = bytes | AsyncIterable[bytes] | PushedBody


class Pool:
    """Kept-alive connections to any number of origins; an `async with` that closes them all.

    `dial` gives a connected socket for an origin, where a TCP connection to its host is not the way.
    """

    def __init__(
        self, *, max_idle: int = 128, tls: ssl.SSLContext | None = None, dial: Dial | None = None
    ) -> None:
        self._idle: dict[Origin, list[_ClientConnection]] = {}
        self._busy: set[_ClientConnection] = set()
        self._opening: dict[Origin, asyncio.Future[None]] = {}
        self._max_idle = max_idle
        self._tls = tls
        self._dial = dial

    async def __aenter__(self) -> Pool:
        return self

    async def __aexit__(self, *exc: object) -> None:
        await self.close()

    async def close(self) -> None:
        """Close every connection; a request under way fails."""
        connections = [*self._busy, *(c for idle in self._idle.values() for c in idle)]
        self._idle.clear()
        for connection in connections:
            connection.abort()
        if connections:
            # One turn of the loop, so that the transports are closed when we return.
            await asyncio.sleep(0)

    async def request(
        self,
        origin: Origin,
        method: str,
        target: str,
        headers: Headers = (),
        body: Body = b"",
        forwarded: RawHeaders | None = None,
    ) -> Response:
        """Send a request and return once the response's head is here.

        A body that is an async iterable is sent in chunks, and so is what is pushed. `forwarded` are further
        headers, as they came from a client of ours. Cancelling closes the connection.
        """
        if opening := self._opening.get(origin):
            await asyncio.shield(opening)
        connection = self._take(origin) or await self._connect(origin)
        self._busy.add(connection)
        try:
            return await connection.exchange(method, target, headers, body, forwarded or [])
        except BaseException:
            connection.abort()
            raise

    async def open(self, origin: Origin) -> None:
        """Have a connection ready for a request that is about to come. Nothing happens when there can be none."""
        if origin not in self._idle and origin not in self._opening:
            self._opening[origin] = asyncio.Future()
            try:
                with contextlib.suppress(ConnectFailed):  # the request will say so
                    self._give_back(await self._connect(origin), reusable=True)
            finally:
                self._opening.pop(origin).set_result(None)

    def _take(self, origin: Origin) -> _ClientConnection | None:
        idle = self._idle.get(origin)
        loop = asyncio.get_running_loop()
        while idle:
            connection = idle.pop()
            if connection.loop is loop and not connection.is_stale():
                return connection
            connection.abort()
        return None

    async def _connect(self, origin: Origin) -> _ClientConnection:
        loop = asyncio.get_running_loop()

        def make() -> _ClientConnection:
            return _ClientConnection(loop, origin, self._give_back)

        try:
            if origin.socket:
                connection = sockets.connect_unix(origin.socket)
                try:
                    return (await loop.create_unix_connection(make, sock=connection))[1]
                except BaseException:
                    connection.close()
                    raise
            tls = self._tls_context() if origin.tls else None
            if self._dial:
                name = origin.host if tls else None
                connection = await self._dial(origin)
                return (await loop.create_connection(make, sock=connection, ssl=tls, server_hostname=name))[1]
            return (await loop.create_connection(make, origin.host, origin.port, ssl=tls))[1]
        except OSError as error:
            # The system's own words: asyncio puts "Connect call failed" and the address into `strerror`.
            number = error.errno or 0
            reason = os.strerror(number) if number > 0 else error.strerror or error
            source = f"; the address comes from {origin.source}" if origin.source else ""
            raise ConnectFailed(f"cannot connect to {origin}: {reason}{source}") from error

    def _tls_context(self) -> ssl.SSLContext:
        if self._tls is None:
            import ssl  # 15 ms that plain http does not need

            self._tls = ssl.create_default_context()
        return self._tls

    def _give_back(self, connection: _ClientConnection, reusable: bool) -> None:
        self._busy.discard(connection)
        idle = self._idle.setdefault(connection.origin, [])
        if reusable and len(idle) < self._max_idle:
            idle.append(connection)
        elif reusable:
            connection.abort()
        elif connection in idle:
            idle.remove(connection)
        if not idle:
            del self._idle[connection.origin]  # a gateway sees any number of origins come and go


class _ClientConnection(asyncio.Protocol):
    """One connection, one exchange at a time."""

    def __init__(self, loop: asyncio.AbstractEventLoop, origin: Origin, give_back: _GiveBack) -> None:
        self.loop = loop
        self.origin = origin
        self._give_back = give_back
        self._parser = httptools.HttpResponseParser(self)
        self._response = Response(self)
        self._exchanging = False
        self._reusable = False
        """Whether, its last exchange over, it may be used for another."""
        self._head_only = False
        self._besides = 0
        """Bytes that came since the last of a body: of heads that announce others, or of what follows a body."""
        self._head: asyncio.Future[Response] | None = None
        self._waiter: asyncio.Future[None] | None = None
        self._writable: asyncio.Future[None] | None = None
        self._paused = False
        self._sent_all = True
        self.closed = False

    # What the pool and the response call.

    async def exchange(
        self,
        method: str,
        target: str,
        headers: Headers,
        body: Body,
        forwarded: RawHeaders,
    ) -> Response:
        self._response = Response(self)
        self._exchanging = True
        self._reusable = False
        self._head_only = method == "HEAD"
        self._besides = 0
        self._head = self.loop.create_future()
        lines = [f"{method} {target} HTTP/1.1\r\nhost: {self.origin.authority}"]
        lines += [f"{name}: {value}" for name, value in headers]
        if isinstance(body, bytes):
            if body or method not in ("GET", "HEAD", "DELETE"):
                lines.append(f"content-length: {len(body)}")
            self._transport.write(_head_bytes(lines, forwarded) + body)
        else:
            lines.append("transfer-encoding: chunked")
            self._transport.write(_head_bytes(lines, forwarded))
            if isinstance(body, PushedBody):
                self._sent_all = False  # nor ever: the connection is used for nothing else
                body.begin(self)
            else:
                await self._send_until_answered(body, self._head)
        return await self._head

    async def _send_until_answered(self, body: AsyncIterable[bytes], head: asyncio.Future[Response]) -> None:
        """Send the body. An answer that comes before its end, an error as a rule, makes the rest unwanted."""
        sending = self.loop.create_task(self._send_chunks(body))
        try:
            either: list[asyncio.Future[Any]] = [sending, head]
            await asyncio.wait(either, return_when=asyncio.FIRST_COMPLETED)
        finally:
            if not sending.done():
                sending.cancel()
            await asyncio.gather(sending, return_exceptions=True)
        if not sending.cancelled():
            sending.result()

    async def _send_chunks(self, body: AsyncIterable[bytes]) -> None:
        self._sent_all = False
        async for chunk in body:
            if self.closed:
                return
            if chunk:
                self._transport.write(b"%x\r\n%b\r\n" % (len(chunk), chunk))
            if self._writable:
                await self._writable
        self._transport.write(b"0\r\n\r\n")
        self._sent_all = True

    async def wait(self) -> None:
        """Return when something about the response has changed."""
        self._waiter = self.loop.create_future()
        try:
            await self._waiter
        finally:
            self._waiter = None

    def push(self, piece: bytes) -> None:
        self._transport.write(piece)

    def reading_may_resume(self, buffered: int) -> None:
        if self._paused and buffered < _HIGH_WATER // 2 and not self.closed:
            self._paused = False
            self._transport.resume_reading()

    def is_stale(self) -> bool:
        """Whether the server has hung up unnoticed (the loop may have been busy elsewhere)."""
        if self.closed or self._transport.is_closing():
            return True
        poll = select.poll()
        poll.register(self.fileno, select.POLLIN)
        return bool(poll.poll(0))

    def abort(self) -> None:
        if self._head and not self._head.done():
            self._head.cancel()
        if not self.closed and not self.loop.is_closed():
            self._transport.abort()

    # What asyncio calls.

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)  # uvloop's is one in all but its class
        self.fileno: int = transport.get_extra_info("socket").fileno()

    def data_received(self, data: bytes) -> None:
        if not self._exchanging:
            self._transport.abort()  # an answer without a request
            return
        self._besides += len(data)
        try:
            self._parser.feed_data(data)
        except (httptools.HttpParserError, httptools.HttpParserUpgrade) as error:
            self._reusable = False
            if self._exchanging:  # else it is what follows a whole response
                self._fail(NetworkError(f"{self.origin} sent something that is not HTTP: {error}"))
            self._transport.abort()
        if not self._exchanging:
            self._end_exchange()
        elif self._besides > _MAX_HEAD_BYTES:
            self._fail(NetworkError(f"{self.origin} sent a head that does not end"))
            self._transport.abort()

    def _end_exchange(self) -> None:
        """After all bytes at hand were looked at: some that follow the response would be in the next one's way."""
        if self._reusable:
            self._give_back(self, True)
        else:
            self._transport.close()

    def connection_lost(self, exc: Exception | None) -> None:
        self.closed = True
        self.resume_writing()
        if self._exchanging:
            if self._response.status and not exc and self._ends_with_the_connection():
                self._response._complete = True
                self._wake()
            else:
                self._fail(NetworkError(f"{self.origin} closed the connection before it had answered"))
        self._exchanging = False
        self._give_back(self, False)

    def pause_writing(self) -> None:
        self._writable = self.loop.create_future()

    def resume_writing(self) -> None:
        if self._writable and not self._writable.done():
            self._writable.set_result(None)
        self._writable = None

    # What httptools calls. It goes on with what follows a response, which is not part of it.

    def on_message_begin(self) -> None:
        if not self._exchanging:
            self._reusable = False

    def on_header(self, name: bytes, value: bytes) -> None:
        if self._exchanging and not self._response.status:  # what comes behind a body is not a header
            self._response.headers.append((name.lower(), value))

    def on_headers_complete(self) -> None:
        if not self._exchanging:
            return
        status = self._parser.get_status_code()
        if not 100 <= status <= 599 or status == 101:
            raise ValueError(f"status {status}")
        if status < 200:  # 100 Continue and 103 Early Hints announce the real head
            self._response.headers.clear()
            return
        self._response.status = status
        self._besides = 0
        if self._head and not self._head.done():
            self._head.set_result(self._response)
        if self._head_only:
            self._response._complete = True
            self._exchanging = False  # the parser would wait for a body that never comes

    def on_body(self, body: bytes) -> None:
        if not self._exchanging:
            return
        response = self._response
        self._besides = 0
        response._chunks.append(body)
        response._buffered += len(body)
        if response._buffered > _HIGH_WATER and not self._paused:
            self._paused = True
            self._transport.pause_reading()
        self._wake()

    def on_message_complete(self) -> None:
        if self._response.status < 200 or not self._exchanging:
            return
        self._response._complete = True
        self._exchanging = False
        self._reusable = self._parser.should_keep_alive() and self._sent_all
        if self._paused:
            self._paused = False
            self._transport.resume_reading()
        self._wake()

    def _ends_with_the_connection(self) -> bool:
        response = self._response
        return response.header(b"content-length") is None and response.header(b"transfer-encoding") is None

    def _fail(self, error: NetworkError) -> None:
        self._response._error = error
        if self._head and not self._head.done():
            self._head.set_exception(error)
        self._wake()

    def _wake(self) -> None:
        if self._waiter and not self._waiter.done():
            self._waiter.set_result(None)


def _head_bytes(lines: list[str], forwarded: RawHeaders) -> bytes:
    try:
        own = "\r\n".join(lines).encode("latin-1")
    except UnicodeEncodeError as error:
        raise InvalidRequest(f"a request header cannot hold {error.object[error.start]!r}") from error
    head = b"\r\n".join([own, *map(b": ".join, forwarded)])
    # A header value with a line break would let a caller write headers, or whole requests, of their own.
    if not head.count(b"\r") == head.count(b"\n") == len(lines) + len(forwarded) or b"\0" in head:
        raise InvalidRequest("a request header contains a line break")
    return head + b"\r\n\r\n"


if TYPE_CHECKING:
    import socket
    from collections.abc import Awaitable, Callable

    Dial = Callable[[Origin], Awaitable[socket.socket]]
    _GiveBack = Callable[[_ClientConnection, bool], None]
