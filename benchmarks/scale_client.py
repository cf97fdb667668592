"""A client process of `scripts/bench scale`: calls an instance, or makes instances, and says how long each took.

`python -m benchmarks.scale_client calls|creates CONTROL_URL DATA_URL ID SECONDS AT_ONCE`
"""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import Awaitable, Callable
from time import perf_counter

from aenv.base import mcp, wire
from aenv.base.addresses import Origin, parse_url
from aenv.base.http1 import Pool

NAME = "portable@1.0.0"
BODY = mcp.dumps(
    {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": {"name": "echo", "arguments": {"text": "hello"}}}
)
HEADERS = (
    ("content-type", "application/json"),
    ("accept", "application/json, text/event-stream"),
    ("mcp-method", "tools/call"),
    ("mcp-name", "echo"),
    ("mcp-protocol-version", "2025-06-18"),
)


async def call(pool: Pool, data: Origin, path: str) -> None:
    response = await pool.request(data, "POST", path, HEADERS, BODY)
    reply = await response.read()
    assert (response.status, b"hello" in reply) == (200, True), (response.status, reply)


async def create(pool: Pool, control: Origin) -> None:
    """Create, and delete."""
    id = wire.new_instance_id("portable")
    for method, body in (("PUT", mcp.dumps({"envName": NAME})), ("DELETE", b"")):
        response = await pool.request(control, method, f"/env-instance/{id}", (), body)
        reply = await response.read()
        assert response.status == 200, (response.status, reply)


async def repeat(work: Callable[[], Awaitable[None]], seconds: float, at_once: int) -> list[float]:
    """How long each took."""
    took: list[float] = []
    end = perf_counter() + seconds

    async def one() -> None:
        while (begin := perf_counter()) < end:
            await work()
            took.append(perf_counter() - begin)

    await asyncio.gather(*(one() for _ in range(at_once)))
    return took


async def main(what: str, control: str, data: str, id: str, seconds: float, at_once: int) -> None:
    path = f"/instances/{id}/mcp" if id else "/mcp"  # without an id: a runtime, directly
    async with Pool() as pool:
        origins = parse_url(control)[0], parse_url(data)[0]
        work = (lambda: call(pool, origins[1], path)) if what == "calls" else (lambda: create(pool, origins[0]))
        await work()
        took = await repeat(work, seconds, at_once)
    print(json.dumps(took))


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:5], float(sys.argv[5]), int(sys.argv[6])))
