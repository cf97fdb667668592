"""The data path byte by byte, in front of an upstream that the test holds in its hands."""

from __future__ import annotations

import asyncio
import contextlib
import tempfile
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from aenv.base.addresses import Origin
from aenv.base.errors import NetworkError
from aenv.base.http1 import Pool
from aenv.base.models import CreateInstance
from aenv.control.gateway.forwarding.data_port import serving_data
from aenv.control.gateway.gateway_app import GatewayAddress
from aenv.control.gateway.tokens import Tokens
from aenv.control.serving.accounts import LOCAL
from aenv.control.serving.listeners import bind_tcp, serving
from aenv.engines.base import Address, InstanceSpec
from tests.gateways import Gateway, composed, make_project

pytestmark = pytest.mark.slow  # gateways and instances

MEBI = 1 << 20


@dataclass
class DataPort:
    """Who answers on the data port of a test: this many processes, or with 0 the owner's proxy alone."""

    workers: int = 1


DATA_PORT = DataPort()


@pytest.fixture(params=[0, 1, 2], ids=["proxy", "own-process", "two-workers"], autouse=True)
def data_port(request: pytest.FixtureRequest) -> None:
    DATA_PORT.workers = request.param


@dataclass
class Upstream:
    """An instance whose answers are the test's: `answer` gets each request's head and the connection."""

    answer: Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]
    heads: list[bytes] = field(default_factory=list)
    tokens: Tokens = field(default_factory=Tokens)
    name: str = "upstream"
    isolation: tuple[str, ...] = ()
    origin: Origin = field(default_factory=lambda: Origin("127.0.0.1", 1))

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.closing(writer), contextlib.suppress(asyncio.IncompleteReadError, ConnectionError):
            while True:
                self.heads.append(await reader.readuntil(b"\r\n\r\n"))
                await self.answer(reader, writer)
                await writer.drain()

    # It is an engine, too: of instances that are this server.

    async def create(self, spec: InstanceSpec) -> Address:
        return Address(self.origin, 1)

    async def destroy(self, id: str) -> None: ...

    async def running(self) -> dict[str, Address]:
        return {}


@contextlib.asynccontextmanager
async def proxied(
    upstream: Upstream, tmp_path: Path, limit: int = 64 * MEBI
) -> AsyncIterator[tuple[Gateway, str]]:
    """A data port in front of `upstream`, and the path of an instance there."""
    with tempfile.TemporaryDirectory() as folder:  # the path of a socket is short
        upstream.origin = Origin("localhost", socket=f"{folder}/upstream")
        server = await asyncio.start_unix_server(upstream.serve, upstream.origin.socket)
        settings: dict[str, Any] = {"engine": upstream, "max_body_bytes": limit, "workers": DATA_PORT.workers}
        async with (
            server,
            Pool() as clients,
            composed(tmp_path / "home", make_project(tmp_path), **settings) as made,
        ):
            record = await made.creator.create(CreateInstance(env_name="echo"), LOCAL)
            upstream.tokens = made.tokens
            with bind_tcp("127.0.0.1", 0) as listener:
                port = listener.getsockname()[1]
                workers = DATA_PORT.workers
                serve = serving_data(made, [listener], port) if workers else serving(made.proxy, [listener])
                async with serve:
                    yield (
                        Gateway(GatewayAddress("127.0.0.1", port, port), clients, tmp_path),
                        f"/instances/{record.id}",
                    )


def replying(*parts: bytes) -> Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]:
    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"".join(parts))

    return answer


CHUNKED = b"transfer-encoding: chunked\r\n\r\n"
OK = b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n"


