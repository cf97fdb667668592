"""A model's server that plays an agent by a script, whole or streamed as the framework asks.

A turn of the script is a text, or the tool calls of one message. What was asked is kept: the tools that the
framework has told the model of, and the results that it has handed back.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True)
class Call:
    """A tool call of the model."""

    name: str
    arguments: dict[str, Any] = field(default_factory=dict)
    text: str | None = None
    """What it says instead of arguments."""


Turn = str | Call | list[Call]


class AgentModel:
    """Takes a turn of its script for each request."""

    def __init__(self, script: Sequence[Turn]) -> None:
        self.script = list(script)
        self.asked: list[dict[str, Any]] = []
        self.url = ""
        self._calls = 0

    @property
    def functions(self) -> dict[str, dict[str, Any]]:
        """The tools that the model was told of in the first request that names any."""
        told = next(body["tools"] for body in self.asked if body.get("tools"))
        return {tool["function"]["name"]: tool["function"] for tool in told}

    def heard(self, turn: int, text: str) -> bool:
        """Whether the framework has told the model `text` after that turn of the script."""
        before, after = (json.dumps(body["messages"], ensure_ascii=False) for body in self.asked[turn : turn + 2])
        return after.count(text) > before.count(text)

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while True:
                head = (await reader.readuntil(b"\r\n\r\n")).decode()
                lines = [line.partition(":") for line in head.lower().split("\r\n")[1:]]
                headers = {name: value.strip() for name, _, value in lines}
                body = json.loads(await reader.readexactly(int(headers.get("content-length", "0"))) or b"{}")
                kind, content = self._reply(head.split()[1], body)
                length = f"content-length: {len(content)}"
                writer.write(f"HTTP/1.1 200 OK\r\ncontent-type: {kind}\r\n{length}\r\n\r\n".encode() + content)
                await writer.drain()
        except (asyncio.IncompleteReadError, ConnectionError):
            pass
        finally:
            writer.close()

    def _reply(self, target: str, body: dict[str, Any]) -> tuple[str, bytes]:
        if not target.endswith("/chat/completions"):
            return "application/json", b'{"object": "list", "data": []}'
        self.asked.append(body)
        # A script that is too short ends the episode, and the test sees that by what was said.
        message = self._message(self.script.pop(0) if self.script else "the script has ended")
        if not body.get("stream"):
            return "application/json", json.dumps(_completion(message)).encode()
        events = [json.dumps(event) for event in _events(message)]
        return "text/event-stream", "".join(f"data: {event}\n\n" for event in [*events, "[DONE]"]).encode()

    def _message(self, turn: Turn) -> dict[str, Any]:
        if isinstance(turn, str):
            return {"role": "assistant", "content": turn}
        calls = turn if isinstance(turn, list) else [turn]
        return {"role": "assistant", "content": None, "tool_calls": [self._call(call) for call in calls]}

    def _call(self, call: Call) -> dict[str, Any]:
        self._calls += 1
        text = json.dumps(call.arguments) if call.text is None else call.text
        function = {"name": call.name, "arguments": text}
        return {"id": f"call_{self._calls}", "type": "function", "function": function}


def _completion(message: dict[str, Any]) -> dict[str, Any]:
    choice = {"index": 0, "message": message, "finish_reason": _finish(message), "logprobs": None}
    return {**_frame("chat.completion"), "choices": [choice], "usage": _USAGE}


def _events(message: dict[str, Any]) -> list[dict[str, Any]]:
    calls = [{"index": number, **call} for number, call in enumerate(message.get("tool_calls", ()))]
    delta = {**message, **({"tool_calls": calls} if calls else {})}
    frame = _frame("chat.completion.chunk")
    return [
        {**frame, "choices": [{"index": 0, "delta": delta, "finish_reason": None}]},
        {**frame, "choices": [{"index": 0, "delta": {}, "finish_reason": _finish(message)}]},
        {**frame, "choices": [], "usage": _USAGE},
    ]


def _frame(kind: str) -> dict[str, Any]:
    return {"id": "c1", "object": kind, "created": 1, "model": "script"}


def _finish(message: dict[str, Any]) -> str:
    return "tool_calls" if message.get("tool_calls") else "stop"


_USAGE = {"prompt_tokens": 7, "completion_tokens": 2, "total_tokens": 9}


@asynccontextmanager
async def agent_model(script: Sequence[Turn]) -> AsyncIterator[AgentModel]:
    made = AgentModel(script)
    server = await asyncio.start_server(made.serve, "127.0.0.1", 0)
    made.url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/v1"
    async with server:
        yield made
