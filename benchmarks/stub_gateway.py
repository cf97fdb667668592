"""A gateway whose engine costs nothing, as a program of its own: what is left is the control plane."""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import signal
from pathlib import Path

import uvloop

from aenv.base.addresses import Origin
from aenv.control.serving import listeners
from aenv.engines.base import Address, InstanceSpec
from tests.gateways import composed

from .processes import PROJECT

_TOOLS = [
    {"name": name, "description": "Say it back.", "inputSchema": {"type": "object", "properties": {}}}
    for name in ("read", "write", "run", "search", "submit")
]


class StubEngine:
    """Says of every instance that it runs. As real engines do, it notices when one ends."""

    name = "stub"
    isolation: tuple[str, ...] = ()

    def __init__(self) -> None:
        self._ended: dict[str, asyncio.Event] = {}

    async def create(self, spec: InstanceSpec) -> Address:
        self._ended[spec.id] = asyncio.Event()
        return Address(Origin("127.0.0.1", 9), os.getpid(), _TOOLS)

    async def destroy(self, id: str) -> None:
        if ended := self._ended.pop(id, None):
            ended.set()

    async def running(self) -> dict[str, Address]:
        return {}

    async def ended(self, id: str) -> str:
        if ended := self._ended.get(id):
            await ended.wait()
        return "it was destroyed"


async def serve(options: argparse.Namespace) -> None:
    """Until SIGTERM."""
    stop = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, stop.set)
    listener = listeners.bind_tcp("127.0.0.1", 0)
    port = listener.getsockname()[1]
    # The rate limit is looked at for each request, and never reached.
    limits = {"max_instances": options.max_instances, "rate_limit": 1e6}
    async with (
        composed(options.home, PROJECT, engine=StubEngine(), store=options.store, **limits) as parts,
        listeners.serving(parts.shared.front.app(parts.routes(port)), [listener]),
    ):
        with os.fdopen(options.ready_fd, "w") as ready:
            ready.write(json.dumps({"url": f"http://127.0.0.1:{port}"}) + "\n")
        await stop.wait()


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--home", type=Path, required=True)
    parser.add_argument("--store", default="")
    parser.add_argument("--max-instances", type=int)
    parser.add_argument("--ready-fd", type=int, required=True)
    uvloop.run(serve(parser.parse_args()))