async def test_headers_of_a_connection_stay_on_it(tmp_path: Path) -> None:
    answer = replying(OK, b"X-Kept: 1\r\nKeep-Alive: timeout=9\r\nConnection: X-Hop\r\nX-Hop: 1\r\n\r\nok")
    upstream = Upstream(answer)
    async with proxied(upstream, tmp_path) as (gateway, path):
        headers = [
            ("X-Kept", "1"),
            ("traceparent", "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"),
            ("TE", "trailers"),
            ("Connection", "keep-alive, X-Private"),
            ("X-Private", "1"),
            ("AEnvCore-MCPProxy-URL", "http://127.0.0.1:1"),
            ("authorization", "Bearer the-authors-own"),
            ("cookie", "a=1"),
        ]
        response = await gateway.pool.request(gateway.data, "GET", f"{path}/x", headers)
        assert await response.read() == b"ok"
    head = upstream.heads[0].decode().lower()
    expected = ("x-kept: 1", "traceparent: 00-4bf9", "authorization: bearer the-authors-own", "cookie: a=1")
    for kept in (*expected, "host: "):
        assert head.count(f"\r\n{kept}") == 1
    for dropped in ("te:", "connection:", "x-private:", "aenvcore-mcpproxy-url:", "content-length:"):
        assert f"\r\n{dropped}" not in head
    names = {name for name, _ in response.headers}
    assert b"x-kept" in names
    assert names.isdisjoint({b"keep-alive", b"x-hop"})


async def test_headers_arrive_byte_for_byte_in_both_directions(tmp_path: Path) -> None:
    odd = bytes(range(0x80, 0x100)) + b"\ta,  b"
    upstream = Upstream(replying(OK, b"x-odd: ", odd, b"\r\n\r\nok"))
    async with proxied(upstream, tmp_path) as (gateway, path):
        request = (gateway.data, "GET", f"{path}/x", (), b"", [(b"x-odd", odd), (b"x-odd", b"again")])
        response = await gateway.pool.request(*request)
        assert await response.read() == b"ok"
    assert b"\r\nx-odd: %b\r\nx-odd: again\r\n" % odd in upstream.heads[0]
    assert (b"x-odd", odd) in response.headers


async def test_an_instance_token_is_not_shown_to_the_instance(tmp_path: Path) -> None:
    upstream = Upstream(replying(OK, b"\r\nok"))
    async with proxied(upstream, tmp_path) as (gateway, path):
        token = upstream.tokens.sign(path.removeprefix("/instances/"), None)
        assert (
            await gateway.pool.request(gateway.data, "GET", "/x", [("authorization", f"Bearer {token}")])
        ).status == 200
    assert b"authorization" not in upstream.heads[0].lower()
    assert token.encode() not in upstream.heads[0]


@pytest.mark.parametrize("target", ["/a%20b%2Fc/d?x=1&y=%26", "/", "//a//", "/instances/other/x", "/a?"])
async def test_path_and_query_arrive_as_they_were_sent(tmp_path: Path, target: str) -> None:
    upstream = Upstream(replying(OK, b"\r\nok"))
    async with proxied(upstream, tmp_path) as (gateway, path):
        await (await gateway.pool.request(gateway.data, "GET", path + target)).read()
    assert upstream.heads[0].split(b" ")[1].decode() == target.removesuffix("?")


@pytest.mark.parametrize(
    ("method", "reply", "body"),
    [
        ("HEAD", OK + b"\r\n", b""),
        ("DELETE", b"HTTP/1.1 204 No Content\r\n\r\n", b""),
        ("GET", b"HTTP/1.1 404 Nope\r\ncontent-length: 0\r\n\r\n", b""),
        (
            "PATCH",
            b"HTTP/1.1 418 Teapot\r\ntransfer-encoding: chunked\r\n\r\n1\r\na\r\n2\r\nbc\r\n0\r\n\r\n",
            b"abc",
        ),
        ("GET", b"HTTP/1.1 100 Continue\r\n\r\n" + OK + b"\r\nok", b"ok"),
    ],
)
async def test_method_and_status_pass_through(tmp_path: Path, method: str, reply: bytes, body: bytes) -> None:
    upstream = Upstream(replying(reply))
    async with proxied(upstream, tmp_path) as (gateway, path):
        response = await gateway.pool.request(gateway.data, method, f"{path}/x")
        assert await response.read() == body
        assert str(response.status).encode() in reply
    assert upstream.heads[0].startswith(method.encode())


