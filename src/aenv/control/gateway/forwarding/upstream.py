"""Connections of the data port to instances, and to the owner process; each answers one client at a time."""

from __future__ import annotations

import asyncio
import select
from typing import TYPE_CHECKING, Protocol, cast

from .chunked_body import LAST, ChunkedBody, chunk
from .reply_heads import KnownReplies, NotHttp, ReplyHead, read_head

if TYPE_CHECKING:
    from collections.abc import Callable

_MAX_ANNOUNCED = 16  # heads that announce another; an instance may send them without end
_MAX_HEAD_BYTES = 256 << 10
SMALL = 64 << 10  # bytes up to which a body is held whole, to save writes


class Answered(Protocol):
    """The client that waits for the reply."""

    def answer(self, reply: ReplyHead, body: bytes) -> None:
        """The whole of it."""

    def begin_answer(self, reply: ReplyHead) -> None:
        """Its body follows in parts; `refuse_answer` may be called from here."""

    def continue_answer(self, data: bytes) -> None: ...

    def end_answer(self, data: bytes) -> None: ...

    def break_answer(self) -> None:
        """The upstream has ended the connection before the reply was complete, or was not HTTP."""

    def pause_sending(self) -> None: ...

    def resume_sending(self) -> None: ...


class UpstreamConnection(asyncio.Protocol):
    """One connection. `send` a request; the client given there is told of the reply."""

    def __init__(
        self, path: str, replies: KnownReplies | None, give_back: Callable[[UpstreamConnection], None]
    ) -> None:
        """`replies`: reads heads of instances; None for the owner, whose replies are passed on as they are."""
        self.path = path
        self.is_closed = False
        self.idle_since = 0.0
        self.has_all = True
        """Whether the whole request was sent."""
        self._replies = replies
        self._give_back = give_back
        self._client: Answered | None = None
        self._announced = 0
        self._head_only = False
        self._reply: ReplyHead | None = None
        self._buffer = b""
        self._left = 0
        """Bytes of the body that have not come yet."""
        self._chunks: ChunkedBody | None = None
        self._is_small = False

    # What clients call.

    def send(self, client: Answered, data: bytes, *, head_only: bool, has_all: bool) -> None:
        """Begin a request with these bytes, or all of it."""
        self._client = client
        self._announced = 0
        self._head_only = head_only
        self.has_all = has_all
        self._transport.write(data)

    def send_more(self, data: bytes) -> None:
        self._transport.write(data)

    def abandon(self) -> None:
        """The client does not wait any more: the upstream sees a disconnect."""
        self._client = None
        if not self.is_closed:
            self._transport.abort()

    def pause_reading(self) -> None:
        if not self.is_closed:
            self._transport.pause_reading()

    def resume_reading(self) -> None:
        if not self.is_closed:
            self._transport.resume_reading()

    def is_stale(self) -> bool:
        """Whether the upstream has hung up, which the loop may not have seen yet."""
        return self.is_closed or bool(self._poll.poll(0))

    # What asyncio calls.

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)  # uvloop's is one in all but its class
        self._poll = select.poll()
        self._poll.register(transport.get_extra_info("socket").fileno(), select.POLLIN)

    def data_received(self, data: bytes) -> None:
        if self._client is None:
            self._transport.abort()  # an answer without a request
        elif self._reply is None:
            self._read_head(self._buffer + data if self._buffer else data)
        else:
            self._read_body(data)

    def connection_lost(self, exc: Exception | None) -> None:
        self.is_closed = True
        client, reply = self._client, self._reply
        if client is None:
            self._give_back(self)  # it may be waiting there
            return
        self._client = None
        ends_with_it = reply is not None and reply.length is None and not reply.is_chunked and exc is None
        if ends_with_it:
            client.end_answer(LAST)
        else:
            client.break_answer()

    def pause_writing(self) -> None:
        if self._client:
            self._client.pause_sending()

    def resume_writing(self) -> None:
        if self._client:
            self._client.resume_sending()

    # How a reply is read.

    def _read_head(self, data: bytes) -> None:
        end = data.find(b"\r\n\r\n")
        if end < 0:
            self._buffer = data
            if len(data) > _MAX_HEAD_BYTES or not data.startswith(b"HTTP/1."[: len(data)]):
                self._fail()
            return
        raw, rest = data[: end + 4], data[end + 4 :]
        self._buffer = b""
        try:
            if self._replies and not self._head_only:
                reply = self._replies.read(raw)
            else:
                reply = read_head(raw, of_instance=self._replies is not None, head_only=self._head_only)
        except NotHttp:
            self._fail()
            return
        if reply.status < 200:  # 100 Continue and 103 Early Hints announce the real head
            self._announced += 1
            if self._announced > _MAX_ANNOUNCED:
                self._fail()
            elif rest:
                self._read_head(rest)
            return
        self._begin_body(reply, rest)

    def _begin_body(self, reply: ReplyHead, rest: bytes) -> None:
        assert self._client
        self._reply = reply
        if self._head_only or reply.length == 0:
            self._end(b"", is_clean=not rest)
            return
        if reply.length is not None:
            self._left = reply.length
            self._is_small = reply.length <= SMALL
            if self._is_small:
                self._read_body(rest)
                return
        elif reply.is_chunked:
            self._chunks = ChunkedBody()
        self._client.begin_answer(reply)
        if rest and self._client:
            self._read_body(rest)

    def _read_body(self, data: bytes) -> None:
        assert self._client
        assert self._reply
        if self._chunks:
            self._read_chunks(data)
        elif self._reply.length is None:
            self._client.continue_answer(chunk(data))
        elif self._is_small:
            whole = self._buffer + data if self._buffer else data
            if len(whole) < self._left:
                self._buffer = whole
            else:
                self._buffer = b""
                self._end(whole[: self._left], is_clean=len(whole) == self._left)
        elif len(data) < self._left:
            self._left -= len(data)
            self._client.continue_answer(data)
        else:
            self._end(data[: self._left], is_clean=len(data) == self._left)

    def _read_chunks(self, data: bytes) -> None:
        assert self._client
        assert self._chunks
        try:
            out = chunk(b"".join(self._chunks.feed(data)))
        except NotHttp:
            self._fail()
            return
        if self._chunks.is_over:
            self._end(out + LAST, is_clean=not self._chunks.rest)
        elif out:
            self._client.continue_answer(out)

    def _end(self, last: bytes, *, is_clean: bool) -> None:
        """The reply is complete; the connection goes back where it can be used again, then the client on."""
        client, reply = self._client, self._reply
        assert client
        assert reply
        is_whole = self._is_small or self._head_only or reply.length == 0
        self._client = self._reply = self._chunks = None
        self._is_small = False
        if is_clean and reply.keep_alive and self.has_all:
            self._give_back(self)
        else:
            self._transport.abort()
        if is_whole:
            client.answer(reply, last)
        else:
            client.end_answer(last)

    def _fail(self) -> None:
        client, self._client = self._client, None
        self._transport.abort()
        if client:
            client.break_answer()
