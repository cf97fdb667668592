"""Fuzzing: whatever arrives, the runtime answers below 500 (but for a function's own failure) and goes on.

The examples are the same in every run (`derandomize`), so that a red run can be repeated; to explore, take
that out and raise the count.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest
import schemathesis
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.judges.servers import ENVIRONMENTS, Served, runtime
from tests.raw import connected, request

pytestmark = pytest.mark.slow  # hundreds of requests

OWN_FAILURES = {"the function gave up"}

fuzzed = settings(
    derandomize=True,
    deadline=None,
    max_examples=200,
    suppress_health_check=list(HealthCheck),  # one server for all examples; some descriptions generate slowly
)


@pytest.fixture(scope="module")
def server() -> Iterator[Served]:
    with runtime(ENVIRONMENTS / "portable") as served:
        yield served
        _assert_serving(served)


def _assert_serving(server: Served) -> None:
    with connected(server.address) as raw:
        assert raw.request("GET", "/health").json()["success"] is True
        assert raw.call("/functions/multiply", {"a": 6, "b": 7}).json() == {"success": True, "data": 42}


# Requests that are HTTP, made from a description of the routes.


def _described(server: Served) -> dict[str, Any]:
    """An OpenAPI document of the runtime: its fixed routes, its functions and its tools."""
    with connected(server.address) as raw:
        listed = raw.request("GET", "/functions/list").json()["data"]
    paths: dict[str, Any] = {
        "/health": {"get": _operation()},
        "/functions/list": {"get": _operation()},
        "/task/reset": {"post": _operation({"properties": {"seed": {"type": "integer"}}})},
        "/mcp": {"post": _operation({"properties": {"jsonrpc": {"const": "2.0"}, "method": {"type": "string"}}})},
    }
    for function in listed["functions"] + listed["reward"]:
        properties = {name: {"type": entry["type"]} for name, entry in function["parameters"].items()}
        required = [name for name, entry in function["parameters"].items() if entry["default"] is None]
        schema = {"properties": properties, "required": required}
        paths[function["endpoint"]] = {function["method"].lower(): _operation(schema)}
    for tool in server.tools:
        paths[f"/tools/{tool['name']}"] = {"post": _operation(tool["inputSchema"])}
    return {"openapi": "3.1.0", "info": {"title": "runtime", "version": "1"}, "paths": paths}


def _operation(body: dict[str, Any] | None = None) -> dict[str, Any]:
    operation: dict[str, Any] = {"responses": {"default": {"description": "an answer"}}}
    if body is not None:
        schema = {"type": "object", **body}
        operation["requestBody"] = {"content": {"application/json": {"schema": schema}}, "required": True}
    return operation


def test_no_request_breaks_the_server(server: Served) -> None:
    schema = schemathesis.openapi.from_dict(_described(server))
    operations = [found.ok() for found in schema.get_all_operations()]
    modes = schemathesis.GenerationMode
    cases = st.one_of(
        [
            operation.as_strategy(generation_mode=mode)
            for operation in operations
            for mode in (modes.POSITIVE, modes.NEGATIVE)
        ]
    )

    @fuzzed
    @given(case=cases)
    def answers(case: Any) -> None:
        response = case.call(base_url=server.address)
        body = response.json() if response.content else {}
        own = response.status_code == 500 and body.get("error") in OWN_FAILURES
        assert response.status_code < 500 or own, (case.method, case.path, case.body, response.content)

    answers()
    _assert_serving(server)


# JSON-RPC messages that are nearly right, in both eras.

_JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=8,
)
_METHODS = [
    "initialize",
    "notifications/cancelled",
    "notifications/initialized",
    "ping",
    "prompts/get",
    "prompts/list",
    "resources/read",
    "resources/templates/list",
    "server/discover",
    "tools/call",
    "tools/list",
]
_VERSIONS = ["2024-11-05", "2025-11-25", "2026-07-28", "1999-01-01"]


@st.composite
def _message(draw: st.DrawFn) -> tuple[dict[str, Any], dict[str, str]]:
    """A message and its headers: each part right, or anything."""
    method = draw(st.sampled_from(_METHODS) | st.text(st.characters(codec="ascii", categories=["L"]), min_size=1))
    name = draw(st.sampled_from(["echo", "add", "fail"]))
    version = draw(st.sampled_from(_VERSIONS))
    meta = {
        "io.modelcontextprotocol/protocolVersion": version,
        "io.modelcontextprotocol/clientCapabilities": {},
        "progressToken": draw(_JSON),
    }
    params = {
        "name": draw(st.just(name) | _JSON),
        "arguments": draw(st.just({"text": "hello"}) | _JSON),
        "uri": draw(_JSON),
        "cursor": draw(_JSON),
        "requestId": draw(_JSON),
        "protocolVersion": draw(st.just(version) | _JSON),
        "_meta": draw(st.just(meta) | _JSON),
    }
    kept = draw(st.sets(st.sampled_from(sorted(params))))
    message = {
        "jsonrpc": draw(st.just("2.0") | _JSON),
        "id": draw(st.integers() | st.text() | _JSON),
        "method": draw(st.just(method) | _JSON),
        "params": draw(st.just({key: params[key] for key in sorted(kept)}) | _JSON),
    }
    if draw(st.booleans()):
        del message["id"]
    headers = {
        "accept": draw(st.sampled_from(["application/json", "text/event-stream", "*/*", "image/png"])),
        "mcp-protocol-version": version,
        "mcp-method": method,
        "mcp-name": name,
        "mcp-session-id": "abc",
    }
    return message, {key: headers[key] for key in draw(st.sets(st.sampled_from(sorted(headers))))}


@fuzzed
@given(sent=_message())
def test_no_json_rpc_message_breaks_the_server(
    server: Served, sent: tuple[dict[str, Any], dict[str, str]]
) -> None:
    message, headers = sent
    with connected(server.address) as raw:
        reply = raw.request("POST", "/mcp", json.dumps(message).encode(), tuple(headers.items()))
        assert reply.status < 500, reply.body
        assert raw.request("GET", "/health").status == 200  # on the same connection: nothing was left on it


# Bytes that are nearly HTTP, or not at all.

_VALID = [
    request("GET", "/health"),
    request("POST", "/functions/multiply", b'{"a": 6, "b": 7}'),
    request("POST", "/tools/echo", b'{"text": "hello"}', (("content-type", "application/json"),)),
    request(
        "POST",
        "/mcp",
        json.dumps({"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": {"name": "echo"}}).encode(),
        (("accept", "application/json, text/event-stream"),),
    ),
    b"POST /tools/echo HTTP/1.1\r\nhost: x\r\ntransfer-encoding: chunked\r\n\r\n4\r\n{}  \r\n0\r\n\r\n",
]


@st.composite
def _mutated(draw: st.DrawFn) -> bytes:
    """A valid request with a few places overwritten, cut out or doubled."""
    data = bytearray(draw(st.sampled_from(_VALID)))
    for _ in range(draw(st.integers(1, 4))):
        start = draw(st.integers(0, len(data)))
        end = min(len(data), start + draw(st.integers(0, 12)))
        doubled = st.just(bytes(data[start:end]) * 2)
        data[start:end] = draw(st.one_of(st.binary(max_size=12), st.just(b""), doubled))
    return bytes(data)


@fuzzed
@given(data=st.one_of(st.binary(max_size=200), _mutated(), st.tuples(_mutated(), _mutated()).map(b"".join)))
def test_no_bytes_break_the_server(server: Served, data: bytes) -> None:
    with connected(server.address) as raw:
        raw.send(data)
        raw.socket.shutdown(1)
        answer = bytearray()
        try:
            while part := raw.socket.recv(1 << 16):
                answer += part
        except ConnectionResetError:
            pass  # refused before it had read all of it
    assert b"HTTP/1.1 5" not in answer, (data, bytes(answer))
    _assert_serving(server)
