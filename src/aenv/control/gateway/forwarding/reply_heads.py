"""Heads of replies on their way to a client: what is read of them, and what an instance may say in them."""

from __future__ import annotations

from dataclasses import dataclass
from http import HTTPStatus

import httptools

from ....base.http1 import RawHeaders
from .. import data_request

_MAX_KNOWN = 2048
_MAX_KNOWN_BYTES = 1024
_BODYLESS = (204, 304)
_PHRASES = {status.value: status.phrase for status in HTTPStatus}
_OF_CONNECTIONS = (b"connection", b"keep-alive", b"transfer-encoding")


class NotHttp(Exception):
    """An upstream has sent something that is not a reply."""


@dataclass(slots=True)
class ReplyHead:
    """The head of a reply, as the client gets it."""

    status: int
    head: bytes
    """Without the empty line at its end: headers of this gateway may follow."""
    length: int | None
    """Of the body that follows; None when it ends by itself."""
    is_chunked: bool
    """Whether that end is told by chunks; else it is the connection's."""
    keep_alive: bool
    """Whether the upstream answers more requests on the connection."""
    is_event_stream: bool


class KnownReplies:
    """Reads heads. Instances send the same ones again and again: those are known by their bytes."""

    def __init__(self) -> None:
        self._heads: dict[bytes, ReplyHead] = {}
        self.get = self._heads.get

    def read(self, raw: bytes) -> ReplyHead:
        """The head of an instance's reply. NotHttp when it is none."""
        found = self._heads.get(raw)
        if found is None:
            found = read_head(raw, of_instance=True)
            if len(raw) <= _MAX_KNOWN_BYTES and found.status >= 200:
                if len(self._heads) >= _MAX_KNOWN:
                    self._heads.clear()
                self._heads[raw] = found
        return found


def read_head(raw: bytes, *, of_instance: bool, head_only: bool = False) -> ReplyHead:
    """The owner's is passed on as it is. `head_only`: no body follows it. NotHttp when it is none."""
    headers: RawHeaders = []
    reader = _Reader(headers)
    reader.parser = parser = httptools.HttpResponseParser(reader)
    try:
        parser.feed_data(raw)
    except (httptools.HttpParserError, httptools.HttpParserUpgrade) as error:
        raise NotHttp(str(error)) from None
    status = parser.get_status_code()
    if not reader.is_complete or not 100 <= status <= 599 or status == 101:
        raise NotHttp(f"status {status}")
    sent = dict(headers)
    is_chunked = b"transfer-encoding" in sent
    length = int(sent[b"content-length"]) if b"content-length" in sent else None
    kept = (
        data_request.reply_headers(status, headers)
        if of_instance
        else [pair for pair in headers if pair[0] not in _OF_CONNECTIONS]
    )
    if status in _BODYLESS:
        length, is_chunked = 0, False
    elif length is None and not head_only:
        kept.append((b"transfer-encoding", b"chunked"))
    line = f"HTTP/1.1 {status} {_PHRASES.get(status, '')}".encode()
    return ReplyHead(
        status,
        b"\r\n".join([line, *map(b": ".join, kept), b""]),
        length,
        is_chunked,
        reader.keep_alive and (is_chunked or length is not None),
        sent.get(b"content-type", b"").startswith(b"text/event-stream"),
    )


class _Reader:
    """What httptools calls."""

    def __init__(self, headers: RawHeaders) -> None:
        self._headers = headers
        self.parser: httptools.HttpResponseParser | None = None
        self.is_complete = False
        self.keep_alive = False

    def on_header(self, name: bytes, value: bytes) -> None:
        self._headers.append((name.lower(), value))

    def on_headers_complete(self) -> None:
        assert self.parser
        self.is_complete = True
        self.keep_alive = self.parser.should_keep_alive()  # here: without a body it forgets what the head said
