"""What passes through the egress proxy: heads, bodies, ends; all that servers and programs do with them."""

from __future__ import annotations

import asyncio
import contextlib
import fcntl
import os
import socket
import struct
import termios
from collections.abc import Iterator

import pytest
import uvloop

from tests.egress_spaces import Spaces, echo, made, proxied, serving, web, within


@pytest.fixture(scope="module")
def made_spaces() -> Iterator[Spaces]:
    with made() as spaces:
        yield spaces


@pytest.fixture
def spaces(made_spaces: Spaces) -> Iterator[Spaces]:
    """The test itself, and so the proxy, runs on the host."""
    with within(made_spaces.host):
        yield made_spaces


async def test_the_server_is_told_the_host_that_was_judged_and_no_header_of_this_connection(
    spaces: Spaces,
) -> None:
    request = b"POST http://Site.example:80/?q HTTP/1.1\r\nHost: evil.example\r\nProxy-Authorization: secret\r\n"
    request += b"Connection: X-Mine, Content-Length\r\nX-Mine: 1\r\nX-Kept: 2\r\nContent-Length: 4\r\n"
    request += b"Keep-Alive: 5\r\nProxy-Connection: keep-alive\r\nTE: trailers\r\n\r\nbody"
    async with serving(spaces.world, web), proxied(spaces, "site.example") as proxy:
        reader, writer = await proxy.connect()
        writer.write(request)
        received = b"POST /?q HTTP/1.1\r\nHost: site.example\r\nX-Kept: 2\r\nContent-Length: 4\r\n"
        received += b"Connection: close\r\n\r\nbody"
        answer = b"HTTP/1.1 200 OK\r\nX-Kept: yes\r\nContent-Length: %d\r\n" % len(received)
        answer += b"Connection: close\r\n\r\n" + received
        assert await reader.readexactly(len(answer)) == answer
        writer.close()


async def test_a_second_request_on_a_connection_is_not_passed_on(spaces: Spaces) -> None:
    one = b"GET http://site.example/first HTTP/1.1\r\n\r\n"
    two = b"GET http://evil.example/second HTTP/1.1\r\nCookie: secret\r\n\r\n"

    async def all_of_it(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = await reader.readuntil(b"\r\n\r\n")
        writer.write(b"HTTP/1.1 200 OK\r\n\r\n")
        await writer.drain()
        with contextlib.suppress(TimeoutError):
            head += await asyncio.wait_for(reader.read(1 << 16), 0.2)  # nothing must come
        writer.write(head)

    async with serving(spaces.world, all_of_it), proxied(spaces, "site.example") as proxy:
        answer = await proxy.ask(one + two)
    assert b"/first" in answer and b"secret" not in answer and b"second" not in answer


async def test_an_answer_before_the_end_of_the_body_arrives_whole(spaces: Spaces) -> None:
    answer = b"HTTP/1.1 413 Too Large\r\nContent-Length: 250000\r\nConnection: close\r\n\r\n" + bytes(250_000)
    is_broken = asyncio.Event()

    async def refuse(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(answer)
        connection = writer.get_extra_info("socket")
        while writer.transport.get_write_buffer_size() or fcntl.ioctl(
            connection, termios.TIOCOUTQ, bytes(4)
        ) != bytes(4):
            await asyncio.sleep(0)  # until the kernel of the host has it all
        writer.transport.abort()  # with most of the body unread: a reset
        is_broken.set()

    async with serving(spaces.world, refuse), proxied(spaces, "site.example") as proxy:
        reader, writer = await proxy.connect()
        writer.write(b"POST http://site.example/ HTTP/1.1\r\nContent-Length: 90000000\r\n\r\n")
        writer.write(bytes(90_000_000))
        writer.transport.pause_reading()  # type: ignore[attr-defined]
        await is_broken.wait()
        writer.transport.resume_reading()  # type: ignore[attr-defined]
        assert await reader.readexactly(len(answer)) == answer
        writer.transport.abort()


async def test_an_answer_that_breaks_off_does_not_look_complete(spaces: Spaces) -> None:
    async def break_off(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(b"HTTP/1.1 200 OK\r\n\r\nthe first ha")
        await reader.readexactly(1)  # by which the client says that it has read that
        linger = struct.pack("ii", 1, 0)
        writer.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, linger)

    async with serving(spaces.world, break_off), proxied(spaces, "site.example") as proxy:
        reader, writer = await proxy.connect()
        writer.write(b"POST http://site.example/ HTTP/1.1\r\nContent-Length: 1\r\n\r\n")
        await reader.readuntil(b"ha")
        writer.write(b"x")
        writer.write_eof()
        with pytest.raises(ConnectionResetError):
            await reader.read()
        writer.close()


async def test_announcements_before_an_answer_are_passed_on(spaces: Spaces) -> None:
    async def announce(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 103 Early Hints\r\nLink: x\r\n\r\n")
        writer.write(b"HTTP/1.0 200 OK\r\nKeep-Alive: 5\r\n\r\nbody")

    async with serving(spaces.world, announce), proxied(spaces, "site.example") as proxy:
        assert await proxy.ask(b"GET http://site.example/ HTTP/1.1\r\n\r\n") == (
            b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 103 Early Hints\r\nLink: x\r\n\r\n"
            b"HTTP/1.0 200 OK\r\nConnection: close\r\n\r\nbody"
        )


async def test_a_server_that_does_not_speak_http_is_reported(spaces: Spaces) -> None:
    async def rude(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"220 mail.example ESMTP\r\n\r\n")

    async with serving(spaces.world, rude), proxied(spaces, "site.example") as proxy:
        answer = await proxy.ask(b"GET http://site.example/ HTTP/1.1\r\n\r\n")
    assert answer.startswith(b"HTTP/1.1 502 'site.example:80' did not answer in HTTP\r\n")


async def test_a_tunnel_carries_bytes_both_ways_and_each_end_on_its_own(spaces: Spaces) -> None:
    async with serving(spaces.world, echo), proxied(spaces, "site.example") as proxy:
        reader, writer = await proxy.connect()
        writer.write(b"CONNECT site.example:80 HTTP/1.1\r\n\r\nearly ")  # not waiting for the answer
        assert b" 200 " in await reader.readuntil(b"\r\n\r\n")
        assert await reader.readexactly(6) == b"early "
        large = os.urandom(1 << 20)
        writer.write(large)
        assert await reader.readexactly(len(large)) == large
        writer.write_eof()
        assert await reader.read() == b"[end]"  # sent after our end had arrived there
        writer.close()


@pytest.mark.slow
async def test_a_tunnel_to_an_ipv6_address_works(spaces: Spaces) -> None:
    async with serving(spaces.world, echo, "::"), proxied(spaces, "2001:db8:9::/64") as proxy:
        reader, writer = await proxy.tunnel("[2001:db8:9::10]:80")
        writer.write(b"six")
        assert await reader.readexactly(3) == b"six"
        writer.close()


def test_it_works_on_the_loop_that_the_gateway_runs_on(spaces: Spaces) -> None:
    async def fetch() -> None:
        async with serving(spaces.world, echo), proxied(spaces, "site.example") as proxy:
            reader, writer = await proxy.tunnel("site.example:80")
            writer.write(b"x" * 1_000_000)
            writer.write_eof()
            assert await reader.read() == b"x" * 1_000_000 + b"[end]"
            writer.close()
            assert b" 403 " in await proxy.ask(b"GET http://x.com/ HTTP/1.1\r\n\r\n")

    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(fetch())
