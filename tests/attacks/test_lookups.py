"""Names whose server never answers: the instances that ask for them wait, and no others."""

from __future__ import annotations

import asyncio
import socket
import threading
from collections.abc import Iterator
from typing import Any

import pytest

from aenv.isolation.egress import Egress, EgressPolicy
from tests.egress_spaces import PUBLIC, Proxy, Spaces, echo, listener, made, serving, within

HOSTILE = 20  # each of them asks for more names than it has lookups


@pytest.fixture
def spaces() -> Iterator[Spaces]:
    with made() as spaces, within(spaces.host):
        yield spaces


@pytest.fixture
def dead(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[str]]:
    """The resolver of a host with a name server that never answers for `*.dead.example`; tells what was asked."""
    asked: list[str] = []
    answer = threading.Event()

    def getaddrinfo(host: str, port: int, *arguments: Any, **options: Any) -> Any:
        asked.append(host)
        if host.endswith(".dead.example"):
            answer.wait()
            raise socket.gaierror(socket.EAI_AGAIN, "temporary failure in name resolution")
        return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", (PUBLIC, port))]

    monkeypatch.setattr(socket, "getaddrinfo", getaddrinfo)  # in place of a network with such a server
    yield asked
    answer.set()
    for thread in threading.enumerate():
        if thread.name == "lookup":
            thread.join()


async def test_instances_that_ask_a_dead_name_server_hold_up_no_lookup_of_others(
    spaces: Spaces, dead: list[str]
) -> None:
    async with serving(spaces.world, echo), Egress() as egress:
        ports = range(4000, 4000 + HOSTILE)
        for port in ports:
            egress.serve(
                f"hostile-{port}", listener(spaces.neighbour, ("127.0.0.1", port)), EgressPolicy.parse(["*"])
            )
        egress.serve("one", listener(spaces.instance), EgressPolicy.parse(["site.example"]))
        clients = []
        for port in ports:
            for number in range(4):
                with within(spaces.neighbour):
                    client = socket.socket()
                client.connect(("127.0.0.1", port))
                client.sendall(b"CONNECT %d-%d.dead.example:80 HTTP/1.1\r\n\r\n" % (port, number))
                clients.append(client)
        while len(dead) < 2 * HOSTILE:  # two of each instance are under way, for good
            await asyncio.sleep(0)
        for _ in range(5):
            _, writer = await Proxy(spaces, egress).tunnel("site.example:80")
            writer.close()
        assert len([host for host in dead if host.endswith(".dead.example")]) == 2 * HOSTILE
        for client in clients:
            client.close()


async def test_a_name_that_cannot_be_looked_up_ends_nothing_but_its_own_connection(spaces: Spaces) -> None:
    async with Egress() as egress:
        egress.serve("one", listener(spaces.instance), EgressPolicy.parse(["*"]))
        proxy = Proxy(spaces, egress)
        for host in (b"x" * 63 + b"." + b"y" * 63, b"a" * 64, b"xn--a.example", b"\xff.example", b"a..b"):
            answer = await proxy.ask(b"CONNECT %b:80 HTTP/1.1\r\n\r\n" % host)
            assert answer.startswith((b"HTTP/1.1 400 ", b"HTTP/1.1 502 ")), answer
        assert egress.serves("one")
