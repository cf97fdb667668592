"""What every judge checks, whichever client it is. Runs in other virtual environments: standard library only.

Not here: how a client is driven (`mcp1.py`, `mcp2.py`, `fastmcp2.py`, `fastmcp4.py`). The server is
`tests/environments/judged`.
"""

from __future__ import annotations

import argparse
import asyncio
import base64
import json
import secrets
import sys
import traceback
from collections.abc import Awaitable, Callable
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, field
from typing import Any, Protocol

PNG = base64.b64decode(
    "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="
)
BLOB = bytes(range(256))
MEBIBYTE = 1 << 20

Progress = tuple[float, float | None, str | None]


@dataclass(frozen=True)
class Target:
    """The server under judgement: a URL with headers, or a command to speak stdio with."""

    url: str = ""
    headers: dict[str, str] = field(default_factory=dict)
    command: tuple[str, ...] = ()
    mode: str = "legacy"


class Refused(Exception):
    """The server answered with a JSON-RPC error."""


class Session(Protocol):
    """One client's session. Everything comes back as the dictionaries that went over the wire."""

    has_ping: bool

    async def tools(self) -> list[dict[str, Any]]: ...

    async def call(
        self, name: str, arguments: dict[str, Any], progress: Callable[[Progress], None] | None = None
    ) -> dict[str, Any]:
        """The whole result; `Refused` for a JSON-RPC error."""
        ...

    async def call_then_cancel(self, name: str, arguments: dict[str, Any], when: Awaitable[object]) -> None:
        """Start the call, wait for `when`, cancel the call in the way of this client."""
        ...

    async def ping(self) -> None: ...

    async def resources(self) -> list[dict[str, Any]]: ...

    async def resource_templates(self) -> list[dict[str, Any]]: ...

    async def read_resource(self, uri: str) -> list[dict[str, Any]]: ...

    async def prompts(self) -> list[dict[str, Any]]: ...

    async def get_prompt(self, name: str, arguments: dict[str, str]) -> dict[str, Any]: ...


Connect = Callable[[Target], AbstractAsyncContextManager[Session]]


async def tools_are_listed_with_their_schemas(session: Session) -> None:
    tools = {tool["name"]: tool for tool in await session.tools()}
    add = tools["add"]
    assert add["description"].startswith("Add two numbers."), add
    schema = add["inputSchema"]
    assert schema["type"] == "object", schema
    assert schema["required"] == ["a"], schema
    assert schema["properties"]["a"]["type"] == "integer", schema
    assert schema["properties"]["a"]["description"] == "The first number.", schema
    assert schema["properties"]["b"]["default"] == 2, schema
    assert schema["properties"]["operation"]["enum"] == ["add", "subtract"], schema
    assert tools["locate"]["outputSchema"]["properties"]["latitude"]["type"] == "number", tools["locate"]
    assert tools["add"].get("annotations", {}).get("readOnlyHint") is True, tools["add"]
    assert "context" not in tools["count"]["inputSchema"]["properties"], tools["count"]


async def text_comes_back(session: Session) -> None:
    text = "héllo\nwörld \N{SNOWMAN} \N{GRINNING FACE}"
    result = await session.call("echo", {"text": text})
    assert result["content"] == [{"type": "text", "text": text}], result
    assert not result.get("isError"), result


async def empty_text_comes_back(session: Session) -> None:
    result = await session.call("echo", {"text": ""})
    assert [part.get("text") for part in result["content"]] == [""], result


async def a_dictionary_comes_back_structured(session: Session) -> None:
    result = await session.call("add", {"a": 40})
    assert result["structuredContent"] == {"sum": 42}, result
    assert json.loads(result["content"][0]["text"]) == {"sum": 42}, result


async def a_dataclass_comes_back_structured(session: Session) -> None:
    result = await session.call("locate", {"city": "Zürich"})
    assert result["structuredContent"] == {"city": "Zürich", "latitude": 47.4, "tags": ["lake"]}, result


async def an_image_comes_back_with_its_type(session: Session) -> None:
    (part,) = (await session.call("picture", {}))["content"]
    assert (part["type"], part["mimeType"]) == ("image", "image/png"), part
    assert base64.b64decode(part["data"]) == PNG, part


async def other_bytes_come_back_as_a_blob(session: Session) -> None:
    (part,) = (await session.call("blob", {}))["content"]
    assert part["type"] == "resource", part
    assert base64.b64decode(part["resource"]["blob"]) == BLOB, part


async def several_parts_come_back_in_order(session: Session) -> None:
    parts = (await session.call("mixed", {}))["content"]
    assert [part["type"] for part in parts] == ["text", "image", "text"], parts


async def a_raised_error_is_a_result_with_its_message(session: Session) -> None:
    result = await session.call("fail", {"message": "the disk is on fire"})
    assert result["isError"] is True, result
    assert "the disk is on fire" in result["content"][0]["text"], result


async def an_unknown_tool_is_refused_by_name(session: Session) -> None:
    assert "no_such_tool" in await _refusal(session, "no_such_tool", {})


async def bad_arguments_are_refused_by_field(session: Session) -> None:
    assert "a" in await _refusal(session, "add", {"b": 1})
    assert "a" in await _refusal(session, "add", {"a": "many"})
    assert "operation" in await _refusal(session, "add", {"a": 1, "operation": "divide"})


