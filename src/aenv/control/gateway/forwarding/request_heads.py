"""Heads of requests on the data port: what is read of them, and what an instance is sent in their place.

A client sends the same heads again and again. One that came before is known by its bytes, and not read again.
"""

from __future__ import annotations

from dataclasses import dataclass
from urllib.parse import unquote

import httptools

from ....base.errors import AEnvError
from ....base.http1 import RawHeaders
from ....base.wire import SELF_CHECK_HEADER
from ...board.call_counts import CallKind, bounded_rpc_method, endpoint_of
from .. import data_request
from ..data_request import REWARD, DataRules
from ..tokens import Claim, Tokens

_SELF_CHECK = SELF_CHECK_HEADER.lower().encode()
_BODYLESS = ("GET", "HEAD", "DELETE")
_MAX_KNOWN = 2048
_NONE = CallKind("", "", "")
_MAX_KNOWN_BYTES = 2048


@dataclass(slots=True)
class ForwardedCall:
    """A request as it will be forwarded."""

    method: str
    raw: bytes
    """Its head as it came, for the owner."""
    length: int | None
    """Of its body; None when that comes in chunks."""
    keep_alive: bool
    instance: str = ""
    """Empty where only the owner can answer."""
    head: bytes = b""
    """For the instance."""
    claim: Claim | None = None
    is_reward: bool = False
    kind: CallKind = _NONE


class RequestHead:
    """The head of one request, fed as it arrives."""

    def __init__(self) -> None:
        self.is_complete = False
        self.is_odd = False
        """Whether a reply alone does not answer it: an old version, an upgrade, a client that asks first."""
        self._keep_alive = True
        self._url = b""
        self._headers: RawHeaders = []
        self._parser = httptools.HttpRequestParser(self)

    def feed(self, data: bytes) -> None:
        """HttpParserError for what is not HTTP."""
        try:
            self._parser.feed_data(data)
        except httptools.HttpParserUpgrade:
            self.is_odd = self.is_complete = True

    def read(self, raw: bytes, tokens: Tokens, rules: DataRules) -> ForwardedCall:
        """What it asks for. What no instance can answer is left to the owner, errors among it."""
        parser = self._parser
        method = parser.get_method().decode("ascii")
        length = _length(self._headers)
        call = ForwardedCall(method, raw, length, self._keep_alive)
        names = {name for name, _ in self._headers}
        if b"origin" in names or _SELF_CHECK in names:
            return call
        try:
            url = httptools.parse_url(self._url)
            if not url.path or not url.path.isascii():
                return call
            scope = {
                "method": method,
                "raw_path": url.path,
                "query_string": url.query or b"",
                "headers": self._headers,
            }
            request = data_request.read(scope, tokens, loopback_only=rules.loopback_only, allowed=rules.allowed)
        except (AEnvError, httptools.HttpParserError):
            return call
        if request is None or request.is_service or (request.claim and request.claim.port):
            return call
        if length is not None and length > rules.max_body_bytes:
            return call
        path = request.target.partition("?")[0]
        call.head = _head(method, request, length)
        call.instance = request.instance if call.head else ""
        call.claim = request.claim
        call.is_reward = method == "POST" and unquote(path).rstrip("/") == REWARD
        rpc_method = bounded_rpc_method(request.header(b"mcp-method"))
        call.kind = CallKind(method, endpoint_of(path), rpc_method)
        return call

    # What httptools calls.

    def on_url(self, url: bytes) -> None:
        self._url += url

    def on_header(self, name: bytes, value: bytes) -> None:
        self._headers.append((name.lower(), value))

    def on_headers_complete(self) -> None:
        self.is_complete = True
        self._keep_alive = self._parser.should_keep_alive()  # here: without a body it forgets what the head said
        asks_first = any(name == b"expect" for name, _ in self._headers)
        self.is_odd = asks_first or self._parser.get_http_version() != "1.1" or self._parser.should_upgrade()

    def on_body(self, body: bytes) -> None:
        raise ValueError("a head that does not end where it should")


class KnownHeads:
    """The calls that heads ask for, by the bytes of the head."""

    def __init__(self) -> None:
        self._calls: dict[bytes, ForwardedCall] = {}
        self.get = self._calls.get

    def keep(self, call: ForwardedCall) -> None:
        """Only what an instance can answer, and what says itself where it ends."""
        if call.instance and call.length is not None and len(call.raw) <= _MAX_KNOWN_BYTES:
            if len(self._calls) >= _MAX_KNOWN:
                self._calls.clear()
            self._calls[call.raw] = call


def _length(headers: RawHeaders) -> int | None:
    length: int | None = 0
    for name, value in headers:
        if name == b"content-length":
            length = int(value)
        elif name == b"transfer-encoding":
            return None
    return length


def _head(method: str, request: data_request.DataRequest, length: int | None) -> bytes:
    """The head for the instance; empty when it cannot be written."""
    lines = [f"{method} {request.target} HTTP/1.1\r\nhost: localhost".encode("latin-1")]
    lines += map(b": ".join, request.headers)
    if length is None:
        lines.append(b"transfer-encoding: chunked")
    elif length or method not in _BODYLESS:
        lines.append(b"content-length: %d" % length)
    head = b"\r\n".join(lines)
    # A header value with a line break would let a client write headers, or whole requests, of its own.
    is_sound = head.count(b"\r") == head.count(b"\n") == len(lines) and b"\0" not in head
    return head + b"\r\n\r\n" if is_sound else b""
