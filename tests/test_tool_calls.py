"""What adapters of agent frameworks share: tools that are called from any loop and thread, and their answers."""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from aenv import Environment, EnvironmentError, SyncEnvironment, ToolError, ToolResult
from aenv.integrations.tool_calls import (
    MOST_WRITTEN,
    InstanceTool,
    Picture,
    ToolAnswer,
    ToolsOf,
    answer_of,
    resolved,
)
from tests.gateways import Gateway, make_project, running_gateway

tools = ToolsOf(lambda tool: tool)
IMAGE = {"type": "image", "data": "aGk=", "mimeType": "image/png"}


@pytest.fixture
async def gateway(tmp_path: Path) -> AsyncIterator[Gateway]:
    async with running_gateway(tmp_path / "home", make_project(tmp_path)) as running:
        yield running


@pytest.fixture
def url(gateway: Gateway) -> str:
    return f"http://127.0.0.1:{gateway.address.port}"


async def echo_of(env: Environment) -> InstanceTool:
    return next(tool for tool in await tools(env) if tool.name == "echo")


class TestAnswers:
    def test_texts_images_and_other_parts_are_told_apart(self) -> None:
        audio = {"type": "audio", "data": "é", "mimeType": "audio/wav"}
        answer = answer_of(ToolResult([{"type": "text", "text": "one"}, IMAGE, audio], structured={"a": 1}))
        assert answer == ToolAnswer(
            'one\n{"type": "audio", "data": "é", "mimeType": "audio/wav"}',
            (Picture("aGk=", "image/png"),),
            {"a": 1},
        )
        assert (answer.pictures[0].url, answer.pictures[0].content) == ("data:image/png;base64,aGk=", b"hi")

    @pytest.mark.parametrize(
        "part", [{**IMAGE, "data": "?"}, {"type": "image", "data": "aGk="}, {"type": "image"}]
    )
    def test_an_image_that_cannot_be_read_is_a_text(self, part: dict[str, str]) -> None:
        assert answer_of(ToolResult([part])) == ToolAnswer(json.dumps(part))

    def test_a_failure_stays_one(self) -> None:
        assert answer_of(ToolResult([{"type": "text", "text": "no"}], is_error=True)) == ToolAnswer(
            "no", is_error=True
        )


class TestSchemas:
    def test_types_that_double_with_each_level_are_written_out_up_to_a_bound(self) -> None:
        levels = 40
        twice = {
            f"t{n}": {"type": "object", "properties": {side: {"$ref": f"#/$defs/t{n + 1}"} for side in "ab"}}
            for n in range(levels)
        }
        schema = {
            "properties": {"x": {"$ref": "#/$defs/t0"}},
            "$defs": {**twice, f"t{levels}": {"type": "string"}},
        }
        written = json.dumps(resolved(schema))
        assert len(written) < 100 * MOST_WRITTEN
        assert "$ref" not in written

    def test_references_are_written_out_and_keep_what_stands_beside_them(self) -> None:
        point = {"type": "object", "properties": {"x": {"type": "number"}}, "description": "A point."}
        schema = {
            "properties": {
                "a": {"$ref": "#/$defs/Point", "description": "The first."},
                "b": {"type": "array", "items": {"anyOf": [{"$ref": "#/$defs/Point"}, {"type": "null"}]}},
            },
            "$defs": {"Point": point},
        }
        assert resolved(schema) == {
            "properties": {
                "a": {**point, "description": "The first."},
                "b": {"type": "array", "items": {"anyOf": [point, {"type": "null"}]}},
            }
        }

    def test_a_type_that_contains_itself_is_any_object_in_there(self) -> None:
        node = {"type": "object", "properties": {"next": {"$ref": "#/$defs/Node"}}}
        assert resolved({"$ref": "#/$defs/Node", "$defs": {"Node": node}}) == {
            "type": "object",
            "properties": {"next": {"type": "object"}},
        }

    def test_references_are_found_wherever_they_lead_in_the_schema(self) -> None:
        point = {"type": "object", "properties": {"x": {"type": "number"}}}
        assert resolved(
            {
                "properties": {
                    "start": point,
                    "end": {"$ref": "#/properties/start"},
                    "old": {"$ref": "#/definitions/a~1b%20c"},
                    "whole": {"$ref": "#"},
                },
                "definitions": {"a/b c": {"type": "string"}},
            }
        ) == {"properties": {"start": point, "end": point, "old": {"type": "string"}, "whole": {"type": "object"}}}

    def test_properties_may_be_anything_and_have_any_name(self) -> None:
        named = {"$ref": True, "properties": {"type": "array", "uniqueItems": True}}
        assert resolved({"properties": named}) == {"properties": {**named, "$ref": {}}}

    def test_a_reference_to_elsewhere_stays(self) -> None:
        assert resolved({"items": {"$ref": "#/other"}}) == {"items": {"$ref": "#/other"}}


