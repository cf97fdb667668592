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

from aenv import Environment, ToolError, wrap_agent
from tests.gateways import make_project, running_gateway
from tests.running import DidNotStart, running_runtime
from tests.venvs import judge

pytestmark = pytest.mark.slow  # each starts servers


FASTMCP = '''
import asyncio
import socket
import uvicorn
from fastmcp import FastMCP

server = FastMCP("remote")
seen = []

@server.tool
def add(a: int, b: int = 1) -> int:
    """Add two numbers."""
    if a < 0:
        raise ValueError("too small")
    return a + b

@server.tool
async def hang() -> None:
    seen.append("begun")
    try:
        await asyncio.Event().wait()
    finally:
        seen.append("cancelled")

@server.tool
def told() -> str:
    return " ".join(seen)

listener = socket.create_server(("127.0.0.1", 0))
print(listener.getsockname()[1], flush=True)
config = uvicorn.Config(server.http_app(path="/mcp"), log_level="error")
uvicorn.Server(config).run(sockets=[listener])
'''


# Agents made with the SDK of the protocol, in each version: one whose answers are messages, tasks, and questions.
A2A_AGENT = """
import socket
import uvicorn
from a2a.server.agent_execution import AgentExecutor
from a2a.server.request_handlers import DefaultRequestHandler
from a2a.server.tasks import InMemoryTaskStore, TaskUpdater

seen = []

class Agent(AgentExecutor):
    async def execute(self, context, queue):
        said = context.get_user_input()
        seen.append(context.context_id)
        if said in ("fail", "ask") or context.current_task:
            task = context.current_task or new_task(context.message)
            if not context.current_task:
                await queue.enqueue_event(task)
            updater = TaskUpdater(queue, task.id, context.context_id)
            if context.current_task:
                await updater.add_artifact([text_part("you said " + said)])
                await updater.complete()
            elif said == "ask":
                await updater.requires_input(updater.new_agent_message([text_part("which one?")]))
            else:
                await updater.failed(updater.new_agent_message([text_part("it broke")]))
            return
        count = seen.count(context.context_id)
        await queue.enqueue_event(message(said + ", " + str(count), context_id=context.context_id))

    async def cancel(self, context, queue):
        raise NotImplementedError

listener = socket.create_server(("127.0.0.1", 0))
port = listener.getsockname()[1]
url = f"http://127.0.0.1:{port}/rpc"
APP
print(port, flush=True)
uvicorn.Server(uvicorn.Config(app, log_level="error")).run(sockets=[listener])
"""
A2A_APPS = {
    "a2a0": """
from a2a.server.apps import A2AStarletteApplication
from a2a.types import AgentCapabilities, AgentCard, Part, TextPart
from a2a.utils import new_agent_text_message as message, new_task

text_part = lambda text: Part(root=TextPart(text=text))
card = AgentCard(
    name="agent", description="Answers.", version="1.0.0", url=url, capabilities=AgentCapabilities(), skills=[],
    default_input_modes=["text"], default_output_modes=["text"],
)
app = A2AStarletteApplication(card, DefaultRequestHandler(Agent(), InMemoryTaskStore())).build(rpc_url="/rpc")
""",
    "a2a1": """
from a2a.helpers import new_text_message as message, new_text_part as text_part
from a2a.helpers import new_task_from_user_message as new_task
from a2a.server.routes import create_agent_card_routes, create_jsonrpc_routes
from a2a.types import AgentCard, AgentInterface, AgentSkill
from starlette.applications import Starlette

offers = [
    AgentInterface(url=url, protocol_binding=binding, protocol_version="1.0") for binding in ("GRPC", "JSONRPC")
]
card = AgentCard(
    name="agent", description="Answers.", version="1.0.0", supported_interfaces=offers, capabilities={},
    skills=[AgentSkill(id="s", name="answer", description="Answers.", tags=["text"])],
    default_input_modes=["text"], default_output_modes=["text"],
)
handler = DefaultRequestHandler(Agent(), InMemoryTaskStore(), card)
app = Starlette(routes=[*create_agent_card_routes(card), *create_jsonrpc_routes(handler, "/rpc")])
""",
}


class A2aServer:
    """An agent with a card and tasks, as the A2A protocol has them."""

    def __init__(self) -> None:
        self.seen: list[dict[str, Any]] = []
        self.tasks: dict[str, int] = {}
        self.card_url = "/rpc"
        self.keys: list[str] = []
        self.waits = 1
        """How often a task is looked at before it is done."""
        self.looked, self.cancelled = asyncio.Event(), asyncio.Event()

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
                self.looked.set()
                self.tasks[asked["params"]["id"]] += 1
                done = self.tasks[asked["params"]["id"]] > self.waits
                result = task(asked["params"]["id"], "completed" if done else "working", "at last")
            case "tasks/cancel":
                self.cancelled.set()
                result = task(asked["params"]["id"], "canceled", "")
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


