"""A model's server of which a test says every byte: whole replies, streams that wait, connections that break."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

from aenv.base.addresses import parse_url
from aenv.base.http1 import Pool


@dataclass
class Streamed:
    """Server-sent events, one write each; `until` is waited for before the last one, and `broken` ends without."""

    events: list[Any]
    until: asyncio.Event | None = None
    broken: bool = False


class Silent:
    """No answer at all; `gone` is set when the client has closed its connection."""

    def __init__(self) -> None:
        self.asked, self.gone = asyncio.Event(), asyncio.Event()


Scripted = dict[str, Any] | tuple[int, str] | Streamed | Silent


@dataclass
class Asked:
    """What the server was asked."""

    line: str
    headers: dict[str, str]
    body: dict[str, Any]


@dataclass
class StreamingModel:
    """A server that gives its replies in order."""

    replies: list[Scripted]
    asked: list[Asked] = field(default_factory=list)
    url: str = ""

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while True:
                line, *rest = (await reader.readuntil(b"\r\n\r\n")).decode().rstrip("\r\n").split("\r\n")
                headers = {name.lower(): value.strip() for name, _, value in (x.partition(":") for x in rest)}
                content = await reader.readexactly(int(headers.get("content-length", "0")))
                self.asked.append(Asked(line, headers, json.loads(content or b"{}")))
                await self._answer(self.replies.pop(0), reader, writer)
                if headers.get("connection") == "close":
                    return
        except (asyncio.IncompleteReadError, ConnectionError):
            pass
        finally:
            writer.close()

    async def _answer(self, reply: Scripted, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if isinstance(reply, Silent):
            reply.asked.set()
            await reader.read()
            reply.gone.set()
            raise ConnectionResetError
        if isinstance(reply, Streamed):
            writer.write(
                b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n"
            )
            for number, event in enumerate(reply.events, 1):
                if reply.until and number == len(reply.events):
                    await reply.until.wait()
                text = event if isinstance(event, str) else json.dumps(event)
                kind = event.get("type") if isinstance(event, dict) else None
                data = f"{f'event: {kind}{chr(10)}' if kind else ''}data: {text}\n\n".encode()
                writer.write(b"%x\r\n%b\r\n" % (len(data), data))
                await writer.drain()
            if reply.broken:
                raise ConnectionResetError
            writer.write(b"0\r\n\r\n")
            return
        status, text = reply if isinstance(reply, tuple) else (200, json.dumps(reply))
        head = f"HTTP/1.1 {status} X\r\ncontent-type: application/json\r\nset-cookie: a=b\r\n"
        writer.write(f"{head}content-length: {len(text.encode())}\r\n\r\n{text}".encode())


@asynccontextmanager
async def streaming_model(*replies: Scripted) -> AsyncIterator[StreamingModel]:
    made = StreamingModel(list(replies))
    serving: set[asyncio.Task[None]] = set()
    accept: Callable[[Any, Any], None] = lambda r, w: serving.add(asyncio.ensure_future(made.serve(r, w)))  # noqa: E731
    server = await asyncio.start_server(accept, "127.0.0.1", 0)
    made.url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/v1"
    async with server:
        yield made
    for task in serving:
        task.cancel()
    await asyncio.gather(*serving, return_exceptions=True)


async def post(url: str, path: str, body: Any, *headers: tuple[str, str]) -> tuple[int, Any]:
    """The status of a request to an endpoint, and its answer."""
    origin, base = parse_url(url)
    async with Pool() as pool:
        content = body if isinstance(body, bytes) else json.dumps(body).encode()
        response = await pool.request(origin, "POST", f"{base}/{path}", headers, content)
        data = await response.read()
        is_json = (response.header(b"content-type") or "").startswith("application/json")
        return response.status, json.loads(data) if is_json else data


def completion(text: str | None = "hello", calls: Any = None, **more: Any) -> dict[str, Any]:
    message = {"role": "assistant", "content": text, **({"tool_calls": calls} if calls else {})}
    usage = {"prompt_tokens": 7, "completion_tokens": 2}
    return {
        "id": "c1",
        "choices": [{"index": 0, "message": message, "finish_reason": "stop"}],
        "usage": usage,
        **more,
    }
