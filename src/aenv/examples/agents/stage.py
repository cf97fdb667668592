"""What the three programs share: a gateway with the environments, and a model's server that is a script."""

from __future__ import annotations

import asyncio
import json
import tempfile
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from aenv import AEnvError, Environment, ToolResult
from aenv.rollouts.own_gateway import own_gateway

ENVIRONMENTS = Path(__file__).parent / "environments"
NAMES = ("role_player", "foreman", "moderator", "attacker")

Script = Callable[[str, str], str]
"""What the model answers to a system prompt and the last message."""


async def play(name: str, message: str, script: Script) -> str:
    """What the agent `name` answers; where instances cannot be isolated here, they run without isolation."""
    async with scripted_model(script) as model_url:
        for engine in ("native", "process"):
            try:
                return await _played(name, message, model_url, engine)
            except AEnvError as error:
                if error.code != "unsupported" or engine == "process":
                    raise
    raise AssertionError("one of the engines has answered, or raised")


async def _played(name: str, message: str, model_url: str, engine: str) -> str:
    first, *others = (ENVIRONMENTS / name for name in NAMES)
    with tempfile.TemporaryDirectory(prefix="aenv-agents-") as folder:
        options = (*map(str, others), "--model-url", "loopback")
        async with (
            own_gateway(first, Path(folder) / "home", engine=engine, options=options) as url,
            Environment(f"{name}@1.0.0", aenv_url=url, model_url=model_url) as agent,
        ):
            async for said in agent.stream("chat", {"message": message}, timeout=300):
                if not isinstance(said, ToolResult):
                    print((said.message or "").rstrip("\n"), flush=True)
                elif said.is_error:
                    raise RuntimeError(f"the agent failed: {said.text}")
                else:
                    return said.text
    raise AssertionError("a stream ends with its result")


@asynccontextmanager
async def scripted_model(script: Script) -> AsyncIterator[str]:
    """The URL of a server of chat completions that answers as `script` says."""

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while True:
                head = (await reader.readuntil(b"\r\n\r\n")).decode().lower()
                length = next(int(line[15:]) for line in head.splitlines() if line.startswith("content-length:"))
                asked = json.loads(await reader.readexactly(length))
                body = json.dumps(_completion(script, asked["messages"])).encode()
                kind = b"content-type: application/json"
                writer.write(b"HTTP/1.1 200 OK\r\n%b\r\ncontent-length: %d\r\n\r\n%b" % (kind, len(body), body))
                await writer.drain()
        except (asyncio.IncompleteReadError, ConnectionError):
            pass  # the client has closed its connection
        finally:
            writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    async with server:
        yield f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/v1"


def _completion(script: Script, messages: list[dict[str, Any]]) -> dict[str, Any]:
    answer = {"role": "assistant", "content": script(messages[0]["content"], messages[-1]["content"])}
    return {"choices": [{"index": 0, "message": answer, "finish_reason": "stop"}]}
