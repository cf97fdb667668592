"""MCP over HTTP, message by message: what each era asks for, and what contradictions are told."""

from __future__ import annotations

import json

import pytest

from aenv.base import mcp

TOOLS = """
from aenv import *

@register_tool
def echo(text: str) -> str:
    return text

@register_tool
def huge(mebibytes: int) -> str:
    return "x" * (mebibytes << 20)

@register_resource("note://{name}", mime_type="text/markdown")
def note(name: str) -> str:
    '''A note.'''
    return f"# {name}"

@register_resource("data://blob")
def blob() -> bytes:
    return b"\\x00\\x01"

@register_prompt
def review(code: str, style: str = "short") -> list:
    '''Review code.

    Args:
        code: What to review.
    '''
    return [{"role": "user", "content": code}, {"role": "assistant", "content": style}]
"""

META = {mcp.VERSION_META: mcp.STATELESS_VERSION, mcp.CAPABILITIES_META: {}}
CALL = {"name": "echo", "arguments": {"text": "hi"}}
HEADERS = {
    "mcp-protocol-version": mcp.STATELESS_VERSION,
    "mcp-method": "tools/call",
    "mcp-name": "echo",
    "accept": "application/json, text/event-stream",
}


@pytest.fixture
async def runtime(project, start):
    return await start(project(TOOLS))


async def post(runtime, method, params, headers=None, id=1):
    body = mcp.dumps(mcp.request(id, method, params))
    response, reply = await runtime.request("POST", "/mcp", body, headers or {})
    return response, json.loads(reply)


async def test_a_stateless_call_stands_alone(runtime):
    response, reply = await post(runtime, "tools/call", {**CALL, "_meta": META}, HEADERS)
    assert response.status == 200
    assert reply["result"] == {
        "content": [{"type": "text", "text": "hi"}],
        "isError": False,
        "resultType": "complete",
        "_meta": {mcp.SERVER_INFO_META: {"name": "aenv-server", "version": "1.0.0"}},
    }


async def test_discover_tells_versions_and_capabilities(runtime):
    headers = {**HEADERS, "mcp-method": "server/discover"}
    _, reply = await post(runtime, "server/discover", {"_meta": META}, headers)
    result = reply["result"]
    assert result["supportedVersions"] == [
        *("2026-07-28", "2025-11-25", "2025-06-18", "2025-03-26", "2024-11-05"),
    ]
    assert result["capabilities"].keys() == {"tools", "resources", "prompts"}
    assert (result["resultType"], result["cacheScope"]) == ("complete", "private")


@pytest.mark.slow
@pytest.mark.parametrize(
    ("headers", "meta", "code"),
    [
        ({"mcp-method": "tools/list"}, META, mcp.HEADER_MISMATCH),
        ({"mcp-name": "other"}, META, mcp.HEADER_MISMATCH),
        ({"mcp-name": "=?base64?broken?="}, META, mcp.HEADER_MISMATCH),
        ({"mcp-protocol-version": "2025-11-25"}, META, mcp.HEADER_MISMATCH),
        ({}, {mcp.CAPABILITIES_META: {}}, mcp.INVALID_PARAMS),
        ({}, {mcp.VERSION_META: mcp.STATELESS_VERSION}, mcp.INVALID_PARAMS),
        (
            {"mcp-protocol-version": "2030-01-01"},
            {mcp.VERSION_META: "2030-01-01", mcp.CAPABILITIES_META: {}},
            mcp.UNSUPPORTED_VERSION,
        ),
    ],
)
async def test_a_stateless_request_that_contradicts_itself_is_refused(runtime, headers, meta, code):
    response, reply = await post(runtime, "tools/call", {**CALL, "_meta": meta}, {**HEADERS, **headers})
    assert (response.status, reply["error"]["code"]) == (400, code)


async def test_an_unknown_version_in_the_header_alone_is_told_what_there_is(runtime):
    response, reply = await post(runtime, "tools/list", {}, {"mcp-protocol-version": "2030-01-01"})
    assert response.status == 400
    assert reply["error"]["data"] == {"supported": ["2026-07-28"], "requested": "2030-01-01"}


async def test_a_name_that_no_header_can_hold_is_sent_in_base64(project, start):
    runtime = await start(project("from aenv import *\n@register_tool(name='größe')\ndef f() -> str: return 'ok'"))
    headers = {**HEADERS, "mcp-name": mcp.encode_header("größe")}
    _, reply = await post(runtime, "tools/call", {"name": "größe", "arguments": {}, "_meta": META}, headers)
    assert reply["result"]["content"][0]["text"] == "ok"


