"""Three places for the egress proxy: the host, instances, and the world beyond the host; a namespace each."""

from __future__ import annotations

import asyncio
import contextlib
import os
import socket
import subprocess
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from dataclasses import dataclass, field

import pytest

from aenv.isolation.egress import PORT, VARIABLES, Egress, EgressPolicy
from aenv.isolation.egress.server import Bounds
from aenv.isolation.sandbox import system
from tests.netns import Namespace, namespace

PUBLIC, PRIVATE, METADATA = "203.0.113.10", "10.9.0.1", "169.254.169.254"  # the world's
HOST, VOID = "203.0.113.1", "203.0.113.99"  # the host's own; where nobody answers
NAMES = {
    "site.example": [PUBLIC],
    "db.internal": [PRIVATE],
    "void.example": [VOID],
    "rebound.example": ["127.0.0.1"],
}


@dataclass(frozen=True)
class Spaces:
    host: Namespace
    instance: Namespace
    neighbour: Namespace
    world: Namespace


@contextlib.contextmanager
def made() -> Iterator[Spaces]:
    if os.geteuid() != 0:
        pytest.skip("network namespaces need root")
    with namespace() as host, namespace() as instance, namespace() as neighbour, namespace() as world:
        ip(host, "link add out type veth peer name in netns", world.name)
        for space, link, addresses in (
            (host, "out", (f"{HOST}/24", "10.9.0.2/24", "169.254.0.2/16", "2001:db8:9::1/64")),
            (world, "in", (f"{PUBLIC}/24", f"{PRIVATE}/24", f"{METADATA}/16", "2001:db8:9::10/64")),
        ):
            for address in addresses:
                ip(space, "address add", address, "dev", link, *(["nodad"] if ":" in address else []))
            ip(space, "link set", link, "up")
        ip(host, "neighbour add", VOID, "lladdr 02:00:00:00:00:99 dev out nud permanent")  # lost on the way
        yield Spaces(host, instance, neighbour, world)


@contextlib.contextmanager
def within(space: Namespace) -> Iterator[None]:
    """Sockets that are made here belong to `space` for good."""
    with open("/proc/thread-self/ns/net") as before, open(f"/run/netns/{space.name}") as entered:
        system.setns(entered.fileno(), "network")
        try:
            yield
        finally:
            system.setns(before.fileno(), "network")


def ip(space: Namespace, *words: str) -> None:
    arguments = [word for part in words for word in part.split()]
    subprocess.run(["ip", "-netns", space.name, *arguments], check=True, capture_output=True)


Handler = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]


@dataclass
class Proxy:
    """An instance with a way out, and what its test needs."""

    spaces: Spaces
    egress: Egress
    lookups: list[str] = field(default_factory=list)

    async def connect(self, space: Namespace | None = None) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        with within(space or self.spaces.instance):
            client = socket.socket()
        client.setblocking(False)
        try:
            await asyncio.get_running_loop().sock_connect(client, ("127.0.0.1", PORT))
        except OSError:
            client.close()
            raise
        return await asyncio.open_connection(sock=client)

    async def ask(self, request: bytes, space: Namespace | None = None) -> bytes:
        """All that is answered to these bytes."""
        reader, writer = await self.connect(space)
        with contextlib.closing(writer):
            writer.write(request)
            return await reader.read()

    async def tunnel(self, to: str) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        reader, writer = await self.connect()
        writer.write(f"CONNECT {to} HTTP/1.1\r\n\r\n".encode())
        assert b" 200 " in await reader.readuntil(b"\r\n\r\n")
        return reader, writer

    async def run(self, *command: str, stdin: bytes = b"") -> str:
        """What a program in the instance prints, all it has to say of errors included."""
        process = await asyncio.create_subprocess_exec(
            *self.spaces.instance.command(*command),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            env={**VARIABLES, "PATH": os.defpath},
        )
        printed, _ = await process.communicate(stdin)
        return printed.decode()


@contextlib.asynccontextmanager
async def proxied(
    spaces: Spaces, *entries: str, names: dict[str, list[str]] = NAMES, bounds: Bounds | None = None
) -> AsyncIterator[Proxy]:
    lookups: list[str] = []

    async def resolve(host: str, port: int) -> list[str]:
        lookups.append(host)
        return names[host]

    async with Egress(resolve=resolve, bounds=bounds) as egress:
        for id, space in (("one", spaces.instance), ("other", spaces.neighbour)):
            egress.serve(id, listener(space), EgressPolicy.parse(entries))
        yield Proxy(spaces, egress, lookups)


def listener(space: Namespace, address: tuple[str, int] = ("127.0.0.1", PORT)) -> socket.socket:
    with within(space):
        family = socket.AF_INET6 if ":" in address[0] else socket.AF_INET
        return socket.create_server(address, family=family)


@contextlib.asynccontextmanager
async def serving(
    space: Namespace, handler: Handler, address: str = "0.0.0.0", port: int = 80
) -> AsyncIterator[None]:
    async def handle(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.closing(writer), contextlib.suppress(ConnectionError, asyncio.IncompleteReadError):
            await handler(reader, writer)

    server = await asyncio.start_server(handle, sock=listener(space, (address, port)))
    try:
        yield
    finally:
        server.close()


async def echo(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Sends back all it gets, and says at the end how it has ended."""
    while data := await reader.read(1 << 16):
        writer.write(data)
        await writer.drain()
    writer.write(b"[end]")
    await writer.drain()


async def web(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Answers with the request that it got."""
    head = await reader.readuntil(b"\r\n\r\n")
    length = next(
        (int(line[15:]) for line in head.lower().split(b"\r\n") if line.startswith(b"content-length:")), 0
    )
    body = head + await reader.readexactly(length)
    writer.write(b"HTTP/1.1 200 OK\r\nKeep-Alive: 5\r\nConnection: keep-alive\r\nX-Kept: yes\r\n")
    writer.write(b"Content-Length: %d\r\n\r\n%b" % (len(body), body))
    await writer.drain()
    await reader.read()
