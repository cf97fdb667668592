"""Listening sockets, and an ASGI application on them: uvicorn's HTTP, without its server.

`uvicorn.Server` wakes ten times a second and owns the process's signals; its protocol class needs neither.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import socket
import struct
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Iterator
from pathlib import Path
from urllib.parse import unquote

import httptools
import uvicorn
from starlette.types import ASGIApp, Receive, Scope, Send
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol
from uvicorn.server import ServerState

from ...base import sockets
from ...base.errors import Conflict
from .deliveries import CONNECTION
from .upgrades import Upgrade

logger = logging.getLogger("aenv.control.serving")

_BACKLOG = 2048
_KEEP_ALIVE = 300  # seconds; longer than clients keep theirs, so that it is they who close
_HEAD_TIMEOUT = 15.0
_GONE_GRACE = 0.5  # a client that closed its side may still read; one that left looks the same
_STOP_GRACE = 5.0
_CREDENTIALS = struct.Struct("3i")  # pid, uid, gid
_MAX_HEAD_BYTES = 64 << 10  # beyond what came with its first bytes


def bind_tcp(host: str, port: int) -> socket.socket:
    """A listening socket; port 0 takes a free one."""
    with _or_say_why(f"{host}:{port}", hint="another port, or 0 for a free one"):
        family, _, _, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
        # By its number: only then asyncio knows that it is TCP, and sends small replies at once (0.4 ms, not 44).
        listener = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
        with _closed_on_failure(listener):
            listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            listener.bind(address)
            listener.listen(_BACKLOG)
        return listener


def bind_unix(path: Path) -> socket.socket:
    """A listening socket that only this user can connect to; a dead one at the same path is replaced."""
    path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    with _or_say_why(str(path), why="another gateway may be there"):
        if path.is_socket() and not _answers(path):
            path.unlink()
        listener = socket.socket(socket.AF_UNIX)
        before = os.umask(0o177)
        try:
            with _closed_on_failure(listener):
                sockets.refuse_descriptors(listener)  # what is accepted inherits it
                listener.bind(str(path))
                listener.listen(_BACKLOG)
        finally:
            os.umask(before)
        return listener


def _answers(path: Path) -> bool:
    with socket.socket(socket.AF_UNIX) as probe:
        try:
            probe.connect(str(path))
        except (FileNotFoundError, ConnectionRefusedError):
            return False
        return True


@contextlib.contextmanager
def _or_say_why(where: str, *, why: str = "", hint: str = "") -> Iterator[None]:
    try:
        yield
    except (OSError, OverflowError) as error:
        reason = (getattr(error, "strerror", None) or str(error)).lower()
        words = "; ".join(filter(None, (reason, why)))
        raise Conflict(f"cannot listen on {where!r}: {words}", details={"hint": hint} if hint else None) from None


@contextlib.contextmanager
def _closed_on_failure(listener: socket.socket) -> Iterator[None]:
    try:
        yield
    except BaseException:
        listener.close()
        raise


@contextlib.asynccontextmanager
async def serving(
    app: ASGIApp, sockets: Iterable[socket.socket], *, keep_alive: int = _KEEP_ALIVE
) -> AsyncIterator[None]:
    """Answer requests on `sockets` with `app`. At the end, what is being answered may take a moment more.

    `keep_alive`: seconds after which a connection without requests is closed.
    """
    loop = asyncio.get_running_loop()
    config = _config(app, keep_alive)
    state = ServerState()
    servers = [
        await (loop.create_unix_server if listener.family == socket.AF_UNIX else loop.create_server)(
            lambda: _ServerConnection(config, state, {}, loop),
            sock=listener,
            backlog=_BACKLOG,  # asyncio listens again, for 100: a burst would wait for TCP to try once more
        )
        for listener in sockets
    ]
    try:
        yield
    finally:
        for server in servers:
            server.close()
        await _finish(state)


Connect = Callable[[], Awaitable[socket.socket]]


@contextlib.asynccontextmanager
async def answering(app: ASGIApp) -> AsyncIterator[Connect]:
    """Answer requests with `app` on connections that have no address: each call gives the client's end of one."""
    loop = asyncio.get_running_loop()
    config, state = _config(app, _KEEP_ALIVE), ServerState()

    async def connect() -> socket.socket:
        ours, theirs = socket.socketpair()
        try:
            ours.setblocking(False)
            theirs.setblocking(False)
            await loop.connect_accepted_socket(lambda: _ServerConnection(config, state, {}, loop), theirs)
        except BaseException:
            ours.close()
            theirs.close()
            raise
        return ours

    try:
        yield connect
    finally:
        await _finish(state)


def _config(app: ASGIApp, keep_alive: int) -> uvicorn.Config:
    config = uvicorn.Config(
        _reporting(app),
        http=_ServerConnection,
        ws="none",
        lifespan="off",
        interface="asgi3",
        log_config=None,
        log_level="critical",  # it reports every response that is broken off; bugs we report ourselves
        access_log=False,
        proxy_headers=False,
        server_header=False,
        date_header=False,
        timeout_keep_alive=keep_alive,
    )
    config.load()
    return config


async def _finish(state: ServerState) -> None:
    """Let what is being answered take a moment more, then end it."""
    for connection in list(state.connections):
        connection.shutdown()
    if state.tasks:
        _, late = await asyncio.wait(state.tasks, timeout=_STOP_GRACE)
        for task in late:
            task.cancel()
        await asyncio.gather(*late, return_exceptions=True)


