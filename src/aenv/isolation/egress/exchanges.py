"""Exchanges: what passes through the egress proxy: the head of a request, an answer, and bytes both ways.

Heads are read strictly and bodies not at all. One request a connection: the answer says so. Not here: whether a
request may pass (`server.py`). What goes through a tunnel is between its ends: who may reach one site of a shared
front end can reach its others by TLS.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import re
import socket
import struct
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from .destinations import Destination

logger = logging.getLogger(__name__)


class ProxyTunnel:
    """One client and one server, connected: bytes both ways, as fast as the slower of them reads."""

    def __init__(
        self, client: socket.socket, upstream: socket.socket, request: ProxyRequest, idle_timeout: float
    ) -> None:
        self._client = client
        self._upstream = upstream
        self._request = request
        self._idle = idle_timeout
        self._loop = asyncio.get_running_loop()
        self._cover = _Cover(request.covered)

    async def run(self, early: bytes) -> None:
        """Return when both have ended, one has broken off, or nothing has moved for `idle_timeout` seconds.

        `early`: what was read already.
        """
        try:
            async with asyncio.timeout(self._idle) as self._deadline:
                if self._request.head:
                    await self._exchange(early)
                else:
                    await self._tunnel(early)
        except* OSError as errors:
            logger.debug("an egress connection broke: %s", errors.exceptions[0])

    async def _tunnel(self, early: bytes) -> None:
        await self._send(self._client, b"HTTP/1.1 200 Connection established\r\n\r\n")
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self._pump(self._client, self._upstream, early))
            tasks.create_task(self._pump(self._upstream, self._client))

    async def _exchange(self, early: bytes) -> None:
        await self._send(self._upstream, self._request.head)
        refusal, is_whole = None, True
        async with asyncio.TaskGroup() as tasks:
            sending = tasks.create_task(self._upload(early))
            try:
                refusal = await self._download()
            except OSError:
                is_whole = False
            sending.cancel()
        if refusal:
            await refuse(self._client, refusal)
        else:
            await _linger(self._client, is_whole=is_whole)

    async def _send(self, sink: socket.socket, data: bytes) -> None:
        if data:
            await self._loop.sock_sendall(sink, data)
            if not self._deadline.expired():
                self._deadline.reschedule(self._loop.time() + self._idle)

    async def _pump(
        self,
        source: socket.socket,
        sink: socket.socket,
        early: bytes = b"",
        length: int | None = None,
        cover: _Cover | None = None,
    ) -> None:
        """Until the end of `source`, which `sink` is told; what is longer than `length` is not passed on."""
        data = early
        while True:
            if length is not None:
                data = data[:length]
                length -= len(data)
            await self._send(sink, cover.passed(data) if cover else data)
            # While there is always something to read and room to write, neither call would ever let others run.
            await asyncio.sleep(0)
            data = await self._loop.sock_recv(source, _CHUNK)
            if not data:
                break
        if cover:
            await self._send(sink, cover.rest())
        sink.shutdown(socket.SHUT_WR)

    async def _upload(self, early: bytes) -> None:
        """The request's body. A server that has answered may take no more of it, and its answer still counts."""
        try:
            await self._pump(self._client, self._upstream, early, self._request.length)
        except OSError:
            await _discard(self._client)

    async def _download(self) -> Refusal | None:
        """The answer; or what to say instead, when there is none."""
        rest, status = b"", 100
        try:
            while status < 200 and status != 101:
                head, rest = await read_head(self._upstream, rest, _ANSWER_HEAD_BYTES)
                status, head = _parse_answer(head)
                await self._send(self._client, self._cover.all(head))
        except (OSError, EOFError, ValueError, Refusal):
            return Refusal(502, f"'{self._request.to}' did not answer in HTTP")
        await self._pump(self._upstream, self._client, rest, cover=self._cover)
        return None


