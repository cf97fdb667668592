"""Whether an image that starts by itself answers already, and what it offers: asked over HTTP, as clients do.

It may hold any runtime that speaks the published protocol, so nothing but that is expected of it.
"""

from __future__ import annotations

import asyncio
from typing import Any

from ...base import mcp
from ...base.addresses import Origin
from ...base.errors import AEnvError, StartFailed
from ...base.http1 import Pool
from ...isolation.sandbox import protocol

_RETRY = 0.02  # seconds: the container runs, and listens at any moment
_MAX_BYTES = protocol.MAX_READY_BYTES


async def first_answer(origin: Origin) -> None:
    """Return when `/health` answers with a success."""
    async with Pool() as pool:
        while True:
            try:
                response = await pool.request(origin, "GET", "/health", [("connection", "close")])
                await response.read(_MAX_BYTES)
                if response.status == 200:
                    return
            except (AEnvError, OSError):
                pass  # nothing listens yet, or it ends a connection that it cannot serve yet
            await asyncio.sleep(_RETRY)


async def tools_of(origin: Origin) -> list[dict[str, Any]]:
    """The tools, as `tools/list` tells them. StartFailed when its answer is not one."""
    head = [
        ("content-type", "application/json"),
        ("accept", "application/json, text/event-stream"),
        ("connection", "close"),
    ]
    body = mcp.dumps({"jsonrpc": "2.0", "id": 1, "method": "tools/list", "params": {}})
    async with Pool() as pool:
        response = await pool.request(origin, "POST", "/mcp", head, body)
        text = await response.read(_MAX_BYTES)
    if text.startswith(b"event:") or b"\ndata:" in text:
        text = next((line[5:] for line in text.splitlines() if line.startswith(b"data:")), b"")
    try:
        tools = mcp.loads(text)["result"]["tools"]
        said = protocol.ready(mcp.dumps({"ready": True, "tools": tools}))
    except (ValueError, KeyError, TypeError, protocol.Broken) as error:
        raise StartFailed(f"the tools of its image cannot be listed: {error}") from None
    assert isinstance(said, protocol.Ready)
    return said.tools
