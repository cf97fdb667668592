"""A client's connection to the data port: request after request, each to an instance or to the owner process.

Plain callbacks and no tasks: every tool call passes here. A small body is one read and one write, each way.
"""

from __future__ import annotations

import asyncio
import time
from typing import TYPE_CHECKING, cast

import httptools

from ....base import mcp
from ....base.errors import AEnvError, InvalidRequest
from ....base.sockets import reset
from ...board.seats import Seated
from ...serving.clients import too_large
from ...serving.error_bodies import error_body
from .chunked_body import LAST, ChunkedBody, chunk
from .pipe_to_owner import PipeToOwner
from .reply_heads import NotHttp, ReplyHead
from .request_heads import ForwardedCall, RequestHead
from .upstream import SMALL, UpstreamConnection

if TYPE_CHECKING:
    from .forwarder import Forwarder

_KEEP_ALIVE = 300.0  # seconds; longer than clients keep theirs, so that it is they who close
_HEAD_TIMEOUT = 15.0
_BODY_TIMEOUT = 60.0  # seconds without a single byte of a body that was announced
_UNREAD_TIMEOUT = 30.0  # seconds without a single byte read by a client whose connection is being closed
_GONE_GRACE = 0.5  # a client that closed its side may still read; one that left looks the same
_MAX_HEAD_BYTES = 64 << 10
_MAX_AHEAD_BYTES = 64 << 10  # of requests behind the one that is answered


