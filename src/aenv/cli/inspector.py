"""MCP Inspector, the web page that tries out an MCP server: started through npx, and only when asked for."""

from __future__ import annotations

import asyncio
import shutil
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from ..base import settings
from ..base.child_processes import end
from . import output


@asynccontextmanager
async def running(port: int, mcp_url: str) -> AsyncIterator[None]:
    """The inspector on `port` for the time of the block. It prints a link of its own, with a secret in it."""
    npx = shutil.which("npx")
    if npx is None:
        raise output.Failure("MCP Inspector needs npx, which is not installed", hint="apt-get install npm")
    output.talk(f"inspector: connect to {mcp_url} with the transport 'Streamable HTTP'")
    # The second port is for its proxy, at the distance that it chooses itself: 6274 and 6277.
    ports = {"CLIENT_PORT": str(port), "SERVER_PORT": str(port + 3)}
    process = await asyncio.create_subprocess_exec(
        npx,
        "--yes",
        "@modelcontextprotocol/inspector",
        env={**settings.variables(), **ports},
        stdin=asyncio.subprocess.DEVNULL,
        stdout=sys.stderr,
        start_new_session=True,
    )
    try:
        yield
    finally:
        await end(process)