@pytest.mark.slow
class TestCalls:
    async def test_a_tool_is_called_from_another_loop_and_from_a_thread(self, url: str) -> None:
        async with Environment("echo@1.0.0", aenv_url=url) as env:
            echo = await echo_of(env)
            assert await echo.call({"text": "here"}) == ToolAnswer("here")
            elsewhere = await asyncio.to_thread(lambda: asyncio.run(echo.call({"text": "there"})))
            assert elsewhere == ToolAnswer("there")
            assert await asyncio.to_thread(echo.call_blocking, {"text": "below"}) == ToolAnswer("below")

    async def test_a_call_that_would_wait_for_itself_says_what_to_do(self, url: str) -> None:
        async with Environment("echo@1.0.0", aenv_url=url) as env:
            echo = await echo_of(env)
            with pytest.raises(
                RuntimeError, match=r"use SyncEnvironment, or run the agent with asyncio\.to_thread"
            ):
                echo.call_blocking({"text": "x"})

    async def test_the_tools_of_a_blocking_environment_are_a_list_at_once(self, url: str) -> None:
        def use() -> ToolAnswer:
            with SyncEnvironment("echo@1.0.0", aenv_url=url) as env:
                echo = next(tool for tool in tools(env) if tool.name == "echo")
                return echo.call_blocking('{"text": "x"}')

        assert await asyncio.to_thread(use) == ToolAnswer("x")

    @pytest.mark.parametrize(
        ("arguments", "said"),
        [
            ("{", "the arguments of 'echo' are not JSON"),
            ("[1]", "the arguments of 'echo' are not a JSON object"),
            ({"text": 1}, "bad arguments for 'echo'"),
            (None, "bad arguments for 'echo'"),
        ],
    )
    async def test_wrong_arguments_are_an_answer_for_the_model(
        self, url: str, arguments: object, said: str
    ) -> None:
        async with Environment("echo@1.0.0", aenv_url=url) as env:
            answer = await (await echo_of(env)).call(arguments)  # type: ignore[arg-type]
        assert answer.is_error
        assert answer.text.startswith(said)

    async def test_a_call_that_the_platform_has_lost_raises(self, url: str) -> None:
        async with Environment("echo@1.0.0", aenv_url=url) as env:
            die = next(tool for tool in await tools(env) if tool.name == "die")
            with pytest.raises(ToolError, match="ended before it had answered"):
                await die.call({})


@pytest.mark.slow
class TestUrls:
    async def test_the_url_of_an_instance_leads_to_it_through_its_gateway(
        self, url: str, gateway: Gateway
    ) -> None:
        env = Environment("echo@1.0.0", aenv_url=url)
        with pytest.raises(EnvironmentError, match="has no instance yet"):
            _ = env.mcp_url
        async with env:
            data = f"http://127.0.0.1:{gateway.address.data_port}"
            assert env.mcp_url == f"{data}/instances/{env.instance_id}/mcp"

    async def test_of_a_runtime_it_is_the_runtimes_own(self, project, start) -> None:
        runtime = await start(project("from aenv import *\n\n@register_tool\ndef a(): pass"))
        async with Environment("my-env@1.0.0", runtime_url=runtime.url) as env:
            assert env.mcp_url == f"{runtime.url}/mcp"


def test_an_interrupt_cancels_a_call_that_its_thread_has_just_begun(monkeypatch: pytest.MonkeyPatch) -> None:
    begun, cancelled = threading.Event(), threading.Event()
    submit = asyncio.run_coroutine_threadsafe

    async def wait() -> None:
        begun.set()
        try:
            await asyncio.Event().wait()
        finally:
            cancelled.set()

    def interrupted(*args: Any) -> None:
        submit(*args)
        assert begun.wait(20)
        raise KeyboardInterrupt

    # Ctrl-C at the worst moment, which comes by chance only on a busy machine.
    monkeypatch.setattr(asyncio, "run_coroutine_threadsafe", interrupted)
    with pytest.raises(KeyboardInterrupt):
        SyncEnvironment("my-env@1.0.0").run(wait())
    assert cancelled.wait(20)
