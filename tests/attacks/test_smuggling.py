"""Replies that say more than one thing: an answer reaches its own caller, once, and speaks for its instance."""

from __future__ import annotations

import asyncio
import contextlib
from pathlib import Path

import pytest

from tests.gateways import Gateway
from tests.test_proxy_bytes import CHUNKED, OK, Upstream, proxied, replying

FORGED = b"HTTP/1.1 200 OK\r\ncontent-length: 6\r\nx-forged: 1\r\n\r\nforged"


async def exchanged(gateway: Gateway, path: str, method: bytes = b"GET", times: int = 1) -> bytes:
    """All that the gateway sends for so many requests on one connection, the last of which closes it."""
    reader, writer = await asyncio.open_connection(gateway.data.host, gateway.data.port)
    closing = b"connection: close\r\n"
    for number in range(times):
        end = closing if number == times - 1 else b""
        writer.write(b"%b %b/x HTTP/1.1\r\nhost: 127.0.0.1\r\n%b\r\n" % (method, path.encode(), end))
    with contextlib.closing(writer):
        return await reader.read()


SURPLUS = {
    "a second reply": OK + b"\r\nok" + FORGED,
    "the beginning of one": OK + b"\r\nokHTTP/1.1 200",
    "something else": OK + b"\r\nok\0\0\0\0",
    "a body for 204": b"HTTP/1.1 204 No Content\r\ncontent-length: 113\r\n\r\n" + FORGED,
    "a body for 304": b"HTTP/1.1 304 Not Modified\r\ncontent-length: 113\r\n\r\n" + FORGED,
    "a reply behind chunks": b"HTTP/1.1 200 OK\r\n" + CHUNKED + b"2\r\nok\r\n0\r\n\r\n" + FORGED,
}


@pytest.mark.parametrize("what", SURPLUS)
async def test_what_follows_a_reply_is_dropped_with_its_connection(tmp_path: Path, what: str) -> None:
    upstream = Upstream(replying(SURPLUS[what]))
    async with proxied(upstream, tmp_path) as (gateway, path):
        said = await exchanged(gateway, path)
        assert said.count(b"HTTP/1.1 ") == 1, said
        assert b"forged" not in said
        assert said.lower().count(b"content-length") <= 1
        upstream.answer = replying(OK, b"\r\nno")
        assert (await exchanged(gateway, path)).endswith(b"no")


async def test_a_body_for_head_is_dropped(tmp_path: Path) -> None:
    async with proxied(Upstream(replying(OK, b"\r\nok", FORGED)), tmp_path) as (gateway, path):
        said = await exchanged(gateway, path, b"HEAD")
    assert said.startswith(b"HTTP/1.1 200")
    assert said.endswith(b"\r\n\r\n")
    assert said.count(b"HTTP/1.1 ") == 1


AMBIGUOUS = {
    "two lengths": b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\ncontent-length: 3\r\n\r\nok",
    "the same length twice": b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\ncontent-length: 2\r\n\r\nok",
    "a list of lengths": b"HTTP/1.1 200 OK\r\ncontent-length: 2, 2\r\n\r\nok",
    "a signed length": b"HTTP/1.1 200 OK\r\ncontent-length: +2\r\n\r\nok",
    "a length beyond counting": b"HTTP/1.1 200 OK\r\ncontent-length: 99999999999999999999\r\n\r\nok",
    "chunks and a length": OK + CHUNKED + b"2\r\nok\r\n0\r\n\r\n",
    "a length and chunks": b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\ncontent-length: 2\r\n\r\nok",
    "a space before the colon": b"HTTP/1.1 200 OK\r\ncontent-length : 2\r\n\r\nok",
    "a name with a space": OK + b"x y: 1\r\n\r\nok",
    "a value with a zero": OK + b"x: a\0b\r\n\r\nok",
    "a value with a line feed": OK + b"x: a\nset-cookie: b\r\n\r\nok",
    "a value on two lines": OK + b"x: a\r\n b\r\n\r\nok",
    "another protocol": b"HTTP/1.1 101 Switching\r\nupgrade: x\r\nconnection: upgrade\r\n\r\n" + FORGED,
    "another protocol without a name": b"HTTP/1.1 101 Switching\r\n\r\n" + FORGED,
    "status 000": b"HTTP/1.1 000 What\r\ncontent-length: 2\r\n\r\nok",
    "status 999": b"HTTP/1.1 999 What\r\ncontent-length: 2\r\n\r\nok",
    "a head of a megabyte": OK + b"x: " + b"y" * (1 << 20) + b"\r\n\r\nok",
}


@pytest.mark.parametrize("what", AMBIGUOUS)
async def test_a_reply_that_two_readers_could_read_in_two_ways_is_a_bad_gateway(tmp_path: Path, what: str) -> None:
    upstream = Upstream(replying(AMBIGUOUS[what]))
    async with proxied(upstream, tmp_path) as (gateway, path):
        said = await exchanged(gateway, path)
        assert said.startswith(b"HTTP/1.1 502 "), said
        assert said.count(b"HTTP/1.1 ") == 1
        upstream.answer = replying(OK, b"\r\nno")
        assert (await exchanged(gateway, path, times=3)).count(b"\r\n\r\nno") == 3


async def test_what_comes_behind_the_chunks_is_no_header(tmp_path: Path) -> None:
    reply = b"HTTP/1.1 200 OK\r\n" + CHUNKED + b"2\r\nok\r\n0\r\nx-late: 1\r\n\r\n"
    async with proxied(Upstream(replying(reply)), tmp_path) as (gateway, path):
        assert b"x-late" not in await exchanged(gateway, path)


OF_THE_ORIGIN = (
    "AEnvCore-Instance-Token: stolen",
    "aenvcore-anything: 1",
    "Set-Cookie: session=stolen; Path=/",
    "Set-Cookie2: session=stolen",
    "Clear-Site-Data: *",
    'Alt-Svc: h2="evil.example:443"',
    "Strict-Transport-Security: max-age=31536000",
    "Service-Worker-Allowed: /",
    "Report-To: {}",
    "NEL: {}",
)


@pytest.mark.parametrize("by", ["instances", "ports"])
async def test_an_instance_sets_nothing_for_the_gateways_origin(tmp_path: Path, by: str) -> None:
    lines = "".join(f"{line}\r\n" for line in OF_THE_ORIGIN).encode()
    upstream = Upstream(replying(OK, lines, b"x-kept: 1\r\n\r\nok"))
    async with proxied(upstream, tmp_path) as (gateway, path):
        if by == "ports":

            async def port(id: str, port: int) -> object:
                return upstream.origin

            upstream.port = port  # type: ignore[attr-defined]
            path = f"/ports/{upstream.tokens.sign(path.removeprefix('/instances/'), None, port=80, lifetime=60)}"
        said = (await exchanged(gateway, path)).lower()
    assert said.startswith(b"http/1.1 200 "), said
    assert b"x-kept: 1" in said
    for line in OF_THE_ORIGIN:
        assert line.split(":")[0].lower().encode() not in said
