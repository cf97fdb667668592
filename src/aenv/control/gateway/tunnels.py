"""WebSockets of clients to servers in instances: after the answer, bytes both ways, which nothing here reads."""

from __future__ import annotations

import asyncio
import contextlib
import contextvars
import http
import re
import ssl
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Iterator

from starlette.types import Send

from ...base import sockets
from ...base.addresses import Origin
from ...base.errors import ConnectFailed, NetworkError, TooManyRequests, Unavailable
from ...base.http1 import RawHeaders
from ..serving.upgrades import Upgrade
from . import data_request
from .data_request import DataRequest

SWITCHED = 101
IDLE = 600.0  # seconds without a byte either way; a server that pings keeps its WebSocket
_MOST_OF_ONE = 64  # of an instance or a service
_ANSWER = 30.0  # seconds until the server in the instance has answered
_MAX_HEAD_BYTES = 64 << 10
_MAX_REFUSAL_BYTES = 1 << 20
_PIECE_BYTES = 64 << 10
_CHECK_EVERY = 10.0  # seconds
_NAME = re.compile(rb"[!#$%&'*+.^_`|~0-9A-Za-z-]+")
_IN_NO_VALUE = re.compile(rb"[\r\n\0]")
_STATUSES = {status.value for status in http.HTTPStatus if status >= 200} | {SWITCHED}
May = Callable[[], Awaitable[bool]]


class Tunnels:
    """The open ones of a gateway."""

    def __init__(self) -> None:
        self._open: Counter[str] = Counter()

    async def carry(
        self,
        upgrade: Upgrade,
        send: Send,
        origin: Origin,
        request: DataRequest,
        *,
        until: float | None,
        may: May | None = None,
    ) -> int:
        """Ask the server; where it switches, return when either side ends. The status of its answer.

        `until`: the time at which the right to it is over. `may` is asked now and then whether it still is
        one. ConnectFailed and NetworkError as in `Pool.request`.
        """
        with self._counted(request.instance):
            reader, writer = await _connect(origin)
            try:
                host = origin.authority if origin.tls else "localhost"
                status, headers = await _ask(reader, writer, request, host)
                if status != SWITCHED:
                    await _refuse(reader, send, status, headers)
                    return status
                upgrade.take([*headers, (b"connection", b"Upgrade"), (b"upgrade", b"websocket")])
                await _carry(upgrade, reader, writer, until, may)
                return status
            finally:
                # Not `close`, which waits for a server that reads nothing for as long as that lives.
                writer.transport.abort()

    @contextlib.contextmanager
    def _counted(self, id: str) -> Iterator[None]:
        if self._open[id] >= _MOST_OF_ONE:
            raise TooManyRequests(f"{_MOST_OF_ONE} WebSockets of {id!r} are open already; close one")
        self._open[id] += 1
        try:
            yield
        finally:
            self._open -= Counter([id])  # which leaves out what is at 0


async def _connect(origin: Origin) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    try:
        if origin.socket:
            return await asyncio.open_unix_connection(
                sock=sockets.connect_unix(origin.socket), limit=_MAX_HEAD_BYTES
            )
        tls = ssl.create_default_context() if origin.tls else None
        async with asyncio.timeout(_ANSWER):
            return await asyncio.open_connection(origin.host, origin.port, limit=_MAX_HEAD_BYTES, ssl=tls)
    except OSError as error:  # TimeoutError is one
        raise ConnectFailed(f"cannot connect: {error.strerror or error}") from error


async def _ask(
    reader: asyncio.StreamReader, writer: asyncio.StreamWriter, request: DataRequest, host: str
) -> tuple[int, RawHeaders]:
    """Send the head, and read that of the answer."""
    lines = [f"GET {request.target} HTTP/1.1".encode("latin-1"), f"host: {host}".encode()]
    lines += map(b": ".join, request.headers)
    lines += [b"connection: Upgrade", b"upgrade: websocket"]
    if any(b"\r" in line or b"\n" in line or b"\0" in line for line in lines):
        raise NetworkError("a header of the request cannot be passed on")
    writer.write(b"\r\n".join(lines) + b"\r\n\r\n")
    try:
        async with asyncio.timeout(_ANSWER):
            head = await reader.readuntil(b"\r\n\r\n")
        first, *rest = head[:-4].split(b"\r\n")
        version, status, *_ = first.split(b" ")
        pairs = [line.split(b":", 1) for line in rest]
        headers = [(name.strip().lower(), value.strip()) for name, value in pairs]
        if not version.startswith(b"HTTP/1.") or int(status) not in _STATUSES:
            raise ValueError(first)
        # A line break would let it write headers that it may not send, or whole answers.
        if any(not _NAME.fullmatch(name) or _IN_NO_VALUE.search(value) for name, value in headers):
            raise ValueError("a header with characters that none has")
    except (OSError, ValueError, TimeoutError, asyncio.IncompleteReadError, asyncio.LimitOverrunError) as error:
        raise NetworkError("it did not answer as a server of WebSockets does") from error
    return int(status), data_request.reply_headers(int(status), headers)


async def _refuse(reader: asyncio.StreamReader, send: Send, status: int, headers: RawHeaders) -> None:
    """Pass on why the server does not switch."""
    length = next((value for name, value in headers if name == b"content-length"), b"")
    most = min(int(length), _MAX_REFUSAL_BYTES) if length.isdigit() and len(length) < 20 else _MAX_REFUSAL_BYTES
    body = b""
    with contextlib.suppress(OSError, TimeoutError):
        async with asyncio.timeout(_ANSWER):
            while len(body) < most and (piece := await reader.read(most - len(body))):
                body += piece
    headers = [pair for pair in headers if pair[0] != b"content-length"]
    headers.append((b"content-length", b"%d" % len(body)))
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": body})


async def _carry(
    upgrade: Upgrade,
    reader: asyncio.StreamReader,
    writer: asyncio.StreamWriter,
    until: float | None,
    may: May | None,
) -> None:
    """Each side waits for the other: at most what the sockets hold is on its way."""
    used = time.monotonic()

    async def inward() -> None:
        nonlocal used
        while data := await upgrade.read():
            used = time.monotonic()
            writer.write(data)
            await writer.drain()

    async def outward() -> None:
        nonlocal used
        while data := await reader.read(_PIECE_BYTES):
            used = time.monotonic()
            await upgrade.write(data)

    async def limits() -> None:
        while True:
            left = [used + IDLE - time.monotonic()]
            if until is not None:
                left.append(until - time.time())
            if min(left) <= 0:
                return
            await asyncio.sleep(min([*left, _CHECK_EVERY]))
            with contextlib.suppress(Unavailable):  # no account was revoked while the store does not answer
                if may and not await may():
                    return

    # The limits in a context of their own: the request's time for the store does not last for as long.
    tasks = [asyncio.create_task(one()) for one in (inward, outward)]
    tasks.append(asyncio.create_task(limits(), context=contextvars.Context()))
    try:
        await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for task in tasks:
            task.cancel()
        # A side that has gone breaks the other's write; neither is an error here.
        for ended in await asyncio.gather(*tasks, return_exceptions=True):
            if isinstance(ended, Exception) and not isinstance(ended, OSError):
                raise ended
