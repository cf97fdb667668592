"""Agents behind a URL whose servers answer what they like: each answer is an error that names the server."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from typing import Any

import pytest
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response, StreamingResponse
from starlette.routing import Route

from aenv import Context, wrap_agent
from aenv.base import mcp
from aenv.base.errors import ToolError, ToolServerError
from aenv.inside.author.content import ToolOutput
from aenv.inside.author.registry import Registry, collecting
from tests.test_wrapped_agents import served

Answer = Callable[[str, dict[str, Any]], Any]
NOT_TOOLS: list[tuple[Any, str]] = [
    (5, "something that is not a list"),
    (["a"], "a tool that is not an object"),
    ([{"inputSchema": {}}], "field 'name' is None"),
    ([{"name": "t", "inputSchema": "x"}], "field 'inputSchema' is 'x'"),
    ([{"name": "t", "inputSchema": {"properties": 5}}], "'t', whose properties are not an object"),
]
NOT_RESULTS: list[Any] = [
    {"content": "x"},
    {"content": ["x"]},
    {"content": [{"type": 5}]},
    {"structuredContent": 1},
]
NOT_ANSWERS: list[tuple[Any, str]] = [
    ("x", "a result that is not an object"),
    ({"task": "x"}, "neither a message nor a task"),
    ({"status": {"state": ["x"]}}, "the task ended as"),
]
ODD_PARTS: list[tuple[Any, str]] = [
    ({"parts": [{"text": 5}, "x", {"text": "y"}]}, '{"text":5}\n"x"\ny'),
    ({"status": {"state": "completed"}, "artifacts": 5}, ""),
    ({"status": {"state": "completed", "message": "x"}, "artifacts": ["x", {"parts": 5}]}, ""),
]


class Server:
    """Speaks JSON-RPC; `answer` says the result of each method, or the whole response."""

    def __init__(self, answer: Answer) -> None:
        self._answer = answer
        self.app = Starlette(routes=[Route("/{rest:path}", self._asked, methods=["GET", "POST"])])

    async def _asked(self, request: Request) -> Response:
        if request.method == "GET":
            return Response(status_code=404)
        asked = await request.json()
        if asked["method"].startswith("notifications/"):
            return Response(status_code=202)
        if asked["method"] == "initialize":
            return JSONResponse(reply(asked, {"protocolVersion": "2025-06-18"}))
        said = self._answer(asked["method"], asked)
        return said if isinstance(said, Response) else JSONResponse(reply(asked, said))


def reply(asked: dict[str, Any], result: Any) -> dict[str, Any]:
    return {"jsonrpc": "2.0", "id": asked["id"], "result": result}


async def wrapped(url: str, **options: Any) -> Registry:
    """What the environment offers that wraps the server."""
    with collecting(Registry()) as registry:
        await asyncio.to_thread(wrap_agent, url, **options)
    return registry


async def listing(answer: Answer, **options: Any) -> Registry:
    async with served(Server(answer).app) as url:
        return await wrapped(f"{url}/mcp", **options)


async def called(answer: Answer, **options: Any) -> ToolOutput:
    """What the tool of an MCP server gives, whose list is known."""
    async with served(Server(answer).app) as url:
        registry = await wrapped(f"{url}/mcp", tools=[{"name": "t"}], **options)
        output: ToolOutput = await registry.tools["t"].function()
        return output


async def told(result: Any) -> Any:
    """What an A2A agent says that answers with `result`."""
    async with served(Server(lambda *_: result).app) as url:
        registry = await wrapped(url)
        return await registry.tools["chat"].function(message="hi", aenv_context=Context())


@pytest.mark.parametrize(("tools", "why"), NOT_TOOLS)
async def test_a_list_of_what_is_no_tool_is_refused_when_it_is_loaded(tools: Any, why: str) -> None:
    with pytest.raises(ToolServerError, match=r"http://127\.0\.0\.1:\d+/mcp") as caught:
        await listing(lambda *_: {"tools": tools})
    assert why in caught.value.message


async def test_a_list_that_never_ends_is_given_up() -> None:
    with pytest.raises(ToolServerError, match="lists more than 100 pages of tools"):
        await listing(lambda _, asked: {"tools": [{"name": f"t{asked['id']}"}], "nextCursor": "more"})


@pytest.mark.parametrize("result", NOT_RESULTS)
async def test_a_result_of_another_shape_is_an_error_of_the_tool(result: Any) -> None:
    with pytest.raises(ToolServerError, match="/mcp answered with something that is not the result of a tool"):
        await called(lambda *_: result)


@pytest.mark.parametrize("error", ["x" * 10_000, {"message": "x" * 10_000}, 5, {"message": None}])
async def test_an_error_of_any_shape_and_size_is_told_in_short(error: Any) -> None:
    with pytest.raises(ToolServerError, match="/mcp answered tools/call with an error: ") as caught:
        await called(lambda _, asked: JSONResponse({"jsonrpc": "2.0", "id": asked["id"], "error": error}))
    assert len(caught.value.message) < 3_000


async def test_an_event_stream_that_stays_open_after_the_answer_is_not_waited_for() -> None:
    async def events(asked: dict[str, Any]) -> AsyncIterator[bytes]:
        result = {"content": [{"type": "text", "text": "done"}]}
        yield b"event: message\ndata: " + mcp.dumps(reply(asked, result)) + b"\n\n"
        await asyncio.Event().wait()

    output = await called(lambda _, asked: StreamingResponse(events(asked), media_type="text/event-stream"))
    assert output.content[0]["text"] == "done"


async def test_an_answer_that_comes_byte_by_byte_takes_no_longer_than_the_timeout() -> None:
    async def blanks() -> AsyncIterator[bytes]:
        while True:
            yield b" "
            await asyncio.sleep(0.05)

    with pytest.raises(ToolError, match=r"did not answer within 0\.5 s"):
        await listing(lambda *_: StreamingResponse(blanks(), media_type="application/json"), timeout=0.5)


@pytest.mark.parametrize(("result", "why"), NOT_ANSWERS)
async def test_what_is_neither_a_message_nor_a_task_is_an_error(result: Any, why: str) -> None:
    with pytest.raises(ToolServerError, match=r"http://127\.0\.0\.1:\d+") as caught:
        await told(result)
    assert why in caught.value.message


@pytest.mark.parametrize(("result", "text"), ODD_PARTS)
async def test_parts_of_another_shape_are_told_as_they_are(result: Any, text: str) -> None:
    assert await told(result) == text