async def progress_arrives_in_order(session: Session) -> None:
    seen: list[Progress] = []
    result = await session.call("count", {"to": 5}, seen.append)
    assert result["content"][0]["text"] == "5", result
    assert seen == [(n, 5, f"at {n}") for n in range(1, 6)], seen


async def cancelling_stops_the_tool(session: Session) -> None:
    key = secrets.token_hex(4)
    await session.call_then_cancel(
        "block", {"key": key}, session.call("wait_for_state", {"key": key, "state": "started"})
    )
    result = await session.call("wait_for_state", {"key": key, "state": "cancelled"})
    assert result["content"][0]["text"] == "cancelled", result


async def a_result_of_three_mebibytes_comes_back_whole(session: Session) -> None:
    result = await session.call("big", {"size": 3 * MEBIBYTE})
    assert result["content"][0]["text"] == "x" * 3 * MEBIBYTE, len(result["content"][0]["text"])


async def calls_run_at_the_same_time(session: Session) -> None:
    for tool in ("meet", "meet_in_threads"):
        key = secrets.token_hex(4)
        results = await asyncio.gather(*(session.call(tool, {"key": key, "parties": 4}) for _ in range(4)))
        assert [r["content"][0]["text"] for r in results] == ["met"] * 4, results


async def answers_go_to_their_own_questions(session: Session) -> None:
    results = await asyncio.gather(*(session.call("echo", {"text": str(n)}) for n in range(32)))
    assert [r["content"][0]["text"] for r in results] == [str(n) for n in range(32)], results


async def ping_is_answered(session: Session) -> None:
    if session.has_ping:
        await session.ping()


async def resources_are_listed_and_read(session: Session) -> None:
    listed = {resource["uri"]: resource for resource in await session.resources()}
    assert listed["judged://notes"]["mimeType"] == "text/plain", listed
    (text,) = await session.read_resource("judged://notes")
    assert (text["uri"], text["text"]) == ("judged://notes", "remember the milk"), text
    (logo,) = await session.read_resource("judged://logo")
    assert base64.b64decode(logo["blob"]) == PNG, logo
    refusal = await _refused_resource(session, "judged://nothing")
    assert "judged://nothing" in refusal, refusal


async def resource_templates_are_listed_and_filled(session: Session) -> None:
    (template,) = await session.resource_templates()
    assert template["uriTemplate"] == "judged://notes/{name}", template
    (text,) = await session.read_resource("judged://notes/bread")
    assert (text["uri"], text["text"]) == ("judged://notes/bread", "remember bread"), text


async def prompts_are_listed_and_got(session: Session) -> None:
    listed = {prompt["name"]: prompt for prompt in await session.prompts()}
    arguments = {argument["name"]: argument for argument in listed["review"]["arguments"]}
    assert arguments["code"]["required"] is True, listed
    assert not arguments["tone"].get("required"), listed
    prompt = await session.get_prompt("review", {"code": "x = 1"})
    (message,) = prompt["messages"]
    assert message["role"] == "user", prompt
    assert message["content"] == {"type": "text", "text": "Review this kindly: x = 1"}, prompt


CHECKS = [
    tools_are_listed_with_their_schemas,
    text_comes_back,
    empty_text_comes_back,
    a_dictionary_comes_back_structured,
    a_dataclass_comes_back_structured,
    an_image_comes_back_with_its_type,
    other_bytes_come_back_as_a_blob,
    several_parts_come_back_in_order,
    a_raised_error_is_a_result_with_its_message,
    an_unknown_tool_is_refused_by_name,
    bad_arguments_are_refused_by_field,
    progress_arrives_in_order,
    cancelling_stops_the_tool,
    a_result_of_three_mebibytes_comes_back_whole,
    calls_run_at_the_same_time,
    answers_go_to_their_own_questions,
    ping_is_answered,
    resources_are_listed_and_read,
    resource_templates_are_listed_and_filled,
    prompts_are_listed_and_got,
]


async def _refusal(session: Session, name: str, arguments: dict[str, Any]) -> str:
    """What the server said against a call: either era may answer with an error or with an error result."""
    try:
        result = await session.call(name, arguments)
    except Refused as error:
        return str(error)
    assert result.get("isError") is True, result
    return str(result["content"][0]["text"])


async def _refused_resource(session: Session, uri: str) -> str:
    try:
        await session.read_resource(uri)
    except Refused as error:
        return str(error)
    return "it was read"


def main(connect: Connect) -> None:
    """Judge the server that the command line names; a JSON line a check, exit 1 when one failed."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--mode", default="legacy")
    parser.add_argument("--url", default="")
    parser.add_argument("--header", action="append", default=[], help="name=value")
    parser.add_argument("command", nargs="*")
    options = parser.parse_args()
    headers = dict(header.split("=", 1) for header in options.header)
    target = Target(options.url, headers, tuple(options.command), options.mode)
    sys.exit(0 if asyncio.run(_judge(connect, target)) else 1)


async def _judge(connect: Connect, target: Target) -> bool:
    passed = True
    async with connect(target) as session:
        for check in CHECKS:
            failure = await _run(check, session)
            print(json.dumps({"check": check.__name__, "failure": failure}), flush=True)
            passed = passed and failure is None
    return passed


async def _run(check: Callable[[Session], Awaitable[None]], session: Session) -> str | None:
    try:
        async with asyncio.timeout(20):
            await check(session)
    except Exception:  # boundary: whatever a foreign client raises is the finding
        return traceback.format_exc(limit=-3)
    return None