class _Cover:
    """Puts asterisks in the place of a secret, as many as it has bytes, wherever a stream is cut into pieces."""

    def __init__(self, secret: bytes) -> None:
        self._secret = secret
        self._held = b""

    def all(self, data: bytes) -> bytes:
        return data.replace(self._secret, b"*" * len(self._secret)) if self._secret else data

    def passed(self, data: bytes) -> bytes:
        """What may go on: all but an end that the secret may begin with."""
        data = self.all(self._held + data)
        most = min(len(self._secret) - 1, len(data))
        held = next((n for n in range(most, 0, -1) if self._secret.startswith(data[-n:])), 0)
        self._held = data[len(data) - held :]
        return data[: len(data) - held]

    def rest(self) -> bytes:
        held, self._held = self._held, b""
        return held


class Refusal(Exception):
    """What the proxy itself answers. The text is ASCII without line breaks."""

    def __init__(self, status: int, text: str) -> None:
        super().__init__(text)
        self.status = status


async def refuse(client: socket.socket, refusal: Refusal) -> None:
    # The text is also the reason in the status line: of an answer to CONNECT most programs show nothing else.
    body = f"{refusal}\n"
    head = f"HTTP/1.1 {refusal.status} {refusal}\r\nContent-Type: text/plain\r\nContent-Length: {len(body)}\r\n"
    with contextlib.suppress(OSError):
        async with asyncio.timeout(_LINGER):
            reply = f"{head}Connection: close\r\n\r\n{body}".encode("ascii", "replace")
            await asyncio.get_running_loop().sock_sendall(client, reply)
        await _linger(client)


async def _linger(client: socket.socket, *, is_whole: bool = True) -> None:
    """Let the client read what was sent: closing with something of its own unread would take that away.

    An answer that broke off must not look like one that has ended: the client is told by a reset, at last.
    """
    with contextlib.suppress(OSError):
        if is_whole:
            client.shutdown(socket.SHUT_WR)
        else:
            client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        async with asyncio.timeout(_LINGER):
            await _discard(client)


async def _discard(source: socket.socket) -> None:
    loop = asyncio.get_running_loop()
    while True:
        if not await loop.sock_recv(source, _CHUNK):
            return
        await asyncio.sleep(0)  # as in `_pump`


async def read_head(source: socket.socket, data: bytes, limit: int) -> tuple[bytes, bytes]:
    """A head without the empty line that ends it, and what came after. EOFError when it breaks off."""
    loop = asyncio.get_running_loop()
    while (end := data.find(b"\r\n\r\n")) < 0 and len(data) <= limit:
        piece = await loop.sock_recv(source, _CHUNK)
        if not piece:
            raise EOFError("the connection ended before its head did")
        data += piece
    if not 0 <= end <= limit:
        raise Refusal(431, f"the head is larger than {limit} bytes")
    return data[:end], data[end + 4 :]


@dataclass(frozen=True)
class ProxyRequest:
    to: Destination
    head: bytes = field(default=b"", repr=False)
    """What the server gets; empty for CONNECT."""
    length: int | None = None
    """Of the body; None when the body itself says where it ends."""
    covered: bytes = field(default=b"", repr=False)
    """What no answer may show: asterisks stand in its place."""


def head_parts(head: bytes) -> tuple[str, str, str, list[tuple[str, str]]]:
    """Method, target, version and headers. Refusal for whatever two readers could read in two ways."""
    first, *lines = head.decode("latin-1").split("\r\n")
    request = _REQUEST_LINE.fullmatch(first)
    fields = [_FIELD.fullmatch(line) for line in lines]
    if request is None or None in fields:
        raise Refusal(400, "this is not HTTP/1.1, or a header has characters that it may not have")
    method, target, version = request.groups()
    return method, target, version, [(field[1], field[2].strip(" \t")) for field in fields if field]


def parse_request(head: bytes) -> ProxyRequest:
    """What a client asks a proxy for. Refusal where it cannot be told."""
    method, target, version, headers = head_parts(head)
    if method == "CONNECT":
        return ProxyRequest(_destination(target))
    url = _URL.fullmatch(target)
    if url is None:
        raise Refusal(
            400, f"cannot fetch {ascii(target)[:200]}; this is a proxy, and takes CONNECT and http://host/"
        )
    to = _destination(url[1], default_port=80)
    path = (url[2] or "").partition("#")[0]
    return forwarded(to, method, path if path[:1] == "/" else "/" + path, version, headers)