async def test_after_a_head_request_that_broke_off_the_next_answer_is_that_of_its_own_request(
    tmp_path: Path,
) -> None:
    async def hang_up(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.close()

    upstream = Upstream(hang_up)
    async with proxied(upstream, tmp_path) as (gateway, path):
        reader, writer = await asyncio.open_connection("127.0.0.1", gateway.address.port)
        end = b" HTTP/1.1\r\nhost: localhost\r\n\r\n"
        for _ in range(5):  # of each, no body stands before the next head
            writer.write(f"HEAD {path}/x".encode() + end)
            assert (await reader.readuntil(b"\r\n\r\n")).startswith(b"HTTP/1.1 502 ")
            status, reply = await gateway.ask("GET", "/health", origin=gateway.data)  # which the owner answers
            assert (status, reply["status"]) == (200, "healthy")
        upstream.answer = replying(OK, b"\r\nok")
        writer.write(f"GET {path}/x".encode() + end)
        assert (await reader.readuntil(b"\r\n\r\nok")).startswith(b"HTTP/1.1 200 ")
        writer.close()
        await writer.wait_closed()


async def test_a_head_reply_that_announces_too_much_is_refused_without_a_body(tmp_path: Path) -> None:
    upstream = Upstream(replying(b"HTTP/1.1 200 OK\r\ncontent-length: 5000\r\n\r\n"))
    async with proxied(upstream, tmp_path, limit=1000) as (gateway, path):
        reader, writer = await asyncio.open_connection("127.0.0.1", gateway.address.port)
        writer.write(f"HEAD {path}/x HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n".encode())
        assert (await reader.read()).endswith(b"\r\n\r\n")
        writer.close()
        await writer.wait_closed()


async def test_a_body_that_announces_too_much_never_reaches_the_instance(tmp_path: Path) -> None:
    upstream = Upstream(replying(OK, b"\r\nok"))
    async with proxied(upstream, tmp_path, limit=1000) as (gateway, path):
        status, reply = await gateway.ask("POST", f"{path}/x", b"x" * 70_000)
        assert (status, reply["error"]) == (413, "too_large")
    assert upstream.heads == []


async def test_a_stream_arrives_chunk_by_chunk(tmp_path: Path) -> None:
    read = asyncio.Event()

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n")
        for event in (b"data: one\n\n", b"data: two\n\n"):
            writer.write(b"%x\r\n%b\r\n" % (len(event), event))
            await read.wait()  # the next event is not even written before the client has this one
            read.clear()
        writer.write(b"0\r\n\r\n")

    async with proxied(Upstream(answer), tmp_path) as (gateway, path):
        response = await gateway.pool.request(gateway.data, "GET", f"{path}/mcp")
        assert response.header(b"content-type") == "text/event-stream"
        seen = []
        async for chunk in response:
            seen.append(chunk)
            read.set()
        assert seen == [b"data: one\n\n", b"data: two\n\n"]


async def test_a_request_body_streams_while_it_is_sent(tmp_path: Path) -> None:
    arrived = asyncio.Event()

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        assert await reader.readuntil(b"first\r\n")
        arrived.set()
        await reader.readuntil(b"0\r\n\r\n")
        writer.write(OK + b"\r\nok")

    async def body() -> AsyncIterator[bytes]:
        yield b"first"
        await arrived.wait()
        yield b"second"

    async with proxied(Upstream(answer), tmp_path) as (gateway, path):
        response = await gateway.pool.request(gateway.data, "POST", f"{path}/x", (), body())
        assert await response.read() == b"ok"


async def test_a_client_that_leaves_a_stream_closes_it_upstream(tmp_path: Path) -> None:
    closed = asyncio.Event()

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n1\r\na\r\n")
        assert await reader.read() == b""
        closed.set()

    async with proxied(Upstream(answer), tmp_path) as (gateway, path):
        response = await gateway.pool.request(gateway.data, "GET", f"{path}/mcp")
        async for _ in response:
            response.close()
            break
        await closed.wait()


async def test_a_client_that_leaves_before_its_body_is_complete_is_noticed_too(tmp_path: Path) -> None:
    closed = asyncio.Event()

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"HTTP/1.1 200 OK\r\n" + CHUNKED + b"1\r\na\r\n")  # without waiting for the body
        with contextlib.suppress(ConnectionError):
            while await reader.read(MEBI):
                pass
        closed.set()

    async with proxied(Upstream(answer), tmp_path) as (gateway, path):
        reader, writer = await asyncio.open_connection("127.0.0.1", gateway.address.port)
        writer.write(f"POST {path}/x HTTP/1.1\r\nhost: localhost\r\n".encode() + CHUNKED + b"1\r\nx\r\n")
        while not await head_of(reader, writer):
            pass
        writer.transport.abort()
        await closed.wait()


