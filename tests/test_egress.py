"""The way out of an instance: the proxy, real programs that use it, and those who would like to misuse it."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import os
import select
import socket
import sys
from collections.abc import Iterator

import pytest

from aenv.base.errors import Conflict, InvalidRequest
from aenv.isolation.egress.destinations import Destination, EgressPolicy
from aenv.isolation.egress.exchanges import ProxyRequest, ProxyTunnel
from aenv.isolation.egress.server import Bounds, Egress
from tests.egress_spaces import (
    HOST,
    METADATA,
    NAMES,
    PUBLIC,
    Proxy,
    Spaces,
    echo,
    listener,
    made,
    proxied,
    serving,
    web,
    within,
)


@pytest.fixture(scope="module")
def made_spaces() -> Iterator[Spaces]:
    with made() as spaces:
        yield spaces


@pytest.fixture
def spaces(made_spaces: Spaces) -> Iterator[Spaces]:
    """The test itself, and so the proxy, runs on the host."""
    with within(made_spaces.host):
        yield made_spaces


class TestPrograms:
    async def test_curl_fetches_through_the_proxy_and_through_a_tunnel(self, spaces: Spaces) -> None:
        async with serving(spaces.world, web), proxied(spaces, "site.example:80") as proxy:
            assert "GET /a?b HTTP/1.1\r\nHost: site.example\r\n" in await proxy.run(
                "curl", "-sS", "http://site.example/a?b"
            )
            assert "GET /a?b HTTP/1.1\r\nHost: site.example\r\n" in await proxy.run(
                "curl", "-sS", "--proxytunnel", "http://site.example/a?b"
            )

    async def test_curl_uploads_with_expect_and_in_chunks(self, spaces: Spaces) -> None:
        async def take(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            await reader.readuntil(b"\r\n\r\n")
            writer.write(b"HTTP/1.1 100 Continue\r\n\r\n")
            size = 0
            while not (piece := await reader.readuntil(b"\r\n")).startswith(b"0\r\n"):
                size += len(await reader.readexactly(int(piece, 16) + 2)) - 2
            writer.write(b"HTTP/1.1 200 OK\r\n\r\n%d bytes" % size)

        async with serving(spaces.world, take), proxied(spaces, "site.example") as proxy:
            options = ("-H", "Expect: 100-continue", "-H", "Transfer-Encoding: chunked", "--data-binary", "@-")
            printed = await proxy.run("curl", "-sS", *options, "http://site.example/", stdin=b"x" * 3_000_000)
        assert printed == "3000000 bytes"

    async def test_python_reads_why_it_was_refused(self, spaces: Spaces) -> None:
        code = "import urllib.request; urllib.request.urlopen('https://x.com/')"
        async with proxied(spaces, "site.example") as proxy:
            printed = await proxy.run(sys.executable, "-c", code)
        assert "egress to 'x.com:443' is not allowed; add it to deployConfig.network: " in printed
        assert '{"egress": ["x.com:443"]}' in printed

    async def test_programs_in_the_instance_reach_its_own_servers_without_the_proxy(self, spaces: Spaces) -> None:
        async with serving(spaces.instance, web, "127.0.0.1", 8000), proxied(spaces) as proxy:
            assert "Host: localhost:8000" in await proxy.run("curl", "-sS", "http://localhost:8000/")


class TestRefusals:
    async def test_the_answer_names_the_host_and_the_setting_and_nothing_is_looked_up(
        self, spaces: Spaces
    ) -> None:
        async with proxied(spaces, "site.example:443") as proxy:
            for request in (
                b"CONNECT site.example:80 HTTP/1.1\r\n\r\n",
                b"GET http://Site.Example./ HTTP/1.1\r\n\r\n",
            ):
                head, _, body = (await proxy.ask(request)).decode().partition("\r\n\r\n")
                text = "egress to 'site.example:80' is not allowed; "
                text += 'add it to deployConfig.network: {"egress": ["site.example:80"]}'
                assert head.startswith(f"HTTP/1.1 403 {text}\r\n")
                assert body == f"{text}\n"
            assert proxy.lookups == []

    @pytest.mark.parametrize(
        ("host", "address"),
        [
            ("127.0.0.1", "127.0.0.1"),
            ("127.0.0.2", "0.0.0.0"),
            ("0.0.0.0", "127.0.0.1"),
            ("[::1]", "::1"),
            ("[::ffff:127.0.0.1]", "127.0.0.1"),
            (HOST, "0.0.0.0"),
            ("10.9.0.2", "0.0.0.0"),
            ("[2001:db8:9::1]", "::"),
            ("rebound.example", "127.0.0.1"),
        ],
    )
    async def test_the_host_itself_is_out_of_reach_even_when_named(
        self, spaces: Spaces, host: str, address: str
    ) -> None:
        entries = ["*", "0.0.0.0/0", "::/0", "10.9.0.2", HOST, "127.0.0.1", "[::1]:80", "rebound.example"]
        target = NAMES.get(host, [host.strip("[]")])[0]
        async with serving(spaces.host, echo, address), proxied(spaces, *entries) as proxy:
            with socket.create_connection((target, 80)):  # somebody listens: it is the proxy that refuses
                pass
            for request in (f"CONNECT {host}:80 HTTP/1.1\r\n\r\n", f"GET http://{host}/ HTTP/1.1\r\n\r\n"):
                answer = await proxy.ask(request.encode())
                assert answer.startswith(b"HTTP/1.1 403 egress to ") and b" is never allowed: " in answer

    async def test_the_metadata_service_is_out_of_reach_even_when_named(self, spaces: Spaces) -> None:
        async with serving(spaces.world, web), proxied(spaces, "*", METADATA, "169.254.0.0/16") as proxy:
            with socket.create_connection((METADATA, 80)):
                pass
            assert b" is never allowed: " in await proxy.ask(b"GET http://169.254.169.254/ HTTP/1.1\r\n\r\n")

    async def test_private_addresses_need_an_entry_of_their_own(self, spaces: Spaces) -> None:
        request = b"GET http://db.internal/ HTTP/1.1\r\nConnection: close\r\n\r\n"
        async with serving(spaces.world, web):
            async with proxied(spaces, "*", "*.internal") as proxy:
                assert b"403 egress to 'db.internal:80' is not allowed" in await proxy.ask(request)
                assert b"403 egress to '10.9.0.1:80' is" in await proxy.ask(
                    request.replace(b"db.internal", b"10.9.0.1")
                )
            async with proxied(spaces, "db.internal") as proxy:
                reader, writer = await proxy.connect()
                writer.write(request)
                assert b" 200 OK" in await reader.readline()
                writer.close()

    async def test_a_name_that_changes_its_mind_gains_nothing(self, spaces: Spaces) -> None:
        answers = [[PUBLIC], ["127.0.0.1"], [PUBLIC]]

        class Changing(dict[str, list[str]]):
            def __getitem__(self, name: str) -> list[str]:
                return answers.pop(0)

        async with serving(spaces.world, echo), proxied(spaces, "site.example", names=Changing()) as proxy:
            _, writer = await proxy.tunnel("site.example:80")  # one lookup, and the world answers
            writer.close()
            assert len(answers) == 2
            assert b" is never allowed: " in await proxy.ask(b"CONNECT site.example:80 HTTP/1.1\r\n\r\n")

    async def test_of_several_addresses_only_the_open_ones_are_tried(self, spaces: Spaces) -> None:
        names = {"mixed.example": ["127.0.0.1", METADATA, "::1", PUBLIC]}
        async with (
            serving(spaces.world, echo),
            serving(spaces.host, web, "127.0.0.1"),
            proxied(spaces, "mixed.example", names=names) as proxy,
        ):
            reader, writer = await proxy.tunnel("mixed.example:80")
            writer.write(b"x")
            writer.write_eof()
            assert await reader.read() == b"x[end]"
            writer.close()

    @pytest.mark.parametrize(
        ("request_", "status"),
        [
            (b"CONNECT site.example HTTP/1.1", 400),
            (b"CONNECT site.example:0 HTTP/1.1", 400),
            (b"CONNECT site.example:65616 HTTP/1.1", 400),
            (b"CONNECT site.example:80@evil.example:80 HTTP/1.1", 400),
            (b"CONNECT evil.example:80#@site.example:80 HTTP/1.1", 400),
            (b"CONNECT 127.1:80 HTTP/1.1", 400),
            (b"CONNECT 0x7f000001:80 HTTP/1.1", 400),
            (b"CONNECT 2130706433:80 HTTP/1.1", 400),
            (b"CONNECT [fe80::1%25lo]:80 HTTP/1.1", 400),
            (b"CONNECT *.example:80 HTTP/1.1", 400),
            (b"GET http://site.example@evil.example/ HTTP/1.1", 400),
            (b"GET http://evil.example\\@site.example/ HTTP/1.1", 400),
            (b"GET https://site.example/ HTTP/1.1", 400),
            (b"GET file:///etc/passwd HTTP/1.1", 400),
            (b"GET / HTTP/1.1\r\nHost: site.example", 400),
            (b"GET http://site.example/ HTTP/2.0", 400),
            (b"GET  http://site.example/ HTTP/1.1", 400),
            (b"GET http://site.example/\nX: y HTTP/1.1", 400),
            (b"GET http://site.example/ HTTP/1.1\r\nA: b\nHost: evil.example", 400),
            (b"GET http://site.example/ HTTP/1.1\r\nA: b\r\n folded", 400),
            (b"GET http://site.example/ HTTP/1.1\r\nA : b", 400),
            (b"GET http://site.example/ HTTP/1.1\r\nA: \0", 400),
            (b"POST http://site.example/ HTTP/1.1\r\nContent-Length: 1\r\nTransfer-Encoding: chunked", 400),
            (b"POST http://site.example/ HTTP/1.1\r\nContent-Length: 1\r\nContent-Length: 2", 400),
            (b"POST http://site.example/ HTTP/1.1\r\nContent-Length: +1", 400),
            (b"POST http://site.example/ HTTP/1.1\r\nTransfer-Encoding: gzip, chunked", 400),
            (b"GET http://site.example/ HTTP/1.1\r\nA: " + b"b" * (16 << 10), 431),
            (b"A" * (64 << 10), 431),
            (b"CONNECT site.example:81 HTTP/1.1", 502),
        ],
    )
    async def test_what_cannot_be_served_is_refused(self, spaces: Spaces, request_: bytes, status: int) -> None:
        async with serving(spaces.world, web), proxied(spaces, "site.example") as proxy:
            answer = await proxy.ask(request_ + b"\r\n\r\n")
            assert answer.startswith(b"HTTP/1.1 %d " % status)
            assert b"Connection: close\r\n" in answer

    async def test_a_program_that_is_still_sending_can_read_why(self, spaces: Spaces) -> None:
        async with proxied(spaces) as proxy:
            request = b"POST http://x.com/ HTTP/1.1\r\nContent-Length: 5000000\r\n\r\n"
            code = "import sys, socket; s = socket.create_connection(('127.0.0.1', 3128)); "
            code += "s.sendall(sys.stdin.buffer.read()); print(s.recv(100).decode())"
            printed = await proxy.run(sys.executable, "-c", code, stdin=request + bytes(5_000_000))
        assert "HTTP/1.1 403 egress to 'x.com:80' is not allowed" in printed


class TestBounds:
    async def test_a_head_that_does_not_come_is_not_waited_for(self, spaces: Spaces) -> None:
        async with proxied(spaces, bounds=Bounds(head_timeout=0.05)) as proxy:
            assert (await proxy.ask(b"GET http://site")).startswith(b"HTTP/1.1 408 ")

    async def test_a_server_that_does_not_answer_is_given_up(self, spaces: Spaces) -> None:
        async with proxied(spaces, "void.example", bounds=Bounds(connect_timeout=0.05)) as proxy:
            answer = await proxy.ask(b"CONNECT void.example:80 HTTP/1.1\r\n\r\n")
        assert answer.startswith(b"HTTP/1.1 504 cannot connect to 'void.example:80': it does not answer\r\n")

    async def test_an_idle_tunnel_is_closed(self, spaces: Spaces) -> None:
        async with (
            serving(spaces.world, echo),
            proxied(spaces, "site.example", bounds=Bounds(idle_timeout=0.1)) as proxy,
        ):
            reader, writer = await proxy.tunnel("site.example:80")
            assert await reader.read() == b""
            writer.close()

    async def test_connections_above_the_limit_wait_for_one_to_end(self, spaces: Spaces) -> None:
        async with (
            serving(spaces.world, echo),
            proxied(spaces, "site.example", bounds=Bounds(connections=2)) as proxy,
        ):
            tunnels = [await proxy.tunnel("site.example:80") for _ in range(2)]
            third = asyncio.create_task(proxy.tunnel("site.example:80"))
            for reader, writer in tunnels * 20:
                writer.write(b"x")
                assert await reader.readexactly(1) == b"x"
            assert not third.done() and len(proxy.lookups) == 2
            assert b" 403 " in await proxy.ask(b"CONNECT x.com:1 HTTP/1.1\r\n\r\n", spaces.neighbour)
            tunnels[0][1].close()
            _, writer = await third
            writer.close()
            tunnels[1][1].close()

    @pytest.mark.slow
    @pytest.mark.parametrize("direction", ["up", "down"])
    async def test_what_one_side_does_not_read_the_other_cannot_send(self, spaces: Spaces, direction: str) -> None:
        sent = asyncio.get_running_loop().create_future()

        async def flood(sink: asyncio.StreamWriter) -> None:
            size = 0
            sink.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 1 << 16)
            with contextlib.suppress(TimeoutError):
                while size < 64 << 20:
                    sink.write(bytes(1 << 16))
                    await asyncio.wait_for(sink.drain(), 0.5)  # nothing else tells that it stands still
                    size += 1 << 16
            sent.set_result(size)
            sink.transport.abort()

        async def server(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            if direction == "down":
                await flood(writer)
            else:
                reader._transport.pause_reading()  # type: ignore[attr-defined]
                await sent

        async with serving(spaces.world, server), proxied(spaces, "site.example") as proxy:
            reader, writer = await proxy.tunnel("site.example:80")
            reader._transport.pause_reading()  # type: ignore[attr-defined]
            if direction == "up":
                await flood(writer)
            assert await sent < 32 << 20  # the buffers of four sockets, which the kernel may let grow
            writer.transport.abort()

    async def test_a_flood_through_one_connection_lets_others_run_after_each_piece(self) -> None:
        """There is always something to read and room to write: nothing but the relay itself makes it wait."""
        arrived: list[int] = []

        async def watch(sink: socket.socket, size: int) -> None:
            while not arrived or arrived[-1] < size:
                arrived.append(len(sink.recv(1 << 20, socket.MSG_PEEK)))
                await asyncio.sleep(0)

        with contextlib.ExitStack() as stack:
            ends = [stack.enter_context(end) for _ in range(2) for end in socket.socketpair()]
            for end in ends:
                end.setblocking(False)
            program, client, upstream, server = ends
            server.sendall(bytes(180_000))
            relay = ProxyTunnel(client, upstream, ProxyRequest(Destination("site.example", 80)), 10.0)
            running = asyncio.create_task(relay.run(b""))
            while not select.select([program], [], [], 0)[0]:
                await asyncio.sleep(0)
            await watch(program, 180_000)
            server.close()
            program.close()
            await running
        steps = [after - before for before, after in itertools.pairwise(arrived)]
        assert 0 < max(steps) <= 1 << 16

    async def test_a_lookup_that_was_given_up_keeps_its_place(self, spaces: Spaces) -> None:
        asked: list[str] = []

        async def never(host: str, port: int) -> list[str]:
            asked.append(host)
            await asyncio.get_running_loop().create_future()
            raise AssertionError

        async with Egress(resolve=never, bounds=Bounds(connect_timeout=0.05)) as egress:
            egress.serve("one", listener(spaces.instance), EgressPolicy.parse(["*"]))
            proxy = Proxy(spaces, egress)
            for n in range(4):
                answer = await proxy.ask(b"CONNECT slow%d.example:80 HTTP/1.1\r\n\r\n" % n)
                assert answer.startswith(b"HTTP/1.1 504 ")
            assert asked == ["slow0.example", "slow1.example"]


class TestEnds:
    async def test_stopping_leaves_no_task_and_no_descriptor(self, spaces: Spaces) -> None:
        """Whatever its connections are at: a head, a lookup, a connection, a tunnel, an answer."""
        hanging = asyncio.get_running_loop().create_future()

        async def resolve(host: str, port: int) -> list[str]:
            return NAMES[host] if host in NAMES else await hanging

        async def silent(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            await reader.read()

        async with serving(spaces.world, silent), Egress(resolve=resolve) as egress:
            tasks, descriptors = len(asyncio.all_tasks()), len(os.listdir("/proc/self/fd"))
            egress.serve("one", listener(spaces.instance), EgressPolicy.parse(["*"]))
            proxy = Proxy(spaces, egress)
            clients = [await proxy.tunnel("site.example:80")]
            for request in (
                b"GET http://",
                b"GET http://hanging.example/ HTTP/1.1\r\n\r\n",
                b"CONNECT void.example:80 HTTP/1.1\r\n\r\n",
                b"GET http://site.example/ HTTP/1.1\r\n\r\n",
            ):
                clients.append(await proxy.connect())
                clients[-1][1].write(request)
            assert b" 400 " in await proxy.ask(b"\r\n\r\n")  # by now those before have begun
            await egress.stop("one")
            for reader, writer in clients:
                with contextlib.suppress(ConnectionError):
                    assert await reader.read() == b""
                writer.close()
                with contextlib.suppress(ConnectionError):
                    await writer.wait_closed()
            while len(asyncio.all_tasks()) > tasks:  # the world's: they notice in their own time
                await asyncio.sleep(0)
            assert len(os.listdir("/proc/self/fd")) == descriptors
            await egress.stop("one")  # as often as one likes

    async def test_leaving_ends_everything(self, spaces: Spaces) -> None:
        async with serving(spaces.world, echo):
            async with proxied(spaces, "site.example") as proxy:
                reader, writer = await proxy.tunnel("site.example:80")
            assert await reader.read() == b""
            writer.close()
            with pytest.raises(ConnectionRefusedError):
                await proxy.connect()

    async def test_a_listener_is_closed_even_if_it_was_never_served(self, spaces: Spaces) -> None:
        async with Egress() as egress:
            given = listener(spaces.instance)
            egress.serve("one", given, EgressPolicy())
            await egress.stop("one")
            assert given.fileno() == -1

    async def test_an_instance_that_breaks_its_listener_harms_only_itself(
        self, spaces: Spaces, caplog: pytest.LogCaptureFixture
    ) -> None:
        async with Egress() as egress:
            with listener(spaces.instance) as broken:
                egress.serve("one", broken.dup(), EgressPolicy())
                egress.serve("other", listener(spaces.neighbour), EgressPolicy())
                broken.shutdown(socket.SHUT_RDWR)
                proxy = Proxy(spaces, egress)
                request = b"CONNECT x.com:443 HTTP/1.1\r\n\r\n"
                for _ in range(3):
                    assert b" 403 " in await proxy.ask(request, spaces.neighbour)
                await egress.stop("one")
        assert [record.getMessage() for record in caplog.records if record.levelname == "WARNING"] == [
            "egress ended: [Errno 22] Invalid argument"
        ]

    async def test_an_instance_has_one_way_out(self, spaces: Spaces) -> None:
        async with Egress() as egress:
            egress.serve("one", listener(spaces.instance), EgressPolicy())
            with listener(spaces.neighbour) as second, pytest.raises(Conflict):
                egress.serve("one", second, EgressPolicy())
            with socket.socket() as deaf, pytest.raises(InvalidRequest):
                egress.serve("two", deaf, EgressPolicy())

    async def test_where_programs_go_is_logged_for_debugging_only(
        self, spaces: Spaces, caplog: pytest.LogCaptureFixture
    ) -> None:
        caplog.set_level("DEBUG", "aenv")
        async with serving(spaces.world, echo), proxied(spaces, "site.example") as proxy:
            (await proxy.tunnel("site.example:80"))[1].close()
            await proxy.ask(b"CONNECT x.com:443 HTTP/1.1\r\n\r\n")
        naming = [
            record
            for record in caplog.records
            if "example" in record.getMessage() or "x.com" in record.getMessage()
        ]
        assert len(naming) == 2
        assert {record.levelname for record in naming} == {"DEBUG"}
