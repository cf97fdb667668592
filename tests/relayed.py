"""Instances that run any code they are told, and the relays to them."""

from __future__ import annotations

import asyncio
import contextlib
import os
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from aenv.base.addresses import Origin
from aenv.base.http1 import Pool
from aenv.engines import proc
from aenv.engines.base import Address
from aenv.engines.folder import InstanceFolder
from aenv.engines.native.engine import NativeEngine
from aenv.engines.native.relays import Relays
from aenv.isolation.rootfs.host_rootfs import host_root
from conformance.engine import Projects, call
from tests.native import traces

CODE = '''
import socket
import threading

from aenv import register_tool

servers = {}


def serve(talk, host="127.0.0.1", port=0):
    """Listen, and talk to each who comes in a thread of its own; returns the port."""
    server = socket.create_server((host, port))
    port = server.getsockname()[1]
    servers[port] = server

    def accept():
        while True:
            client, _ = server.accept()
            threading.Thread(target=talk, args=(client,), daemon=True).start()

    threading.Thread(target=accept, daemon=True).start()
    return port


def echo(client):
    with client:
        while data := client.recv(65536):
            client.sendall(data)
        client.sendall(b"[end]")


@register_tool
def run(code: str) -> dict:
    """Run it; what it leaves in `result` is returned."""
    names = globals()
    exec(code, names)
    return {"value": names.get("result")}
'''


@dataclass
class Instance:
    """An instance that runs any code, and the relays to it."""

    engine: NativeEngine
    folder: InstanceFolder
    leader: proc.Process
    relays: Relays
    pool: Pool
    address: Address

    async def run(self, code: str) -> Any:
        return (await call(self.pool, self.address, "run", code=code))["value"]

    async def result(self, expression: str) -> Any:
        return await self.run(f"result = {expression}")

    async def port(self, port: int) -> Origin | None:
        return await self.relays.origin(self.folder, self.leader, port)

    async def connect(self, port: int) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        return await connect(await self.port(port))


Make = Callable[..., Any]


@contextlib.asynccontextmanager
async def relayed(folder: Path) -> AsyncIterator[Make]:
    """`await make(idle=…, …)` gives an instance; nothing of it is left at the end."""
    home = folder / "home"
    projects = Projects(folder / "projects")
    root = host_root(home)

    async def root_of(_: object) -> Any:
        return root

    async with contextlib.AsyncExitStack() as stack:
        engine = await stack.enter_async_context(NativeEngine(home, root_of))
        pool = await stack.enter_async_context(Pool())

        async def make(*, idle: float = 60.0, **changes: Any) -> Instance:
            spec = projects.spec(CODE, **changes)
            address = await engine.create(spec)
            stack.push_async_callback(engine.destroy, spec.id)
            relays = Relays(idle=idle)
            stack.push_async_callback(relays.close)
            folder = InstanceFolder(home / "run" / "instances", spec.id)
            leader = folder.leader()
            assert leader
            return Instance(engine, folder, leader, relays, pool, address)

        yield make
    assert traces(home) == []
    assert relays() == []


async def connect(origin: Origin | None) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    assert origin is not None
    assert origin.socket is not None
    return await asyncio.open_unix_connection(origin.socket)


async def close(writer: asyncio.StreamWriter) -> None:
    writer.close()
    with contextlib.suppress(ConnectionError):
        await writer.wait_closed()


async def answer(origin: Origin | None, said: bytes) -> bytes:
    reader, writer = await connect(origin)
    writer.write(said)
    writer.write_eof()
    answered = await reader.read()
    await close(writer)
    return answered


def children(pid: int, module: str) -> list[int]:
    """The children of a process that run this program."""
    own = map(int, Path(f"/proc/{pid}/task/{pid}/children").read_text().split())
    return [child for child in own if module.encode() in Path(f"/proc/{child}/cmdline").read_bytes()]


def relays(pid: int | None = None) -> list[int]:
    return children(pid or os.getpid(), "aenv.isolation.sandbox.relay")


def same(one: object, other: object, kind: str) -> bool:
    return os.readlink(f"/proc/{one}/ns/{kind}") == os.readlink(f"/proc/{other}/ns/{kind}")


async def until(condition: Callable[[], bool]) -> None:
    while not condition():
        await asyncio.sleep(0.005)
