"""Agents behind a URL as environments: servers that speak A2A or MCP, started by the tests."""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
import uvicorn
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, RedirectResponse, Response
from starlette.routing import Route

from aenv import Environment
from tests.gateways import make_project, running_gateway
from tests.running import DidNotStart, running_runtime
from tests.venvs import judge

pytestmark = pytest.mark.slow  # each starts servers


FASTMCP = '''
import socket
import uvicorn
from fastmcp import FastMCP

server = FastMCP("remote")

@server.tool
def add(a: int, b: int = 1) -> int:
    """Add two numbers."""
    if a < 0:
        raise ValueError("too small")
    return a + b

listener = socket.create_server(("127.0.0.1", 0))
print(listener.getsockname()[1], flush=True)
config = uvicorn.Config(server.http_app(path="/mcp"), log_level="error")
uvicorn.Server(config).run(sockets=[listener])
'''


class A2aServer:
    """An agent with a card and tasks, as the A2A protocol has them."""

    def __init__(self) -> None:
        self.seen: list[dict[str, Any]] = []
        self.tasks: dict[str, int] = {}
        self.card_url = "/rpc"
        self.keys: list[str] = []

    def app(self) -> Starlette:
        return Starlette(
            routes=[
                Route("/.well-known/agent-card.json", self.card),
                Route("/rpc", self.rpc, methods=["POST"]),
                Route("/moved", lambda _: RedirectResponse("/rpc"), methods=["POST"]),
            ]
        )

    async def card(self, _: Request) -> Response:
        about = {"name": "remote", "description": "Counts.", "version": "1.0.0", "protocolVersion": "0.3.0"}
        return JSONResponse({**about, "url": self.card_url, "preferredTransport": "JSONRPC", "skills": []})

    async def rpc(self, request: Request) -> Response:
        asked = await request.json()
        self.keys.append(request.headers.get("x-key", ""))
        match asked["method"]:
            case "message/send":
                result = self.answer(asked["params"]["message"])
            case "tasks/get":
                self.tasks[asked["params"]["id"]] += 1
                done = self.tasks[asked["params"]["id"]] > 1
                result = task(asked["params"]["id"], "completed" if done else "working", "at last")
            case method:
                error = {"code": -32601, "message": f"no method {method}"}
                return JSONResponse({"jsonrpc": "2.0", "id": asked["id"], "error": error})
        return JSONResponse({"jsonrpc": "2.0", "id": asked["id"], "result": result})

    def answer(self, message: dict[str, Any]) -> dict[str, Any]:
        self.seen.append(message)
        text = message["parts"][0]["text"]
        context = message.get("contextId") or f"context-{len(self.seen)}"
        if text == "slowly":
            self.tasks["t1"] = 0
            return task("t1", "submitted", "")
        if text == "fail":
            return task("t2", "failed", "it broke")
        count = sum(one.get("contextId") == context for one in self.seen)
        parts = [{"kind": "text", "text": f"{text} in {context}, {count} before"}]
        return {"kind": "message", "role": "agent", "messageId": "m", "contextId": context, "parts": parts}


def task(id: str, state: str, text: str) -> dict[str, Any]:
    parts = [{"kind": "text", "text": text}]
    done = {"artifacts": [{"artifactId": "a", "parts": parts}]} if state == "completed" else {}
    said = {"message": {"kind": "message", "role": "agent", "messageId": "m", "parts": parts}}
    return {"kind": "task", "id": id, "contextId": "c", "status": {"state": state, **said}, **done}


@contextlib.asynccontextmanager
async def served(app: Any) -> AsyncIterator[str]:
    config = uvicorn.Config(app, port=0, log_level="error", lifespan="on", ws="none")
    server = uvicorn.Server(config)
    serving = asyncio.create_task(server.serve())
    while not server.started:
        assert not serving.done()
        await asyncio.sleep(0.01)
    try:
        yield f"http://127.0.0.1:{server.servers[0].sockets[0].getsockname()[1]}"
    finally:
        server.should_exit = True
        await serving


def wrapping(folder: Path, call: str, **deploy: Any) -> Path:
    return make_project(folder, "wrapped", code=f"from aenv import wrap_agent\nwrap_agent({call})\n", **deploy)


@contextlib.asynccontextmanager
async def wrapped(folder: Path, call: str) -> AsyncIterator[Environment]:
    async with (
        running_runtime(wrapping(folder, call)) as runtime,
        Environment("wrapped@1.0.0", runtime_url=runtime.url) as env,
    ):
        yield env


