"""Bad requests and bad clients: each gets a clear typed answer, and the server keeps serving."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import ExitStack
from typing import Any

import pytest

from tests.judges.servers import ENVIRONMENTS, Served, runtime
from tests.raw import Raw, connected, request, surviving

HOSTILE = ENVIRONMENTS / "hostile"
MEBIBYTE = 1 << 20
LIMIT = 64 * MEBIBYTE
JSON_ROUTES = ["/functions/multiply", "/tools/echo", "/task/reward", "/mcp"]


@pytest.fixture(scope="module")
def server() -> Iterator[Served]:
    with runtime(HOSTILE) as served:
        yield served


@pytest.fixture
def client(server: Served) -> Iterator[Raw]:
    with surviving(server.address) as raw:
        yield raw


# Bodies.


@pytest.mark.parametrize("path", JSON_ROUTES)
@pytest.mark.parametrize("body", [b"{", b'{"a": }', b"nonsense", b'{"a": 1} trailing', b'{"a": NaN}', b"\x00"])
def test_malformed_json_is_refused(client: Raw, path: str, body: bytes) -> None:
    reply = client.request("POST", path, body)
    assert reply.status == 400
    assert "not JSON" in reply.error()


@pytest.mark.parametrize("path", JSON_ROUTES)
def test_a_body_that_is_not_utf8_is_refused(client: Raw, path: str) -> None:
    reply = client.request("POST", path, b'{"text": "\xff\xfe"}')
    assert reply.status == 400
    assert "not JSON" in reply.error()


@pytest.mark.parametrize("path", JSON_ROUTES)
@pytest.mark.parametrize("body", [b"[]", b'"text"', b"1", b"null", b"true"])
def test_a_body_that_is_no_object_is_refused(client: Raw, path: str, body: bytes) -> None:
    reply = client.request("POST", path, body)
    assert reply.status == 400
    assert "object" in reply.error()


@pytest.mark.parametrize("path", JSON_ROUTES)
def test_absurd_nesting_is_refused(client: Raw, path: str) -> None:
    for depths in (
        b"[" * 100_000,
        b'{"text": ' * 100_000,
        b'{"text": ' + b"[" * 100_000 + b"]" * 100_000 + b"}",
    ):
        assert client.request("POST", path, depths).status == 400


@pytest.mark.parametrize("path", JSON_ROUTES)
def test_a_body_above_the_limit_is_refused_before_it_is_sent(client: Raw, path: str) -> None:
    client.send(f"POST {path} HTTP/1.1\r\nhost: localhost\r\ncontent-length: {LIMIT + 1}\r\n\r\n".encode())
    reply = client.reply()
    assert reply.status == 413
    assert "64 MiB" in reply.error()
    assert client.is_closed()


def test_a_client_that_asks_first_is_told_before_it_sends_too_much(client: Raw) -> None:
    expects = b"POST /mcp HTTP/1.1\r\nhost: localhost\r\nexpect: 100-continue\r\n"
    client.send(expects + b"content-length: %d\r\n\r\n" % (LIMIT + 1))
    assert client.reply().status == 413


def test_a_chunked_body_above_the_limit_is_refused(client: Raw) -> None:
    client.send(b"POST /tools/echo HTTP/1.1\r\nhost: localhost\r\ntransfer-encoding: chunked\r\n\r\n")
    chunk = b"%x\r\n%b\r\n" % (MEBIBYTE, b"x" * MEBIBYTE)
    for _ in range(LIMIT // MEBIBYTE):
        client.send(chunk)
    client.send(b"1\r\nx\r\n")
    reply = client.reply()
    assert reply.status == 413
    assert "64 MiB" in reply.error()


@pytest.mark.slow
def test_a_body_just_below_the_limit_is_taken(client: Raw) -> None:
    body = json.dumps({"text": "x" * (LIMIT - 100)}).encode()
    assert len(client.request("POST", "/tools/echo", body).json()["data"]["content"][0]["text"]) == LIMIT - 100


# Arguments and names.


@pytest.mark.parametrize(
    ("arguments", "named"),
    [
        ({}, "a"),
        ({"a": "many"}, "a"),
        ({"a": None}, "a"),
        ({"a": [1]}, "a"),
        ({"a": 1, "b": {}}, "b"),
        ({"a": 1, "unheard_of": 1}, "unheard_of"),
    ],
)
def test_bad_arguments_are_refused_by_field(client: Raw, arguments: dict[str, Any], named: str) -> None:
    reply = client.call("/functions/multiply", arguments)
    assert reply.status == 400
    assert f"'{named}'" in reply.error()


def test_bad_arguments_of_a_tool_are_a_result_for_the_agent(client: Raw) -> None:
    data = client.call("/tools/echo", {"txt": "hello"}).json()["data"]
    assert data["is_error"] is True
    assert "'text' is required" in data["content"][0]["text"]
    assert "did you mean 'text'?" in data["content"][0]["text"]


@pytest.mark.parametrize("path", ["/tools/nothing", "/functions/nothing", "/nothing", "/", "/tools/", "/%00%ff"])
def test_an_unknown_route_is_not_found(client: Raw, path: str) -> None:
    reply = client.call(path)
    assert reply.status == 404
    assert reply.error()


def test_an_unknown_reward_is_not_found(client: Raw) -> None:
    reply = client.call("/task/reward?name=nothing", {})
    assert reply.status == 404
    assert "'nothing'" in reply.error()
    assert "judge_answer" in reply.error()


@pytest.mark.parametrize(
    ("method", "path", "allowed"),
    [
        ("GET", "/functions/multiply", "POST"),
        ("POST", "/health", "GET"),
        ("GET", "/tools/echo", "POST"),
        ("PUT", "/task/reward", "POST"),
        ("DELETE", "/functions/list", "GET"),
        ("PUT", "/mcp", "POST"),
        ("OPTIONS", "/functions/multiply", "POST"),
    ],
)
def test_a_wrong_method_is_told_the_right_one(client: Raw, method: str, path: str, allowed: str) -> None:
    reply = client.request(method, path)
    assert reply.status == 405
    assert allowed in reply.headers["allow"]


# Connections.


def test_clients_that_never_finish_their_request_hold_up_nobody(client: Raw, server: Served) -> None:
    with ExitStack() as stack:
        for unfinished in (
            b"",
            b"GET /hea",
            b"GET /health HTTP/1.1\r\nhost: loc",
            request("POST", "/mcp", b"{")[:-1],
        ):
            for _ in range(50):
                stack.enter_context(connected(server.address)).send(unfinished)
        assert client.request("GET", "/health").status == 200
        assert client.call("/functions/multiply", {"a": 21}).json()["data"] == 42


@pytest.mark.slow  # waits for the server's own patience to end
def test_a_client_that_never_finishes_its_head_is_told_so(client: Raw) -> None:
    client.send(b"GET /health HTTP/1.1\r\n")
    assert client.reply().status == 408
    assert client.is_closed()


def test_a_half_closed_client_gets_its_answer(client: Raw) -> None:
    client.send(request("POST", "/functions/multiply", b'{"a": 21}'))
    client.socket.shutdown(1)
    assert client.reply().json()["data"] == 42


def test_pipelined_requests_are_answered_in_order(client: Raw) -> None:
    client.send(
        b"".join(request("POST", "/functions/multiply", json.dumps({"a": n}).encode()) for n in range(100))
    )
    assert [client.reply().json()["data"] for _ in range(100)] == [2 * n for n in range(100)]


@pytest.mark.parametrize("headers", [(("x", "y" * MEBIBYTE),), tuple((f"x-{n}", "y" * 100) for n in range(2000))])
def test_huge_headers_are_refused(client: Raw, headers: tuple[tuple[str, str], ...]) -> None:
    client.send(request("GET", "/health", b"", headers))
    assert client.reply().status == 431
    assert client.is_closed()


def test_a_header_that_never_ends_is_refused(client: Raw) -> None:
    client.send(b"GET /health HTTP/1.1\r\nhost: localhost\r\nx: ")
    with pytest.raises(ConnectionError):  # noqa: PT012 - whichever send it is that fails
        for _ in range(256):
            client.send(b"y" * MEBIBYTE)
        raise AssertionError("256 MiB of one header were taken")


@pytest.mark.parametrize(
    "nonsense",
    [
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + bytes(range(256)),  # a TLS hello
        b"nonsense\r\n\r\n",
        b"GET /health HTTP/9.9\r\n\r\n",
        b"GET /health HTTP/1.1\r\nno colon\r\n\r\n",
        b"POST /mcp HTTP/1.1\r\nhost: localhost\r\ncontent-length: -1\r\n\r\n",
        b"POST /mcp HTTP/1.1\r\nhost: localhost\r\ncontent-length: 2\r\ncontent-length: 3\r\n\r\n{}",
        b"POST /mcp HTTP/1.1\r\nhost: x\r\ncontent-length: 4\r\ntransfer-encoding: chunked\r\n\r\n0\r\n\r\n",
        b"POST /mcp HTTP/1.1\r\nhost: localhost\r\ntransfer-encoding: chunked\r\n\r\nzz\r\n",
        b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
    ],
)
def test_what_is_not_http_is_refused(client: Raw, nonsense: bytes) -> None:
    client.send(nonsense)
    assert client.reply().status == 400
    assert client.is_closed()


def test_a_client_that_leaves_stops_its_async_tool(client: Raw, server: Served) -> None:
    with connected(server.address) as leaving:
        leaving.send(request("POST", "/tools/waits_for_its_caller"))
        assert client.call("/tools/wait_until", {"what": "started"}).status == 200
    assert client.call("/tools/wait_until", {"what": "stopped"}).status == 200


def test_clients_that_never_read_their_answers_hold_up_nobody(client: Raw, server: Served) -> None:
    with ExitStack() as stack:
        for _ in range(4):
            deaf = stack.enter_context(connected(server.address))
            deaf.send(request("POST", "/tools/returns_megabytes", b'{"count": 20}'))
        assert client.request("GET", "/health").status == 200
        assert client.call("/functions/multiply", {"a": 21}).json()["data"] == 42


def test_a_client_that_leaves_in_the_middle_of_an_answer_is_forgotten(client: Raw, server: Served) -> None:
    with connected(server.address) as leaving:
        leaving.send(request("POST", "/tools/returns_megabytes", b'{"count": 50}'))
        assert leaving.socket.recv(1024)


@pytest.mark.parametrize("headers", [(("host", "evil.example"),), (("origin", "http://evil.example"),)])
@pytest.mark.parametrize("path", ["/mcp", "/tools/echo", "/functions/multiply", "/health"])
def test_a_rebound_name_is_refused(client: Raw, path: str, headers: tuple[tuple[str, str], ...]) -> None:
    given = dict(headers)
    client.send(
        request("POST", path, b"{}", tuple(h for h in headers if h[0] != "host"), given.get("host", "localhost"))
    )
    reply = client.reply()
    assert reply.status == 403
    assert "evil.example" in reply.error()
