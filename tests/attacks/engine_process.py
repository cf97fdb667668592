"""A native engine in a process of its own, which does what it is told on its standard input.

    python engine_process.py HOME PROJECT [PRIVATE_FOLDER]

So the same tests hold for an engine of root's and one of an ordinary user. A line of JSON {"number", "do", …} is
answered with {"number", "result"} or {"number", "error", "kind"}; requests may overlap. Not here: its other end
(`engines.py`).
"""

from __future__ import annotations

import asyncio
import dataclasses
import json
import sys
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any

from aenv.base import mcp, wire
from aenv.base.http1 import Pool
from aenv.engines.base import InstanceSpec, Network, ResourceLimits
from aenv.engines.native.engine import NativeEngine
from aenv.isolation.rootfs.host_rootfs import host_root
from aenv.isolation.sandbox import probe
from aenv.isolation.sandbox.rootfs import Rootfs


class Orders:
    """What can be asked: each public method is one request."""

    def __init__(self, engine: NativeEngine, pool: Pool, project: Path) -> None:
        self._engine = engine
        self._pool = pool
        self._project = project
        self._addresses: dict[str, Any] = {}

    async def create(
        self,
        limits: dict[str, Any] | None = None,
        variables: dict[str, str] | None = None,
        network: str = "none",
        hosts: tuple[str, ...] = (),
        project: str = "",
        requirements: str = "",
    ) -> dict[str, Any]:
        """A new instance."""
        id = wire.new_instance_id("attacked")
        spec = InstanceSpec(
            id=id,
            environment="attacked@1.0",
            project=Path(project) if project else self._project,
            environment_variables=variables or {},
            limits=ResourceLimits(**(limits or {})),
            network=Network(network, tuple(hosts)),  # type: ignore[arg-type]
            requirements=Path(requirements) if requirements else None,
        )
        address = self._addresses[id] = await self._engine.create(spec)
        return {"id": id, "pid": address.pid, "not_enforced": address.not_enforced}

    async def call(self, id: str, tool: str, **arguments: Any) -> Any:
        """What a tool says."""
        origin = self._addresses[id].origin
        response = await self._pool.request(origin, "POST", f"/tools/{tool}", (), mcp.dumps(arguments))
        reply = mcp.loads(await response.read())
        if not reply["success"] or reply["data"].get("is_error"):
            raise RuntimeError(str(reply))
        return json.loads(reply["data"]["content"][0]["text"])

    async def exec(self, id: str, command: list[str], timeout: float | None = None) -> dict[str, Any]:
        """How a command ended, and what it said."""
        outputs = [output async for output in self._engine.exec(id, command, timeout=timeout)]
        said = {
            stream: b"".join(output.data for output in outputs if output.stream == stream).decode(errors="replace")
            for stream in ("stdout", "stderr")
        }
        return {"code": outputs[-1].exit_code, **said}

    async def read(self, id: str, path: str) -> str:
        return await _text(self._engine.read(id, path))

    async def put(self, id: str, path: str, text: str) -> int:
        async def content() -> AsyncIterator[bytes]:
            yield text.encode()

        return await self._engine.put(id, path, content())

    async def list(self, id: str, path: str = "") -> list[str]:
        return [entry.path for entry in await self._engine.list(id, path)]

    async def remove(self, id: str, path: str) -> None:
        await self._engine.remove(id, path)

    async def logs(self, id: str) -> int:
        """How long the log is: an attacked one may be large."""
        return len(await _text(self._engine.logs(id)))

    async def log_text(self, id: str) -> str:
        return await _text(self._engine.logs(id))

    async def followed(self, id: str) -> str:
        """The first piece of a log that is followed."""
        return (await anext(self._engine.logs(id, follow=True))).decode(errors="replace")

    async def used(self, id: str) -> dict[str, Any]:
        return dataclasses.asdict((await self._engine.used([id]))[id])

    async def ended(self, id: str) -> str:
        return await self._engine.ended(id)

    async def destroy(self, id: str) -> None:
        await self._engine.destroy(id)
        self._addresses.pop(id, None)

    async def running(self) -> list[str]:
        return [*await self._engine.running()]

    async def checks(self) -> dict[str, list[Any]]:
        return {check.name: [check.ok, check.found, check.fix] for check in probe.checks()}

    async def close(self) -> None:
        for id in await self.running():
            await self._engine.destroy(id)


async def _text(stream: AsyncIterator[bytes]) -> str:
    return b"".join([piece async for piece in stream]).decode(errors="replace")


async def main(home: Path, project: Path, private: Path | None) -> None:
    found = host_root(home)
    # A folder of the system with something in it that is not for everybody.
    system = {**found.system, **({"/opt": (private,)} if private else {})}
    root = Rootfs(found.name, found.layers, system)

    async def root_of(spec: InstanceSpec) -> Rootfs:
        return root

    lines = asyncio.StreamReader(limit=1 << 24)
    loop = asyncio.get_running_loop()
    await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(lines), sys.stdin)
    async with NativeEngine(home, root_of) as engine, Pool() as pool, asyncio.TaskGroup() as tasks:
        orders = Orders(engine, pool, project)
        print(json.dumps({"number": 0, "result": "ready"}), flush=True)
        while line := await lines.readline():
            tasks.create_task(_obey(orders, json.loads(line)))
        await orders.close()


async def _obey(orders: Orders, request: dict[str, Any]) -> None:
    number = request.pop("number")
    do: Callable[..., Awaitable[Any]] = getattr(orders, request.pop("do"))
    try:
        reply = {"number": number, "result": await do(**request)}
    except Exception as error:  # boundary: the test decides what it means
        reply = {"number": number, "error": str(error), "kind": type(error).__name__}
    print(json.dumps(reply), flush=True)


if __name__ == "__main__":
    asyncio.run(main(Path(sys.argv[1]), Path(sys.argv[2]), Path(sys.argv[3]) if len(sys.argv) > 3 else None))