async def test_a_handshake_gives_a_session_and_the_version_that_was_asked_for(runtime):
    response, reply = await post(runtime, "initialize", {"protocolVersion": "2025-03-26"})
    assert reply["result"]["protocolVersion"] == "2025-03-26"
    assert len(response.header(b"mcp-session-id")) == 32
    _, reply = await post(runtime, "initialize", {"protocolVersion": "1999-01-01"})
    assert reply["result"]["protocolVersion"] == "2025-11-25"


async def test_an_unknown_method_is_404_with_its_code(runtime):
    response, reply = await post(runtime, "tools/forget", {})
    assert (response.status, reply["error"]["code"]) == (404, mcp.METHOD_NOT_FOUND)


async def test_a_client_that_takes_only_events_gets_one(runtime):
    body = mcp.dumps(mcp.request(1, "tools/list", {}))
    response, reply = await runtime.request("POST", "/mcp", body, {"accept": "text/event-stream"})
    assert response.header(b"content-type") == "text/event-stream"
    (event,) = mcp.SseParser().feed(reply)
    assert json.loads(event)["result"]["tools"][0]["name"] == "echo"


async def test_other_methods_and_types_are_refused(runtime):
    for method, headers, status in (("GET", {}, 405), ("PUT", {}, 405), ("POST", {"accept": "image/png"}, 406)):
        response, _ = await runtime.request(method, "/mcp", b"{}", headers)
        assert response.status == status
    assert (await runtime.request("DELETE", "/mcp"))[0].status == 200


async def test_a_result_above_one_mebibyte_is_plain_json(runtime):
    params = {"name": "huge", "arguments": {"mebibytes": 3}}
    response, reply = await post(runtime, "tools/call", params, {"accept": "application/json, text/event-stream"})
    assert response.header(b"content-type") == "application/json"
    assert len(reply["result"]["content"][0]["text"]) == 3 << 20


@pytest.mark.slow
async def test_a_result_above_the_limit_is_a_failure_that_names_it(runtime):
    _, reply = await post(runtime, "tools/call", {"name": "huge", "arguments": {"mebibytes": 65}})
    assert reply["result"]["isError"] is True
    assert "more than the limit of 64 MiB" in reply["result"]["content"][0]["text"]


async def test_resources_are_listed_and_read(runtime):
    _, listed = await post(runtime, "resources/list", {})
    assert [resource["uri"] for resource in listed["result"]["resources"]] == ["data://blob"]
    _, templates = await post(runtime, "resources/templates/list", {})
    assert templates["result"]["resourceTemplates"][0]["uriTemplate"] == "note://{name}"
    _, read = await post(runtime, "resources/read", {"uri": "note://to%20do"})
    assert read["result"]["contents"] == [
        {"uri": "note://to%20do", "mimeType": "text/markdown", "text": "# to do"}
    ]
    _, read = await post(runtime, "resources/read", {"uri": "data://blob"})
    assert read["result"]["contents"][0]["blob"] == "AAE="
    _, missing = await post(runtime, "resources/read", {"uri": "note://a/b"})
    assert missing["error"]["code"] == mcp.RESOURCE_NOT_FOUND


async def test_prompts_are_listed_and_rendered(runtime):
    _, listed = await post(runtime, "prompts/list", {})
    assert listed["result"]["prompts"] == [
        {
            "name": "review",
            "description": "Review code.",
            "arguments": [
                {"name": "code", "description": "What to review.", "required": True},
                {"name": "style", "description": "", "required": False},
            ],
        }
    ]
    _, got = await post(runtime, "prompts/get", {"name": "review", "arguments": {"code": "x = 1"}})
    assert got["result"]["messages"] == [
        {"role": "user", "content": {"type": "text", "text": "x = 1"}},
        {"role": "assistant", "content": {"type": "text", "text": "short"}},
    ]
    _, bad = await post(runtime, "prompts/get", {"name": "review", "arguments": {}})
    assert "'code' is required" in bad["error"]["message"]


@pytest.mark.parametrize("value", ["plain", "mit ü", " edge ", "=?base64?x?=", "tab\t", ""])
def test_header_values_survive_the_way(value):
    encoded = mcp.encode_header(value)
    assert encoded.isascii()
    assert mcp.decode_header(encoded) == value


def test_events_are_split_whatever_the_line_ends_and_chunks():
    parser = mcp.SseParser()
    stream = b": ping\r\n\r\nevent: message\r\ndata: one\r\n\r\ndata: two\ndata: lines\n\nid: 5\ndata:x\n\n"
    events = [event for index in range(len(stream)) for event in parser.feed(stream[index : index + 1])]
    assert events == [b"one", b"two\nlines", b"x"]