@contextlib.asynccontextmanager
async def printing_port(python: Path, program: str) -> AsyncIterator[int]:
    """A server that prints its port when it listens."""
    process = await asyncio.create_subprocess_exec(python, "-c", program, stdout=asyncio.subprocess.PIPE)
    try:
        assert process.stdout
        yield int(await process.stdout.readline())
    finally:
        process.kill()
        await process.wait()


def wrapping(folder: Path, call: str, **deploy: Any) -> Path:
    return make_project(folder, "wrapped", code=f"from aenv import wrap_agent\nwrap_agent({call})\n", **deploy)


def test_a_protocol_that_is_not_spoken_is_refused() -> None:
    with pytest.raises(ToolError, match="bad protocol 'acp' of the agent at 'http://x'; use 'a2a' or 'mcp'"):
        wrap_agent("http://x", protocol="acp")  # type: ignore[arg-type]


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

    async def test_a_task_that_never_ends_is_an_error_after_the_time_of_a_request_and_is_cancelled(
        self, tmp_path: Path
    ) -> None:
        server = A2aServer()
        server.waits = 1000
        async with served(server.app()) as url, wrapped(tmp_path, f"{url!r}, timeout=1.2") as env:
            late = await env.call_tool("chat", {"message": "slowly"})
            assert late.is_error and "1.2 s" in late.text
            await server.cancelled.wait()  # and no thread goes on looking
            looked = server.tasks["t1"]
            assert (await env.call_tool("chat", {"message": "hi"})).text.startswith("hi in")
            assert server.tasks["t1"] == looked

    async def test_a_task_whose_caller_waits_no_longer_is_cancelled(self, tmp_path: Path) -> None:
        server = A2aServer()
        server.waits = 1000
        async with served(server.app()) as url, wrapped(tmp_path, repr(url)) as env:
            asking = asyncio.create_task(env.call_tool("chat", {"message": "slowly"}))
            await server.looked.wait()
            asking.cancel()
            await server.cancelled.wait()

    @pytest.mark.parametrize("version", A2A_APPS)
    async def test_agents_of_each_version_of_the_protocol_answer(self, tmp_path: Path, version: str) -> None:
        program = A2A_AGENT.replace("APP", A2A_APPS[version])
        async with (
            printing_port(judge(version), program) as port,
            wrapped(tmp_path, f"'http://127.0.0.1:{port}'") as env,
        ):

            async def said(message: str, session: str) -> tuple[bool, str]:
                result = await env.call_tool("chat", {"message": message, "session": session})
                return result.is_error, result.text

            assert await said("a", "x") == (False, "a, 1")
            assert await said("b", "x") == (False, "b, 2")
            assert await said("c", "y") == (False, "c, 1")
            assert await said("ask", "z") == (False, "which one?")
            assert await said("that one", "z") == (False, "you said that one")
            is_error, why = await said("fail", "x")
            assert is_error and "ended as failed: it broke" in why


class TestMcp:
    @pytest.fixture(params=["fastmcp2", "fastmcp4"])
    async def url(self, request: pytest.FixtureRequest) -> AsyncIterator[str]:
        async with printing_port(judge(request.param), FASTMCP) as port:
            yield f"http://127.0.0.1:{port}/mcp"

    async def test_all_tools_of_the_server_are_there_with_their_schemas(self, tmp_path: Path, url: str) -> None:
        async with wrapped(tmp_path, repr(url)) as env:
            [tool, *others] = await env.list_tools()
            assert [one["name"] for one in others] == ["wrapped@1.0.0/hang", "wrapped@1.0.0/told"]
            assert (tool["name"], tool["description"]) == ("wrapped@1.0.0/add", "Add two numbers.")
            assert tool["inputSchema"]["required"] == ["a"]
            result = await env.call_tool("add", {"a": 2})
            assert (result.text, result.structured) == ("3", {"result": 3})
            failed = await env.call_tool("add", {"a": -1})
            assert failed.is_error and "too small" in failed.text

    async def test_a_tool_whose_caller_waits_no_longer_is_cancelled_at_the_server(
        self, tmp_path: Path, url: str
    ) -> None:
        async with wrapped(tmp_path, repr(url)) as env:
            hanging = asyncio.create_task(env.call_tool("hang", {}))
            while (await env.call_tool("told", {})).text != "begun":
                assert not hanging.done()
            hanging.cancel()
            while (await env.call_tool("told", {})).text != "begun cancelled":
                pass

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
