"""The HTTP client: connections kept, dropped, refused, and bodies streamed."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import asynccontextmanager

import pytest

from aenv.base.addresses import Origin, parse_url
from aenv.base.errors import ConnectFailed, InvalidRequest, NetworkError, TooLarge
from aenv.base.http1 import Pool

Talk = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]

OK = b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok"


@asynccontextmanager
async def server(talk: Talk):
    """A raw server that does exactly what `talk` does; yields its origin and how many clients came."""
    clients: list[asyncio.StreamWriter] = []

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        clients.append(writer)
        try:
            await talk(reader, writer)
        except (ConnectionError, asyncio.IncompleteReadError):
            pass
        finally:
            writer.close()

    listening = await asyncio.start_server(serve, "127.0.0.1", 0)
    try:
        yield Origin("127.0.0.1", listening.sockets[0].getsockname()[1]), clients
    finally:
        listening.close()
        for client in clients:
            client.close()


async def answer_each(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    while True:
        head = await reader.readuntil(b"\r\n\r\n")
        length = next((int(line[15:]) for line in head.split(b"\r\n") if line.startswith(b"content-length:")), 0)
        await reader.readexactly(length)
        writer.write(OK)


async def test_one_connection_serves_requests_that_follow_each_other():
    async with server(answer_each) as (origin, clients), Pool() as pool:
        for _ in range(5):
            response = await pool.request(origin, "POST", "/", (), b"body")
            assert (response.status, await response.read()) == (200, b"ok")
    assert len(clients) == 1


async def test_requests_at_once_get_a_connection_each():
    async with server(answer_each) as (origin, clients), Pool() as pool:
        responses = await asyncio.gather(*(pool.request(origin, "GET", "/") for _ in range(4)))
        assert [await response.read() for response in responses] == [b"ok"] * 4
    assert len(clients) == 4


async def test_a_connection_that_the_server_closed_meanwhile_is_not_used_again():
    async def answer_once(reader, writer):
        await reader.readuntil(b"\r\n\r\n")
        writer.write(OK)
        await writer.drain()

    async with server(answer_once) as (origin, clients), Pool() as pool:
        for _ in range(3):
            # Nothing turns the loop between two requests, as in a program that computes meanwhile.
            response = await pool.request(origin, "GET", "/")
            assert await response.read() == b"ok"
            await clients[-1].wait_closed()
    assert len(clients) == 3


async def test_a_refused_connection_says_that_nothing_was_sent(unused_tcp_port):
    async with Pool() as pool:
        with pytest.raises(ConnectFailed, match=f"cannot connect to http://127.0.0.1:{unused_tcp_port}"):
            await pool.request(Origin("127.0.0.1", unused_tcp_port), "GET", "/")


async def test_a_connection_cut_before_the_answer_is_a_network_error():
    async def hang_up(reader, writer):
        await reader.readuntil(b"\r\n\r\n")

    async with server(hang_up) as (origin, _), Pool() as pool:
        with pytest.raises(NetworkError, match="closed the connection before it had answered"):
            await pool.request(origin, "GET", "/")


async def test_a_body_cut_in_the_middle_is_a_network_error():
    async def half(reader, writer):
        await reader.readuntil(b"\r\n\r\n")
        writer.write(b"HTTP/1.1 200 OK\r\ncontent-length: 10\r\n\r\nhalf")

    async with server(half) as (origin, _), Pool() as pool:
        response = await pool.request(origin, "GET", "/")
        with pytest.raises(NetworkError, match="closed the connection"):
            await response.read()


async def test_a_body_without_length_ends_with_the_connection():
    async def stream(reader, writer):
        await reader.readuntil(b"\r\n\r\n")
        writer.write(b"HTTP/1.1 200 OK\r\n\r\nall of it")

    async with server(stream) as (origin, _), Pool() as pool:
        assert await (await pool.request(origin, "GET", "/")).read() == b"all of it"


async def test_something_that_is_not_http_is_a_network_error():
    async def nonsense(reader, writer):
        await reader.readuntil(b"\r\n\r\n")
        writer.write(b"220 smtp ready\r\n")
        await writer.drain()
        await reader.read()

    async with server(nonsense) as (origin, _), Pool() as pool:
        with pytest.raises(NetworkError, match="not HTTP"):
            await pool.request(origin, "GET", "/")


async def test_chunks_arrive_as_they_are_sent_and_leaving_early_hangs_up():
    gone = asyncio.Event()

    async def stream(reader, writer):
        await reader.readuntil(b"\r\n\r\n")
        writer.write(b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n5\r\nfirst\r\n")
        await reader.read()
        gone.set()

    async with server(stream) as (origin, _), Pool() as pool:
        response = await pool.request(origin, "GET", "/")
        async for chunk in response:
            assert chunk == b"first"
            break
        response.close()
        await gone.wait()


async def test_a_cancelled_request_hangs_up():
    asked, gone = asyncio.Event(), asyncio.Event()

    async def never(reader, writer):
        await reader.readuntil(b"\r\n\r\n")
        asked.set()
        await reader.read()
        gone.set()

    async with server(never) as (origin, _), Pool() as pool:
        request = asyncio.ensure_future(pool.request(origin, "GET", "/"))
        await asked.wait()
        request.cancel()
        with pytest.raises(asyncio.CancelledError):
            await request
        await gone.wait()


async def test_a_body_of_unknown_length_is_sent_in_chunks():
    received = bytearray()

    async def collect(reader, writer):
        received.extend(await reader.readuntil(b"0\r\n\r\n"))
        writer.write(OK)
        await reader.read()

    async def parts():
        yield b"one"
        yield b""
        yield b"three"

    async with server(collect) as (origin, _), Pool() as pool:
        await (await pool.request(origin, "PUT", "/", (), parts())).read()
    assert received.endswith(b"transfer-encoding: chunked\r\n\r\n3\r\none\r\n5\r\nthree\r\n0\r\n\r\n")


async def test_an_answer_before_the_end_of_a_stalled_upload_is_heard():
    async def refuse(reader, writer):
        await reader.readuntil(b"\r\n\r\n")
        writer.write(b"HTTP/1.1 413 Too Large\r\ncontent-length: 0\r\n\r\n")
        await reader.read()

    async def stalled():
        yield b"begin"
        await asyncio.Event().wait()

    async with server(refuse) as (origin, clients), Pool() as pool:
        response = await pool.request(origin, "PUT", "/", (), stalled())
        assert (response.status, await response.read()) == (413, b"")
        # The rest of the body was never sent, so this connection is of no use any more.
        await (await pool.request(origin, "GET", "/")).read()
    assert len(clients) == 2


async def test_an_upload_that_fails_says_why_and_hangs_up():
    async def wait(reader, writer):
        await reader.read()

    async def broken():
        yield b"begin"
        raise OSError("disk")

    async with server(wait) as (origin, _), Pool() as pool:
        with pytest.raises(OSError, match="disk"):
            await pool.request(origin, "PUT", "/", (), broken())


async def test_a_response_above_the_limit_is_refused():
    async with server(answer_each) as (origin, _), Pool() as pool:
        with pytest.raises(TooLarge, match="larger than 1 bytes"):
            await (await pool.request(origin, "GET", "/")).read(limit=1)


@pytest.mark.parametrize("pair", [(b"x", b"a\r\ny: z"), (b"x", b"a\nb"), (b"x\r", b"a"), (b"x", b"a\0b")])
async def test_a_forwarded_header_cannot_smuggle_another(pair):
    async with server(answer_each) as (origin, _), Pool() as pool:
        with pytest.raises(InvalidRequest, match="header"):
            await pool.request(origin, "GET", "/", (), b"", [(b"y", b"1"), pair])


@pytest.mark.parametrize("value", ["a\r\nx: y", "a\nb", "a\rb", "a\0b", "☃"])
async def test_a_header_cannot_smuggle_another(value):
    async with server(answer_each) as (origin, _), Pool() as pool:
        with pytest.raises(InvalidRequest, match="header"):
            await pool.request(origin, "GET", "/", [("x", value)])


async def test_a_head_request_has_no_body():
    async def head_only(reader, writer):
        await reader.readuntil(b"\r\n\r\n")
        writer.write(b"HTTP/1.1 200 OK\r\ncontent-length: 1000\r\n\r\n")
        await reader.read()

    async with server(head_only) as (origin, _), Pool() as pool:
        response = await pool.request(origin, "HEAD", "/")
        assert (response.status, await response.read()) == (200, b"")


@pytest.mark.parametrize(
    ("url", "origin", "target"),
    [
        ("http://h", Origin("h", 80), "/"),
        ("https://h/x?y=1", Origin("h", 443, True), "/x?y=1"),
        ("http://[::1]:81/", Origin("::1", 81), "/"),
    ],
)
def test_urls_are_split_into_origin_and_target(url, origin, target):
    assert parse_url(url) == (origin, target)


@pytest.mark.parametrize("url", ["ftp://h", "h:80", "http://", "http://h:x"])
def test_a_bad_url_is_refused(url):
    with pytest.raises(InvalidRequest, match="bad URL"):
        parse_url(url)


def test_the_authority_names_the_port_only_when_it_is_unusual():
    assert Origin("h", 80).authority == "h"
    assert Origin("::1", 8081).authority == "[::1]:8081"
    assert Origin("h", 443, True).authority == "h"
