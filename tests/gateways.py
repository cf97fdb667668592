"""Real gateways for tests: in this process, on free ports, with a home folder of their own."""

from __future__ import annotations

import asyncio
import contextlib
import json
import textwrap
import time
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import psutil

from aenv.base import mcp, wire
from aenv.base.addresses import Origin
from aenv.base.http1 import Headers, Pool
from aenv.base.settings import GatewaySettings
from aenv.control.gateway import home as homes
from aenv.control.gateway.gateway_app import GatewayAddress, serve
from aenv.control.gateway.parts import Parts, parts, shared
from aenv.control.instances.catalog import read_folders
from aenv.control.serving import listeners
from aenv.engines.base import Engine

ECHO = '''
import asyncio
import os
import signal
import sys
from pathlib import Path

from aenv import Context, register_function, register_tool


@register_tool
def echo(text: str) -> str:
    """Say it back."""
    return text


@register_tool
def seen() -> dict:
    """What the instance was given."""
    return {"arguments": sys.argv[1:], "variables": dict(os.environ)}


@register_tool
async def hang(pipe: str = "") -> None:
    """Never answer; when cancelled, say so on `pipe`."""
    try:
        await asyncio.Event().wait()
    finally:
        if pipe:
            os.close(os.open(pipe, os.O_WRONLY))


@register_tool
def die() -> None:
    """End like a crash."""
    os.kill(os.getpid(), signal.SIGKILL)


@register_function
def size(text: str) -> int:
    """How long a text is."""
    return len(text)
'''


def make_project(
    folder: Path, name: str = "echo", version: str = "1.0.0", code: str = ECHO, **deploy: Any
) -> Path:
    """A project folder `<folder>/<name>-<version>`."""
    project = folder / f"{name}-{version}"
    (project / "src").mkdir(parents=True)
    config = {"name": name, "version": version, "description": f"the {name} environment", "deployConfig": deploy}
    (project / "config.json").write_text(json.dumps(config))
    (project / "src" / "environment.py").write_text(textwrap.dedent(code))
    return project


class Gateway:
    """A gateway that runs, as a client sees it."""

    def __init__(self, address: GatewayAddress, pool: Pool, home: Path) -> None:
        self.address = address
        self.pool = pool
        self.home = home
        self.control = Origin(address.host, address.port)
        self.data = Origin(address.host, address.data_port)

    async def ask(
        self, method: str, target: str, body: Any = None, headers: Headers = (), origin: Origin | None = None
    ) -> tuple[int, Any]:
        """Status and JSON of a reply, from the control port unless told; a body that is no bytes goes as JSON."""
        content = body if isinstance(body, bytes) else b"" if body is None else mcp.dumps(body)
        response = await self.pool.request(origin or self.control, method, target, headers, content)
        return response.status, mcp.loads(await response.read())

    async def create(self, env_name: str = "echo@1.0.0", id: str | None = None, **body: Any) -> dict[str, Any]:
        """The data of an instance that has just been created."""
        method, target = ("PUT", f"/env-instance/{id}") if id else ("POST", "/env-instance")
        status, reply = await self.ask(method, target, {"envName": env_name, **body})
        assert status == 200, reply
        data: dict[str, Any] = reply["data"]
        return data

    async def call(self, id: str, tool: str, **arguments: Any) -> Any:
        """What a tool says, through the data port."""
        status, reply = await self.ask("POST", f"/instances/{id}/tools/{tool}", arguments, origin=self.data)
        assert status == 200, reply
        text = reply["data"]["content"][0]["text"]
        structured = reply["data"].get("structured")
        return text if structured is None else structured

    def leftovers(self) -> list[str]:
        return leftovers(self.home)


def leftovers(home: Path) -> list[str]:
    """Folders and processes of instances below `home`."""
    folders = [str(path) for path in (home / "run" / "instances").glob("*")]
    return folders + [str(process.pid) for process in instance_processes(home)]


def instance_processes(home: Path) -> list[psutil.Process]:
    return [process for process in psutil.process_iter() if str(home) in _workspace(process)]


def _workspace(process: psutil.Process) -> str:
    try:
        return process.environ().get("AENV_WORKSPACE", "")
    except psutil.Error:
        return ""


def gateway_settings(home: Path, *projects: Path, **settings: Any) -> GatewaySettings:
    """On free ports, with the process engine unless told: most tests are not about isolation."""
    given = {"port": 0, "data_port": 0, "engine": "process", "home": home, "projects": projects, **settings}
    return GatewaySettings(**given)


@contextlib.asynccontextmanager
async def composed(
    home: Path,
    *projects: Path,
    engine: Engine | None = None,
    clock: Callable[[], float] = time.monotonic,
    **settings: Any,
) -> AsyncIterator[Parts]:
    """The parts of a gateway that listens nowhere; they have begun, and are ended at the end."""
    known = gateway_settings(home, *projects, **settings)
    async with (
        shared(known, read_folders(projects, home)) as base,
        homes.opened(home) as own,
        parts(known, base, own, engine=engine, clock=clock) as made,
    ):
        running = asyncio.create_task(made.run())
        try:
            await made.begun()
            yield made
        finally:
            running.cancel()
            await made.close()
            await asyncio.wait({running})


@contextlib.asynccontextmanager
async def listening(made: Parts) -> AsyncIterator[Gateway]:
    """The parts of a gateway, as a client sees them."""
    bound = listeners.bind_tcp
    with bound("127.0.0.1", 0) as control, bound("127.0.0.1", 0) as data:
        address = GatewayAddress("127.0.0.1", control.getsockname()[1], data.getsockname()[1])
        app = made.shared.front.app(made.routes(address.data_port))
        async with listeners.serving(app, [control]), listeners.serving(made.proxy, [data]), Pool() as pool:
            yield Gateway(address, pool, made.settings.home)
            await made.close()  # before the listeners close: streams from instances end only with them


@contextlib.asynccontextmanager
async def running_gateway(home: Path, *projects: Path, **settings: Any) -> AsyncIterator[Gateway]:
    """A gateway with `projects`, stopped while its clients are still connected; then nothing of it is left."""
    known = gateway_settings(home, *projects, **settings)
    ready: asyncio.Future[GatewayAddress] = asyncio.get_running_loop().create_future()
    async with Pool() as pool:
        serving = asyncio.create_task(serve(known, ready.set_result))
        try:
            await asyncio.wait({serving, ready}, return_when=asyncio.FIRST_COMPLETED)
            if serving.done():
                await serving
            yield Gateway(ready.result(), pool, home)
        finally:
            serving.cancel()
            await asyncio.gather(serving, return_exceptions=True)
    assert leftovers(home) == []


def new_id() -> str:
    return wire.new_instance_id("echo")
