"""A runtime as a child process, ready to be called."""

from __future__ import annotations

import asyncio
import json
import os
import sys
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from aenv.base.addresses import Origin, parse_url
from aenv.base.http1 import Pool, Response


class DidNotStart(Exception):
    """The runtime said that it cannot serve, or ended without a word."""


@dataclass
class Runtime:
    """A running `python -m aenv.main`."""

    url: str
    ready: dict[str, Any]
    process: asyncio.subprocess.Process
    pool: Pool

    @property
    def origin(self) -> Origin:
        return parse_url(self.url)[0]

    async def request(
        self, method: str, path: str, body: bytes = b"", headers: Mapping[str, str] | None = None
    ) -> tuple[Response, bytes]:
        response = await self.pool.request(self.origin, method, path, list((headers or {}).items()), body)
        return response, await response.read()

    async def call(self, method: str, path: str, body: Any = None) -> tuple[int, Any]:
        """Status and decoded JSON of a plain call."""
        payload = b"" if body is None else json.dumps(body).encode()
        response, reply = await self.request(method, path, payload)
        return response.status, json.loads(reply)

    async def rpc(self, method: str, **params: Any) -> dict[str, Any]:
        """The JSON-RPC reply to a bare request: no handshake, no session, no headers."""
        body = {"jsonrpc": "2.0", "id": 1, "method": method, "params": params}
        return (await self.call("POST", "/mcp", body))[1]

    async def tool(self, name: str, **arguments: Any) -> dict[str, Any]:
        """The MCP result of a tool call."""
        return (await self.rpc("tools/call", name=name, arguments=arguments))["result"]


@asynccontextmanager
async def running_runtime(
    path: Path, *options: str, variables: Mapping[str, str] | None = None, python: str = sys.executable
) -> AsyncIterator[Runtime]:
    """Start the runtime on a free port; yield it when it is ready; end it. DidNotStart carries its own words."""
    own, given = _split(options)
    ready_read, ready_write = os.pipe()
    process = await asyncio.create_subprocess_exec(
        python,
        *("-m", "aenv.main", str(path), "--host", "127.0.0.1", "--port", "0"),
        *("--ready-fd", str(ready_write), *own, *given),
        pass_fds=(ready_write,),
        env={**os.environ, **(variables or {})},
        stdin=asyncio.subprocess.DEVNULL,
    )
    os.close(ready_write)
    try:
        with os.fdopen(ready_read, "rb") as pipe:
            line = await asyncio.to_thread(pipe.readline)
        ready = json.loads(line) if line else {"ready": False, "error": "it ended without a ready line"}
        if not ready["ready"]:
            raise DidNotStart(ready["error"])
        async with Pool() as pool:
            yield Runtime(ready["address"], ready, process, pool)
    finally:
        if process.returncode is None:
            process.terminate()
        await process.wait()


def _split(options: tuple[str, ...]) -> tuple[list[str], list[str]]:
    at = options.index("--") if "--" in options else len(options)
    return list(options[:at]), list(options[at:])