class DataConnection(asyncio.Protocol):
    """One connection, one request at a time; what the client sends ahead waits."""

    def __init__(self, forwarder: Forwarder) -> None:
        self._forwarder = forwarder
        self._heads = forwarder.heads
        self._buffer = b""
        """What came and was not read yet."""
        self._reader: RequestHead | None = None
        self._fed = 0
        self._call: ForwardedCall | None = None
        """The request that is being answered."""
        self._began = 0.0
        self._keep_alive = True
        self._left = 0
        """Bytes of its body that were not passed on."""
        self._chunks: ChunkedBody | None = None
        """Its body, where that comes in chunks and is not over."""
        self._size = 0
        self._seated: Seated | None = None
        self._is_counted = False
        """Whether it is counted here; what the owner answers, the owner counts."""
        self._first = b""
        self._upstream: UpstreamConnection | None = None
        self._status = 0
        """Of the reply that has begun."""
        self._pipe: PipeToOwner | None = None
        self._is_paused = False
        self._is_full = False
        """Whether the client does not read what was written to it."""
        self._is_lost = False
        self._due: float | None = None
        self._unread = -1
        """Bytes that the client had not read when its connection was closed, or when that was last looked at."""
        self._timer: asyncio.TimerHandle | None = None

    def shut_down(self) -> None:
        """The forwarder stops: answer what was asked, and nothing more."""
        self._keep_alive = False
        if self._pipe:
            self._pipe.end()
        elif self._call is None:
            self.close()

    def abort(self) -> None:
        self._transport.abort()

    # What asyncio calls.

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)  # uvloop's is one in all but its class
        self._forwarder.opened(self)
        self._expect(_HEAD_TIMEOUT)

    def data_received(self, data: bytes) -> None:
        self._buffer = self._buffer + data if self._buffer else data
        if self._pipe:
            self._pipe.send()
        elif self._call is None:
            self._read_head()
        elif self._left or self._chunks:
            self._due = time.monotonic() + _BODY_TIMEOUT
            self._read_body()
        elif len(self._buffer) > _MAX_AHEAD_BYTES:
            self._pause()

    def eof_received(self) -> bool:
        if self._pipe:
            self._pipe.end()
            return True
        if self._call is None:
            return False
        self._keep_alive = False
        self._forwarder.loop.call_later(_GONE_GRACE, self.close)
        return True

    def connection_lost(self, exc: Exception | None) -> None:
        self._is_lost = True
        if self._timer:
            self._timer.cancel()
        if self._pipe:
            self._pipe.abandon()
        if self._upstream:
            self._upstream.abandon()
            self._upstream = None
        if self._call:
            self._account(0)
        self._forwarder.closed(self)

    def pause_writing(self) -> None:
        self._is_full = True
        if self._upstream:
            self._upstream.pause_reading()
        elif self._pipe:
            self._pipe.pause_reading()

    def resume_writing(self) -> None:
        self._is_full = False
        if self._upstream:
            self._upstream.resume_reading()
        elif self._pipe:
            self._pipe.resume_reading()
        elif self._call is None and not self._is_lost:
            self._go_on()

    # Heads

    def _read_head(self) -> None:
        buffer = self._buffer
        if self._reader is None:
            end = buffer.find(b"\r\n\r\n") + 4
            call = self._heads.get(buffer[:end])
            if call:
                self._buffer = buffer[end:]
                self._begin(call)
                return
            self._reader, self._fed = RequestHead(), 0
            self._expect(_HEAD_TIMEOUT)
        try:
            end = self._feed(self._reader)
        except httptools.HttpParserError:
            self._refuse(b"400 Bad Request", b"Invalid HTTP request received.")
            return
        if self._reader.is_odd and end:
            self._reader = None
            self._pipe = PipeToOwner(self, self._forwarder)
            self._due = None
            self._pipe.send()
        elif end:
            call = self._reader.read(buffer[:end], self._forwarder.known_tokens(), self._forwarder.rules)
            self._reader = None
            self._heads.keep(call)
            self._buffer = buffer[end:]
            self._begin(call)
        elif len(buffer) > _MAX_HEAD_BYTES:
            self._refuse(b"431 Request Header Fields Too Large", b"")

    def _feed(self, reader: RequestHead) -> int:
        """Let it read what came; where the head ends, or 0."""
        buffer = self._buffer
        while self._fed < len(buffer):
            end = buffer.find(b"\r\n\r\n", max(0, self._fed - 3))
            stop = len(buffer) if end < 0 else end + 4
            reader.feed(buffer[self._fed : stop])
            self._fed = stop
            if reader.is_complete:
                if end < 0:
                    raise httptools.HttpParserError("a head ends with an empty line")
                return stop
        return 0

    # The body of the request

    def _begin(self, call: ForwardedCall) -> None:
        self._call = call
        self._began = time.monotonic()
        self._due = None
        self._keep_alive = call.keep_alive and not self._forwarder.is_stopping
        self._status = 0
        buffer, length = self._buffer, call.length
        if length is None:
            self._chunks, self._size = ChunkedBody(), 0
            self._expect(_BODY_TIMEOUT)
            self._dispatch(b"")
        elif len(buffer) >= length:
            self._buffer = buffer[length:]
            self._dispatch(buffer[:length])
        else:
            self._left = length
            self._expect(_BODY_TIMEOUT)
            if length > SMALL:
                self._dispatch(b"")

    def _read_body(self) -> None:
        """Pass on what came of it. A small one is not sent before it is complete."""
        assert self._call
        upstream = self._upstream
        is_over = self._status and upstream is None  # answered before it was complete: the rest is unwanted
        if self._left:
            part = self._buffer[: self._left]
            if upstream is None and not is_over:
                if len(part) == self._left and self._left == self._call.length and not self._first:
                    self._left, self._buffer = 0, self._buffer[len(part) :]
                    self._due = None
                    self._dispatch(part)
                return
            self._left -= len(part)
            self._buffer = self._buffer[len(part) :]
        elif self._chunks and (upstream or is_over):
            try:
                parts = self._chunks.feed(self._buffer)
            except NotHttp:
                self._give_up_on_client()
                return
            self._buffer = b""
            body = b"".join(parts)
            self._size += len(body)
            part = chunk(body)
            if self._chunks.is_over:
                part += LAST
                self._buffer, self._chunks = self._chunks.rest, None
        else:
            return
        self._pass_on(part)

    def _pass_on(self, part: bytes) -> None:
        has_all = not self._left and self._chunks is None
        if has_all:
            self._due = None
        if self._upstream is None:
            if has_all:
                self._go_on()
        elif self._is_counted and self._size > self._forwarder.rules.max_body_bytes:
            if self._status:  # too late for an error reply: the answer has begun
                self._transport.abort()
            else:
                self._reject(too_large(self._forwarder.rules.max_body_bytes))
        else:
            self._upstream.has_all = has_all
            self._upstream.send_more(part)

    # To whom it goes

    def _dispatch(self, body: bytes) -> None:
        """Send the request, with all of its body or with none of it yet."""
        call = self._call
        assert call
        self._seated = self._forwarder.admit(call, self._began)
        self._is_counted = self._seated is not None
        if self._seated:
            self._send_to(self._seated.socket, call.head + body, body)
        else:
            self._send_to(self._forwarder.owner.socket, call.raw + body, body)

    def _send_to(self, path: str, data: bytes, body: bytes) -> None:
        upstream = self._forwarder.take(path)
        if upstream:
            self._send(upstream, data)
            return
        self._first = data
        if self._left or self._chunks:
            self._pause()

        def connected(upstream: UpstreamConnection | None) -> None:
            if self._is_lost:
                if upstream:
                    upstream.abandon()
            elif upstream:
                data, self._first = self._first, b""
                self._send(upstream, data)
            else:
                self._not_connected(body)

        self._forwarder.connect(path, connected)

    def _not_connected(self, body: bytes) -> None:
        """An instance that takes no connection: nothing was sent, and the owner knows what became of it."""
        assert self._call
        if self._seated is None:
            self._transport.abort()
            return
        self._release()
        self._is_counted = False
        self._send_to(self._forwarder.owner.socket, self._call.raw + body, body)

    def _send(self, upstream: UpstreamConnection, data: bytes) -> None:
        assert self._call
        self._upstream = upstream
        has_all = not self._left and self._chunks is None
        upstream.send(self, data, head_only=self._call.method == "HEAD", has_all=has_all)
        if not has_all:
            self._resume()
            if self._buffer:
                self._read_body()

    def pause_sending(self) -> None:
        self._pause()

    def resume_sending(self) -> None:
        self._resume()

    # The reply

    def answer(self, reply: ReplyHead, body: bytes) -> None:
        self._upstream = None
        if self._is_too_large(reply):
            return
        self._transport.write(self._head(reply) + body)
        self._finish(reply.status)

    def begin_answer(self, reply: ReplyHead) -> None:
        assert self._call
        assert self._upstream
        if self._is_too_large(reply):
            return
        self._status = reply.status
        if reply.is_event_stream and self._call.method == "GET":
            self._release()  # a client that only listens does not keep the instance running
        self._transport.write(self._head(reply))

    def continue_answer(self, data: bytes) -> None:
        self._transport.write(data)

    def end_answer(self, data: bytes) -> None:
        self._upstream = None
        self._transport.write(data)
        self._finish(self._status)

    def break_answer(self) -> None:
        self._upstream = None
        if self._status or not self._is_counted or self._seated is None:
            # Too late for an error reply. Left unfinished, the response ends as a broken connection.
            self._account(self._status)
            self._call = None
            self.close()
            return
        assert self._call
        self._release()
        if self._left or self._chunks:  # nothing more is read of it
            self._left, self._chunks, self._buffer, self._keep_alive = 0, None, b"", False
        self._send_to(self._forwarder.owner.socket, self._forwarder.owner.why_broken(self._call), b"")

    def _head(self, reply: ReplyHead) -> bytes:
        assert self._call
        head = reply.head
        if self._is_counted:
            head += self._forwarder.fresh_token(self._call)
        elif not reply.keep_alive:
            self._keep_alive = False  # the owner has closed its side, and why is the client's business as well
        return head + (b"\r\n" if self._keep_alive else b"connection: close\r\n\r\n")

    def _is_too_large(self, reply: ReplyHead) -> bool:
        limit = self._forwarder.rules.max_body_bytes
        is_too_large = self._is_counted and (reply.length or 0) > limit
        if is_too_large:
            self._reject(too_large(limit))
        return is_too_large

    def _reject(self, error: AEnvError) -> None:
        """Answer in the instance's place."""
        if self._upstream:
            self._upstream.abandon()
            self._upstream = None
        body = mcp.dumps(error_body(error))
        end = b"" if self._keep_alive else b"connection: close\r\n"
        line = b"HTTP/1.1 %d \r\ncontent-length: %d\r\ncontent-type: application/json\r\n%b\r\n"
        self._status = error.status
        head = line % (error.status, len(body), end)
        self._transport.write(head if self._call and self._call.method == "HEAD" else head + body)
        self._finish(error.status)

    def _finish(self, status: int) -> None:
        """The request is answered."""
        self._account(status)
        self._status = status
        if not self._keep_alive:
            self._call = None
            self.close()
        elif self._left or self._chunks:
            self._resume()  # to read the rest, which is unwanted, and then the next request
        else:
            self._go_on()

    def _go_on(self) -> None:
        """To the next request."""
        self._call = None
        self._expect(_KEEP_ALIVE)
        if self._is_full:  # `resume_writing` goes on: a client that reads no replies gets no more of them
            self._pause()
            return
        self._resume()
        if self._buffer:
            self._read_head()

    def _account(self, status: int) -> None:
        """Count the request, and that it is over."""
        self._release()
        if self._is_counted and self._call:
            self._is_counted = False
            self._forwarder.counts.count(self._call.kind, status, time.monotonic() - self._began)

    def _release(self) -> None:
        if self._seated:
            self._forwarder.release(self._seated)
            self._seated = None

    # Clients that are slow, or send what is not HTTP

    def _expect(self, seconds: float) -> None:
        """Something must come within so many seconds. A timer that is due later than needed is replaced."""
        loop = self._forwarder.loop
        self._due = time.monotonic() + seconds
        if self._timer and self._timer.when() > loop.time() + seconds:
            self._timer.cancel()
            self._timer = None
        if self._timer is None:
            self._timer = loop.call_later(seconds, self._look)

    def _look(self) -> None:
        self._timer = None
        left = None if self._due is None else self._due - time.monotonic()
        if left is None:
            return
        if left > 0:
            self._timer = self._forwarder.loop.call_later(left, self._look)
        elif self._unread >= 0:
            self._look_whether_it_reads()
        elif self._call is None and self._reader is None:
            self.close()
        elif self._call is None:
            self._refuse(b"408 Request Timeout", b"")
        else:
            self._give_up_on_client()

    def _give_up_on_client(self) -> None:
        """The rest of its body does not come, or is not HTTP."""
        self._left, self._chunks, self._buffer, self._keep_alive = 0, None, b"", False
        if self._status:
            self.close()
        else:
            self._reject(InvalidRequest(f"the rest of the body did not come within {_BODY_TIMEOUT:g} s"))

    def _refuse(self, status: bytes, text: bytes) -> None:
        """Answer what is not a request, and close."""
        kind = b"content-type: text/plain; charset=utf-8\r\n" if text else b""
        head = b"HTTP/1.1 %b\r\n%bcontent-length: %d\r\nconnection: close\r\n\r\n"
        self._transport.write(head % (status, kind, len(text)) + text)
        self.close()

    # What the pipe calls.

    def taken(self) -> bytes:
        """What came and was not passed on."""
        data, self._buffer = self._buffer, b""
        return data

    def write(self, data: bytes) -> None:
        self._transport.write(data)

    def close(self) -> None:
        """Let the client read what was written to it, for as long as it reads."""
        self._transport.close()
        self._unread = self._transport.get_write_buffer_size()
        if self._unread and not self._is_lost:
            self._expect(_UNREAD_TIMEOUT)

    def _look_whether_it_reads(self) -> None:
        unread = self._transport.get_write_buffer_size()
        if unread >= self._unread:
            reset(self._transport)
        else:
            self._unread = unread
            self._expect(_UNREAD_TIMEOUT)

    def _pause(self) -> None:
        if not self._is_paused and not self._is_lost:
            self._is_paused = True
            self._transport.pause_reading()

    def _resume(self) -> None:
        if self._is_paused and not self._is_lost:
            self._is_paused = False
            self._transport.resume_reading()
