"""MCP Inspector, the web page that tries out an MCP server: started through npx, and only when asked for."""

from __future__ import annotations

import asyncio
import re
import shutil
from asyncio.subprocess import DEVNULL, PIPE, STDOUT
from collections import deque
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from ..base import settings
from ..base.child_processes import end
from . import output

PACKAGE = "@modelcontextprotocol/inspector@2"
_LINK = re.compile(r"https?://\S+[?&]\w*TOKEN=\w+")
_KEPT = 20  # lines of what it says, for the reason of an early end
_LONGEST_LINE = 1 << 20


@asynccontextmanager
async def running(port: int, mcp_url: str) -> AsyncIterator[None]:
    """The inspector on `port` of loopback for the time of the block. Its link, with a secret in it, is printed.

    Where it does not start, one line says why, and the block goes on without it.
    """
    npx = shutil.which("npx")
    if npx is None:
        raise output.Failure("MCP Inspector needs npx, which is not installed", hint="apt-get install npm")
    output.talk("inspector  starting; the first time npx fetches it")
    # The second port is for the frames of MCP apps, at the distance that it chooses itself: 6274 and 6277.
    own = {"HOST": "127.0.0.1", "CLIENT_PORT": str(port), "SERVER_PORT": str(port + 3)}
    asked = ("--web", "--transport", "http", "--server-url", mcp_url)
    process = await asyncio.create_subprocess_exec(
        *(npx, "--yes", "--prefer-offline", PACKAGE, *asked),
        env={**settings.variables(), **own},
        stdin=DEVNULL,
        stdout=PIPE,
        stderr=STDOUT,
        start_new_session=True,
        limit=_LONGEST_LINE,
    )
    told = asyncio.create_task(_tell(process))
    try:
        yield
    finally:
        told.cancel()
        await asyncio.gather(told, return_exceptions=True)
        await end(process)


async def _tell(process: asyncio.subprocess.Process) -> None:
    """Say its link, or why it has ended. What else it says is read, so that it can go on, and left out."""
    assert process.stdout
    last: deque[str] = deque(maxlen=_KEPT)
    is_open = False
    async for raw in process.stdout:
        line = output.plain(raw.decode(errors="replace")).strip()
        found = None if is_open else _LINK.search(line)
        if found:
            is_open = True
            output.talk(f"inspector  {found[0]}")
        elif line:
            last.append(line)
    code = await process.wait()
    output.talk(f"inspector  ended with exit code {code}{_why(last)}; the environment is served without it")


def _why(lines: deque[str]) -> str:
    """The line that tells the reason: npm begins with a code, and ends with where its log is."""
    errors = [line.removeprefix("npm error ") for line in lines if line.startswith("npm error ")]
    reasons = [line for line in errors if not line.startswith(("code ", "errno ", "syscall ", "A complete log"))]
    said = reasons[:1] or list(lines)[-1:]
    return f": {said[0]}" if said else ""