def _reporting(app: ASGIApp) -> ASGIApp:
    async def reporting(scope: Scope, receive: Receive, send: Send) -> None:
        try:
            await app(scope, receive, send)
        except Exception:  # boundary: whatever an application forgot
            logger.exception("a request failed")
            raise  # the connection answers with 500, or ends

    return reporting


class _Joining:
    """A connection that sends the head of a reply together with its body, where that comes at once.

    uvicorn writes them one after the other: the client would be woken twice.
    """

    def __init__(self, transport: asyncio.Transport, loop: asyncio.AbstractEventLoop) -> None:
        self._transport = transport
        self._loop = loop
        self._head = b""
        self.bare = transport
        # All else is the connection's own.
        self.abort, self.is_closing = transport.abort, transport.is_closing
        self.pause_reading, self.resume_reading = transport.pause_reading, transport.resume_reading
        self.get_extra_info = transport.get_extra_info

    def write(self, data: bytes) -> None:
        if self._head:
            data, self._head = self._head + data, b""
        elif data.startswith(b"HTTP/1.1 ") and data.endswith(b"\r\n\r\n"):
            self._head = data
            self._loop.call_soon(self._flush)
            return
        self._transport.write(data)

    def _flush(self) -> None:
        if self._head:
            head, self._head = self._head, b""
            self._transport.write(head)

    def close(self) -> None:
        self._flush()
        self._transport.close()


class _ServerConnection(HttpToolsProtocol):
    """uvicorn's connection, with limits for clients that are slow, silent, endless or half gone."""

    is_lost = False
    """Whether it ended before the last request was answered."""
    _deadline: asyncio.TimerHandle | None = None
    _head_bytes = 0

    def share(self) -> int:
        """A descriptor of the socket, for the caller to close; -1 when it is closed."""
        try:
            return os.dup(self.transport.get_extra_info("socket").fileno())
        except OSError:
            return -1

    def peer_user(self) -> int | None:
        """The id of the user at the other end of a unix socket; None where the kernel does not say."""
        connection = self.transport.get_extra_info("socket")
        if connection.family != socket.AF_UNIX:
            return None
        said = connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _CREDENTIALS.size)
        user: int = _CREDENTIALS.unpack(said)[1]
        return user

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(_Joining(transport, self.loop))  # type: ignore[arg-type]
        self.timeout_keep_alive_task = self.loop.call_later(_HEAD_TIMEOUT, self.timeout_keep_alive_handler)

    def data_received(self, data: bytes) -> None:
        if self._deadline:  # in the middle of a head
            self._head_bytes += len(data)
            if self._head_bytes > _MAX_HEAD_BYTES:
                self._refuse(b"431 Request Header Fields Too Large")
                return
        super().data_received(data)

    def _should_upgrade(self) -> bool:
        """Whether the head that was read asks for a WebSocket, with no request before it unanswered."""
        is_free = self.cycle is None or self.cycle.response_complete
        return is_free and self._get_upgrade() == b"websocket" and self.parser.get_method() == b"GET"

    def handle_websocket_upgrade(self) -> None:
        """Hand the connection over. What the client has sent ahead is dropped: it has to wait for the answer."""
        try:
            url = httptools.parse_url(self.url)
            path = unquote((url.path or b"").decode("ascii"))
        except (httptools.HttpParserError, UnicodeDecodeError):
            self._refuse(b"400 Bad Request")
            return
        self.scope |= {"path": path, "raw_path": url.path or b"", "query_string": url.query or b""}
        self.connections.discard(self)
        upgrade = Upgrade(self.scope, self.transport.bare)  # type: ignore[attr-defined, arg-type]
        self.connections.add(upgrade)  # type: ignore[arg-type]
        task = self.loop.create_task(upgrade.run(self.app))

        def ended(task: asyncio.Task[None]) -> None:
            self.connections.discard(upgrade)
            self.tasks.discard(task)
            if not task.cancelled():
                task.exception()  # `_reporting` has logged it

        self.tasks.add(task)
        task.add_done_callback(ended)

    def on_message_begin(self) -> None:
        super().on_message_begin()
        self.scope[CONNECTION] = self  # type: ignore[literal-required]
        self._head_bytes = 0
        self._deadline = self.loop.call_later(_HEAD_TIMEOUT, self._refuse, b"408 Request Timeout")

    def on_headers_complete(self) -> None:
        self._stop_deadline()
        super().on_headers_complete()

    def eof_received(self) -> bool:  # type: ignore[override]
        if self.cycle is None or self.cycle.response_complete:
            return False
        self.cycle.keep_alive = False
        self._deadline = self.loop.call_later(_GONE_GRACE, self.transport.close)
        return True

    def connection_lost(self, exc: Exception | None) -> None:
        self._stop_deadline()
        self.is_lost = self.cycle is not None and not self.cycle.response_complete
        super().connection_lost(exc)

    def _refuse(self, status: bytes) -> None:
        """Answer and close; only close when the answer to the request before is still being written."""
        if self.cycle is None or self.cycle.response_complete:
            self.transport.write(b"HTTP/1.1 %b\r\ncontent-length: 0\r\nconnection: close\r\n\r\n" % status)
        self.transport.close()

    def _stop_deadline(self) -> None:
        if self._deadline:
            self._deadline.cancel()
            self._deadline = None