def forwarded(
    to: Destination,
    method: str,
    path: str,
    version: str,
    headers: Sequence[tuple[str, str]],
    *,
    dropped: Iterable[str] = (),
    added: Iterable[tuple[str, str]] = (),
    covered: str = "",
) -> ProxyRequest:
    """A request as the server gets it: without headers of this connection and `dropped`, with those `added`."""
    host = to.authority if to.port == 80 else str(to)
    left_out = _hop_by_hop(value for name, value in headers if name.lower() == "connection") | {"host", *dropped}
    # Host comes from the target, which was judged: a server must not be told of another.
    sent = [*((name, value) for name, value in headers if name.lower() not in left_out), *added]
    kept = [f"{name}: {value}" for name, value in sent]
    text = "\r\n".join([f"{method} {path} {version}", f"Host: {host}", *kept, "Connection: close", "\r\n"])
    return ProxyRequest(to, text.encode("latin-1"), _body_length(headers, version), covered.encode())


def _destination(authority: str, default_port: int | None = None) -> Destination:
    try:
        # Some clients send names in UTF-8; the head was read byte by byte.
        return Destination.parse(authority.encode("latin-1").decode(), default_port=default_port)
    except ValueError as error:
        raise Refusal(400, f"cannot connect to {ascii(authority)[:200]}: {error}") from None


def _body_length(headers: Sequence[tuple[str, str]], version: str) -> int | None:
    lengths = [value for name, value in headers if name.lower() == "content-length"]
    codings = [value.lower() for name, value in headers if name.lower() == "transfer-encoding"]
    if codings == ["chunked"] and not lengths and version == "HTTP/1.1":
        return None
    if codings or len(lengths) > 1 or not all(_LENGTH.fullmatch(value) for value in lengths):
        raise Refusal(
            400, "the length of the body is not clear; send one content-length, or transfer-encoding: chunked"
        )
    return int(lengths[0]) if lengths else 0


def _parse_answer(head: bytes) -> tuple[int, bytes]:
    """The status, and the head for the client. ValueError when it is not HTTP."""
    first, *lines = head.split(b"\r\n")
    if not _STATUS_LINE.fullmatch(first):
        raise ValueError("not HTTP")
    status = int(first[9:12])
    fields = [line.decode("latin-1").partition(":") for line in lines]
    dropped = _hop_by_hop(value for name, _, value in fields if name.lower() == "connection")
    kept = [line for line, (name, _, _) in zip(lines, fields, strict=True) if name.strip().lower() not in dropped]
    closing = [b"Connection: close"] if status >= 200 else []
    return status, b"\r\n".join([first, *kept, *closing, b"\r\n"])


def _hop_by_hop(connection: Iterable[str]) -> set[str]:
    """The headers that mean this connection only; `connection`: the headers of that name, which name more."""
    named = {name.strip().lower() for value in connection for name in value.split(",")}
    # The body is passed on as it comes, so what tells its length has to go with it.
    return (named - {"content-length", "transfer-encoding"}) | _HOP_BY_HOP


_TOKEN = "[!#$%&'*+.^_`|~0-9A-Za-z-]+"
_REQUEST_LINE = re.compile(rf"({_TOKEN}) ([\x21-\x7e\x80-\xff]+) (HTTP/1\.[01])")
_FIELD = re.compile(rf"({_TOKEN}):([\t\x20-\x7e\x80-\xff]*)")
_URL = re.compile(r"(?i:http)://([^/?#]+)([/?#].*)?")
_LENGTH = re.compile("[0-9]{1,18}")
_STATUS_LINE = re.compile(rb"HTTP/1\.[01] [1-9][0-9]{2}( [^\r\n]*)?")
_HOP_BY_HOP = {"connection", "keep-alive", "proxy-connection", "proxy-authenticate", "proxy-authorization"}
_HOP_BY_HOP |= {"te", "upgrade"}
_CHUNK = 64 << 10
_ANSWER_HEAD_BYTES = 64 << 10
_LINGER = 5.0
