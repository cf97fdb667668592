"""Whether a runtime answers: the published health functions."""

from __future__ import annotations

import time
from typing import Any

from ..base.addresses import parse_url
from ..base.errors import AEnvError
from ..base.http1 import Pool
from ..base.mcp import RpcError
from .session import Session

_TIMEOUT = 10.0
_last_active = time.time()


def update_active_time() -> None:
    """Note that something was used just now."""
    global _last_active
    _last_active = time.time()


async def check_mcp_health(mcp_url: str = "http://localhost:8081/mcp") -> dict[str, Any]:
    """List the tools of the server at `mcp_url`, and say whether that worked."""
    try:
        origin, target = parse_url(mcp_url)
        async with Pool() as pool:
            session = Session(lambda: pool, origin, target.removesuffix("/mcp"), [], _TIMEOUT)
            await session.open()
            tools = (await session.rpc("tools/list", {}))["tools"]
    except (AEnvError, RpcError, TimeoutError) as error:
        return {"status": "error", "message": str(error)}
    return {"status": "success", "message": "MCP server is healthy", "details": {"tool_count": len(tools)}}


async def default_health_handler() -> dict[str, Any]:
    """The health of the runtime on this machine, with the time of its last activity."""
    return {**await check_mcp_health(), "last_active": _last_active}


async def close_health_clients() -> None:
    """Close what health checks hold open. They hold nothing: each closes its own connection."""
