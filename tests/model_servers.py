"""A server that speaks chat completions, for tests of what asks a model."""

from __future__ import annotations

import asyncio
import json
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

Reply = dict[str, Any] | tuple[int, str]


def called(name: str, arguments: str, id: str = "1") -> dict[str, Any]:
    return {"tool_calls": [{"id": id, "type": "function", "function": {"name": name, "arguments": arguments}}]}


class ScriptedModel:
    """A server that gives its replies in order, and remembers what it was asked."""

    def __init__(self, replies: list[Reply]) -> None:
        self.replies = replies
        self.asked: list[dict[str, Any]] = []
        self.headers: list[str] = []
        self.url = ""

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while True:
                head = (await reader.readuntil(b"\r\n\r\n")).decode()
                length = next(int(x[16:]) for x in head.lower().splitlines() if x.startswith("content-length: "))
                self.headers.append(head)
                self.asked.append(json.loads(await reader.readexactly(length)))
                reply = self.replies.pop(0)
                status, body = reply if isinstance(reply, tuple) else (200, json.dumps(_completion(reply)))
                extra = "retry-after: 0\r\n" if status == 429 else ""
                content = body.encode()
                writer.write(
                    f"HTTP/1.1 {status} X\r\n{extra}content-length: {len(content)}\r\n\r\n".encode() + content
                )
        except (asyncio.IncompleteReadError, ConnectionError):
            pass
        finally:
            writer.close()


def _completion(message: dict[str, Any]) -> dict[str, Any]:
    usage = {"prompt_tokens": 100, "completion_tokens": 10}
    return {"choices": [{"message": {"role": "assistant", "content": None, **message}}], "usage": usage}


@asynccontextmanager
async def model(*replies: Reply, tls: ssl.SSLContext | None = None) -> AsyncIterator[ScriptedModel]:
    made = ScriptedModel(list(replies))
    server = await asyncio.start_server(made.serve, "127.0.0.1", 0, ssl=tls)
    port = server.sockets[0].getsockname()[1]
    made.url = f"https://localhost:{port}/v1" if tls else f"http://127.0.0.1:{port}/v1"
    async with server:
        yield made
