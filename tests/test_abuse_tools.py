"""Bad tools: whatever the author's code does, the caller gets a clear answer, and the server keeps serving."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from tests.judges.servers import ENVIRONMENTS, Served, runtime
from tests.raw import Raw, connected, surviving

HOSTILE = ENVIRONMENTS / "hostile"
MEBIBYTE = 1 << 20
PING = json.dumps({"jsonrpc": "2.0", "id": "ping", "method": "ping"}).encode()


@pytest.fixture(scope="module")
def server() -> Iterator[Served]:
    with runtime(HOSTILE) as served:
        yield served


@pytest.fixture
def client(server: Served) -> Iterator[Raw]:
    with surviving(server.address) as raw:
        yield raw


@pytest.mark.parametrize(
    ("tool", "said"),
    [
        ("raises", "the disk is on fire"),
        ("raises_without_a_message", "ZeroDivisionError"),
        ("exits", "sys.exit(3)"),
        ("exits_from_a_coroutine", "sys.exit(3)"),
        ("interrupts", "KeyboardInterrupt"),
        ("interrupts_from_a_coroutine", "KeyboardInterrupt"),
        ("stops_iterating", "StopIteration"),
        ("cancels_itself", "cancelled itself"),
        ("recurses", "recursion"),
        ("blocks", "did not finish within 0.1 s"),
        ("blocks_a_thread", "did not finish within 0.1 s"),
        ("returns_an_object", "object"),
        ("returns_itself", "no JSON form"),
        ("returns_the_wrong_type", "count"),
    ],
)
def test_a_bad_tool_is_a_result_that_says_what_happened(client: Raw, tool: str, said: str) -> None:
    data = client.call(f"/tools/{tool}").json()["data"]
    assert data["is_error"] is True
    assert said in data["content"][0]["text"]


@pytest.mark.parametrize(
    ("function", "status", "said"),
    [
        ("function_raises", 500, "the disk is on fire"),
        ("function_exits", 500, "sys.exit(3)"),
        ("function_blocks", 504, "did not finish within 0.1 s"),
        ("function_returns_an_object", 500, "object"),
    ],
)
def test_a_bad_function_is_an_error_that_says_what_happened(
    client: Raw, function: str, status: int, said: str
) -> None:
    reply = client.call(f"/functions/{function}")
    assert reply.status == status
    assert reply.json()["success"] is False
    assert said in reply.error()


def test_text_without_a_utf8_form_is_an_error_that_says_so(client: Raw) -> None:
    reply = client.call("/tools/returns_a_lone_surrogate")
    assert reply.status == 500
    assert "surrogates not allowed" in reply.error()
    params = {"name": "returns_a_lone_surrogate", "arguments": {}}
    reply = client.call("/mcp", {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params})
    assert reply.json()["result"]["isError"] is True
    assert "surrogates not allowed" in reply.json()["result"]["content"][0]["text"]


def test_numbers_without_a_json_form_come_back_as_null(client: Raw) -> None:
    data = client.call("/tools/returns_not_a_number").json()["data"]
    assert json.loads(data["content"][0]["text"]) == {"values": [None, None]}


def test_a_result_of_a_hundred_megabytes_is_refused_with_the_limit(client: Raw) -> None:
    reply = client.call("/tools/returns_megabytes", {"count": 100})
    assert len(reply.body) < MEBIBYTE
    assert "64 MiB" in reply.body.decode()


def test_tools_that_block_their_threads_forever_starve_nobody(client: Raw, server: Served) -> None:
    def block(_: int) -> str:
        with connected(server.address) as raw:
            return str(raw.call("/tools/blocks_a_thread").json()["data"]["content"][0]["text"])

    with ThreadPoolExecutor(64) as pool:
        answers = list(pool.map(block, range(64)))
    assert all("did not finish" in answer for answer in answers)
    assert client.call("/functions/multiply", {"a": 21}).json()["data"] == 42


def test_the_call_timeout_of_the_runtime_ends_a_tool_without_one_of_its_own() -> None:
    with runtime(HOSTILE, "--call-timeout", "0.2") as impatient, surviving(impatient.address) as raw:
        data = raw.call("/tools/waits_for_its_caller").json()["data"]
        assert "did not finish within 0.2 s" in data["content"][0]["text"]
        assert raw.call("/tools/wait_until", {"what": "stopped"}).json()["data"]["is_error"] is False


def test_what_a_tool_prints_stays_out_of_the_stdio_protocol() -> None:
    call = {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": {"name": "prints", "arguments": {}}}
    answers, complaints = _over_stdio([json.dumps(call).encode(), PING])
    assert [answer["id"] for answer in answers] == [1, "ping"]
    assert answers[0]["result"]["content"] == [{"type": "text", "text": "printed"}]
    assert "a line that is not JSON" in complaints


@pytest.mark.slow
@pytest.mark.parametrize("line", [b"nonsense", b"[]", b"\xff\xfe", b"[" * 100_000, b'{"jsonrpc": "1.0"}', b"null"])
def test_a_bad_line_on_stdio_is_answered_and_forgotten(line: bytes) -> None:
    answers, _ = _over_stdio([line, PING])
    assert [("error" in answer, answer["id"]) for answer in answers] == [(True, None), (False, "ping")]


def _over_stdio(lines: list[bytes]) -> tuple[list[dict[str, Any]], str]:
    """The answers to `lines`, each awaited before the next is sent, and what the server said on stderr."""
    process = subprocess.Popen(
        [sys.executable, "-m", "aenv.main", str(HOSTILE), "--stdio"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    with process:
        assert process.stdin
        assert process.stdout
        answers = []
        for line in lines:
            process.stdin.write(line + b"\n")
            process.stdin.flush()
            answers.append(json.loads(process.stdout.readline()))
        _, complaints = process.communicate()
    assert process.returncode == 0
    return answers, complaints.decode()
