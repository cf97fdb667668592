"""Warming up: one call through everything, so that what is forked finds it loaded and compiled."""

from __future__ import annotations

import asyncio
import socket
from pathlib import Path

from ...base import mcp
from ..author.decorators import register_tool
from ..author.inject import Context
from ..author.registry import Registry, collecting
from ..runtime import program
from ..runtime.serving import offered, served

_LIST = {"jsonrpc": "2.0", "id": 1, "method": "tools/list", "params": {}}
_CALL = {"jsonrpc": "2.0", "id": 2, "method": "tools/call", "params": {"name": "echo", "arguments": {"text": "x"}}}


def warm() -> None:
    """Serve an environment of our own, and call it. Leaves no thread, no loop and no socket."""
    with asyncio.Runner(loop_factory=program.new_loop) as runner:
        runner.run(one_call())
    asyncio.set_event_loop(None)  # makes what keeps it


async def one_call() -> None:
    """The same, on the running loop."""
    with collecting(Registry()) as registry:

        @register_tool
        async def echo(text: str) -> dict[str, str]:
            """Says the same."""
            return {"text": text}

    context = Context(id="", environment="", workspace=Path("/"), arguments=(), variables={})
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind("")  # a name of the kernel's choice, in a network namespace of our own
        listener.listen()
        address = listener.getsockname()
        async with offered(registry, [], context, timeout=None, name="") as offer, served(offer, listener.dup()):
            client = socket.socket(socket.AF_UNIX)
            client.connect(address)
            reader, writer = await asyncio.open_unix_connection(sock=client)
            for path, message in (("/tools/echo", {"text": "x"}), ("/mcp", _LIST), ("/mcp", _CALL)):
                body = mcp.dumps(message)
                head = (
                    f"POST {path} HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\n"
                    f"accept: application/json, text/event-stream\r\ncontent-length: {len(body)}\r\n\r\n"
                )
                writer.write(head.encode() + body)
                answer = await reader.readuntil(b"\r\n\r\n")
                length = answer.partition(b"content-length: ")[2].partition(b"\r\n")[0]
                await reader.readexactly(int(length))
            writer.close()
            await writer.wait_closed()