class TestA2a:
    async def test_an_agent_is_found_by_its_card_and_sessions_are_contexts(self, tmp_path: Path) -> None:
        server = A2aServer()
        async with served(server.app()) as url:
            async with wrapped(tmp_path, f"{url!r}, headers={{'X-Key': 'k'}}") as env:
                texts = [
                    (await env.call_tool("chat", {"message": message, "session": session})).text
                    for message, session in (("a", "x"), ("b", "x"), ("c", "y"))
                ]
            assert texts == ["a in context-1, 0 before", "b in context-1, 1 before", "c in context-3, 0 before"]
            assert server.keys == ["k"] * 3

    async def test_a_task_is_waited_for_and_its_failure_is_a_result(self, tmp_path: Path) -> None:
        async with served(A2aServer().app()) as url, wrapped(tmp_path, repr(url)) as env:
            assert (await env.call_tool("chat", {"message": "slowly"})).text == "at last"
            failed = await env.call_tool("chat", {"message": "fail"})
            assert failed.is_error and "ended as failed: it broke" in failed.text

    async def test_a_card_cannot_send_the_message_to_another_server(self, tmp_path: Path) -> None:
        server, other = A2aServer(), A2aServer()
        async with served(other.app()) as elsewhere, served(server.app()) as url:
            server.card_url = f"{elsewhere}/rpc"
            async with wrapped(tmp_path, f"'{url}/rpc'") as env:
                assert not (await env.call_tool("chat", {"message": "a"})).is_error
            assert len(server.seen) == 1 and other.seen == []

    async def test_what_does_not_answer_or_leads_elsewhere_is_an_error_that_names_it(self, tmp_path: Path) -> None:
        server = A2aServer()
        async with served(server.app()) as url:
            server.card_url = "/moved"
            async with wrapped(tmp_path, repr(url)) as env:
                moved = await env.call_tool("chat", {"message": "a"})
                assert moved.is_error and "/moved answered 307" in moved.text
        async with wrapped(tmp_path / "2", "'http://127.0.0.1:9'") as env:
            gone = await env.call_tool("chat", {"message": "a"})
            assert gone.is_error and "cannot be reached" in gone.text

    async def test_it_works_in_an_isolated_instance_whose_network_leads_there(self, tmp_path: Path) -> None:
        async with served(A2aServer().app()) as url:
            project = wrapping(tmp_path, repr(url), network="full")
            async with (
                running_gateway(tmp_path / "home", project, engine="native") as gateway,
                Environment("wrapped@1.0.0", aenv_url=gateway.address.url) as env,
            ):
                assert (await env.call_tool("chat", {"message": "hi"})).text == "hi in context-1, 0 before"


class TestMcp:
    @pytest.fixture(params=["fastmcp2", "fastmcp4"])
    async def url(self, request: pytest.FixtureRequest) -> AsyncIterator[str]:
        python = judge(request.param)
        process = await asyncio.create_subprocess_exec(python, "-c", FASTMCP, stdout=asyncio.subprocess.PIPE)
        try:
            assert process.stdout
            yield f"http://127.0.0.1:{int(await process.stdout.readline())}/mcp"
        finally:
            process.kill()
            await process.wait()

    async def test_all_tools_of_the_server_are_there_with_their_schemas(self, tmp_path: Path, url: str) -> None:
        async with wrapped(tmp_path, repr(url)) as env:
            [tool] = await env.list_tools()
            assert (tool["name"], tool["description"]) == ("wrapped@1.0.0/add", "Add two numbers.")
            assert tool["inputSchema"]["required"] == ["a"]
            result = await env.call_tool("add", {"a": 2})
            assert (result.text, result.structured) == ("3", {"result": 3})
            failed = await env.call_tool("add", {"a": -1})
            assert failed.is_error and "too small" in failed.text

    async def test_instances_that_are_forked_have_sessions_of_their_own(self, tmp_path: Path, url: str) -> None:
        project = wrapping(tmp_path, repr(url), network="full")
        async with running_gateway(tmp_path / "home", project, engine="native") as gateway:
            options: Any = {"aenv_url": gateway.address.url}
            async with Environment.create_many(3, "wrapped@1.0.0", **options) as envs:
                answers = await asyncio.gather(*(env.call_tool("add", {"a": n}) for n, env in enumerate(envs)))
                assert [one.text for one in answers] == ["1", "2", "3"]

    async def test_tools_that_are_said_need_no_server_to_load_and_one_that_is_away_fails_to_load(
        self, tmp_path: Path, url: str
    ) -> None:
        tools = [{"name": "add", "inputSchema": {"type": "object", "properties": {"a": {"type": "integer"}}}}]
        async with wrapped(tmp_path, f"'http://127.0.0.1:9/mcp', tools={json.dumps(tools)}") as env:
            result = await env.call_tool("add", {"a": 1})
            assert result.is_error and "cannot be reached" in result.text
        with pytest.raises(DidNotStart, match="cannot be reached"):
            async with wrapped(tmp_path / "2", "'http://127.0.0.1:9/mcp'"):
                pass