async def head_of(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bytes:
    """Send one more byte of the body, and give what has come of the response."""
    writer.write(b"1\r\nx\r\n")
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(0.01):
            return await reader.readuntil(b"\r\n\r\n")
    return b""


async def test_a_slow_reader_holds_back_the_instance(tmp_path: Path) -> None:
    sent = 0
    total = 256 * MEBI

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal sent
        writer.write(b"HTTP/1.1 200 OK\r\n\r\n")
        while sent < total:
            writer.write(bytes(MEBI))
            await writer.drain()
            sent += MEBI

    async with proxied(Upstream(answer), tmp_path) as (gateway, path):
        response = await gateway.pool.request(gateway.data, "GET", f"{path}/x")
        # Nothing is read here; another request has all the time it needs.
        for _ in range(50):
            await gateway.ask("GET", "/health", origin=gateway.data)
        assert 0 < sent < total // 4
        response.close()


async def test_a_client_that_asks_ahead_and_reads_nothing_is_not_answered_for_ever(tmp_path: Path) -> None:
    total = 4000
    upstream = Upstream(replying(b"HTTP/1.1 200 OK\r\ncontent-length: 60000\r\n\r\n", bytes(60_000)))
    async with proxied(upstream, tmp_path) as (gateway, path):
        reader, writer = await asyncio.open_connection("127.0.0.1", gateway.address.port)
        writer.write(f"GET {path}/x HTTP/1.1\r\nhost: localhost\r\n\r\n".encode() * total)
        seen = -1
        while seen < len(upstream.heads) or not seen:  # until no more are answered
            seen = len(upstream.heads)
            for _ in range(20):
                await gateway.ask("GET", "/health", origin=gateway.data)
        assert seen < total // 2
        for _ in range(10 if DATA_PORT.workers else 0):  # and it goes on when they are read
            await reader.readuntil(b"\r\n\r\n")
            await reader.readexactly(60_000)
        writer.close()
        with contextlib.suppress(ConnectionError):
            await writer.wait_closed()


async def test_a_response_that_breaks_off_does_not_look_complete(tmp_path: Path) -> None:
    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n4\r\nhalf\r\n")
        writer.close()

    async with proxied(Upstream(answer), tmp_path) as (gateway, path):
        response = await gateway.pool.request(gateway.data, "GET", f"{path}/x")
        with pytest.raises(NetworkError):
            await response.read()


@pytest.mark.parametrize("reply", [b"", OK + b"\r\n1", b"nonsense\r\n\r\n"])
async def test_an_instance_that_breaks_off_before_its_answer_is_a_bad_gateway(
    tmp_path: Path, reply: bytes
) -> None:
    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(reply)
        writer.close()

    async with proxied(Upstream(answer), tmp_path) as (gateway, path):
        status, body = await gateway.ask("GET", f"{path}/x")
        assert (status, body["error"]) == (502, "tool_server")


async def test_an_instance_that_cannot_be_reached_is_unavailable(tmp_path: Path) -> None:
    upstream = Upstream(replying(b""))
    async with proxied(upstream, tmp_path) as (gateway, path):
        pass
    upstream.create = closed_port  # type: ignore[method-assign]
    async with proxied(upstream, tmp_path / "again") as (gateway, path):
        status, body = await gateway.ask("GET", f"{path}/x")
        assert (status, body["error"]) == (503, "unavailable")


async def closed_port(spec: InstanceSpec) -> Address:
    return Address(Origin("localhost", socket="/nowhere/socket"), 1)


async def test_a_response_that_announces_more_than_the_limit_is_refused(tmp_path: Path) -> None:
    upstream = Upstream(replying(b"HTTP/1.1 200 OK\r\ncontent-length: 2000\r\n\r\n", b"x" * 2000))
    async with proxied(upstream, tmp_path, limit=1000) as (gateway, path):
        status, body = await gateway.ask("GET", f"{path}/x")
        assert (status, body["error"]) == (413, "too_large")
        assert "1000 bytes" in body["message"]


async def test_a_client_that_has_closed_its_side_still_gets_a_quick_answer(tmp_path: Path) -> None:
    async with proxied(Upstream(replying(OK, b"\r\nok")), tmp_path) as (gateway, path):
        reader, writer = await asyncio.open_connection("127.0.0.1", gateway.address.port)
        writer.write(f"GET {path}/x HTTP/1.1\r\nhost: localhost\r\n\r\n".encode())
        writer.write_eof()
        assert (await reader.read()).endswith(b"ok")
        writer.close()
        await writer.wait_closed()


async def test_garbage_is_refused_and_the_gateway_goes_on(tmp_path: Path) -> None:
    async with proxied(Upstream(replying(OK, b"\r\nok")), tmp_path) as (gateway, path):
        for garbage in (
            b"\0\1\2\r\n\r\n",
            b"GET / HTTP/9.9\r\n\r\n",
            b"GET /\xff\xfe HTTP/1.1\r\nhost: a\r\n\r\n",
        ):
            reader, writer = await asyncio.open_connection("127.0.0.1", gateway.address.port)
            writer.write(garbage)
            assert (await reader.read()).startswith(b"HTTP/1.1 400 ")
            writer.close()
            await writer.wait_closed()
        response = await gateway.pool.request(gateway.data, "GET", f"{path}/x")
        assert await response.read() == b"ok"


async def write_all(writer: asyncio.StreamWriter, size: int) -> None:
    for _ in range(size // MEBI):
        writer.write(bytes(MEBI).replace(b"\0", b"x"))
        await writer.drain()


async def test_a_head_without_end_is_refused(tmp_path: Path) -> None:
    async with proxied(Upstream(replying(OK, b"\r\nok")), tmp_path) as (gateway, path):
        _, writer = await asyncio.open_connection("127.0.0.1", gateway.address.port)
        writer.write(f"GET {path}/x HTTP/1.1\r\nx: ".encode())
        with pytest.raises(ConnectionError):
            await write_all(writer, 64 * MEBI)
        with contextlib.suppress(ConnectionError):
            writer.close()
            await writer.wait_closed()


async def test_a_bug_of_ours_is_logged_and_answered(caplog: pytest.LogCaptureFixture) -> None:
    async def broken(scope: object, receive: object, send: object) -> None:
        raise RuntimeError("a bug")

    listener = bind_tcp("127.0.0.1", 0)
    async with serving(broken, [listener]), Pool() as pool:
        response = await pool.request(Origin(*listener.getsockname()), "GET", "/")
        await response.read()
        assert response.status == 500
    assert "RuntimeError: a bug" in caplog.text
