"""The history of calls: what a runtime remembers, and what it does not."""

from __future__ import annotations

import asyncio
import json
import os
from datetime import datetime

import pytest

from aenv.inside.runtime.history import History
from conformance.engine import opened

CODE = '''
import asyncio, os
from aenv import *

@register_tool
def echo(text: str, items: list | None = None) -> str:
    """Say it back."""
    if items:
        items.clear()
    return text

@register_tool
def broken() -> str:
    raise ValueError("it broke")

@register_tool
async def hang(pipe: str) -> None:
    try:
        await asyncio.Event().wait()
    finally:
        os.close(os.open(pipe, os.O_WRONLY))

@register_function
def double(number: int) -> list[int]:
    return [number, number]

@register_function(endpoint="/plus", method="GET")
def plus(a: int, b: int) -> int:
    return a + b

@register_reward
def reward(score: float) -> float:
    return score

@register_health
def health() -> bool:
    return True

@register_reset
def reset() -> None:
    pass
'''


async def history(runtime) -> list[dict]:
    status, reply = await runtime.call("GET", "/history")
    assert (status, reply["success"]) == (200, True)
    assert reply["data"]["total"] == len(reply["data"]["calls"])
    return reply["data"]["calls"]


@pytest.mark.slow
async def test_every_kind_of_call_is_remembered_in_order(project, start):
    runtime = await start(project(CODE))
    await runtime.tool("echo", text="über")
    await runtime.call("POST", "/tools/echo", {"text": "plain"})
    await runtime.call("POST", "/functions/double", {"number": 21})
    await runtime.call("GET", "/plus?a=1&b=2")
    await runtime.call("POST", "/task/reward", {"score": 0.5})
    calls = await history(runtime)
    assert [(call["kind"], call["name"], call["arguments"], call["result_bytes"]) for call in calls] == [
        ("tool", "echo", '{"text":"über"}', 5),
        ("tool", "echo", '{"text":"plain"}', 5),
        ("function", "double", '{"number":21}', len("[21,21]")),
        ("function", "plus", '{"a":"1","b":"2"}', 1),
        ("reward", "reward", '{"score":0.5}', 3),
    ]
    assert all(call["ok"] and "error" not in call and call["duration_ms"] > 0 for call in calls)
    times = [datetime.fromisoformat(call["started_at"]) for call in calls]
    assert times == sorted(times)
    assert all(time.tzinfo for time in times)


async def test_failed_calls_say_why(project, start):
    runtime = await start(project(CODE))
    await runtime.tool("broken")
    await runtime.tool("no such tool" * 1000)
    await runtime.call("POST", "/functions/double", {"number": "x"})
    calls = await history(runtime)
    assert [call["ok"] for call in calls] == [False] * 3
    assert calls[0]["error"] == "Error calling tool 'broken': it broke"
    assert calls[1]["error"].startswith("Unknown tool")
    assert len(calls[1]["name"]) == 128
    assert "'number': input should be" in calls[2]["error"]


@pytest.mark.slow
async def test_a_call_that_its_caller_left_is_remembered(project, start, tmp_path):
    runtime = await start(project(CODE))
    os.mkfifo(tmp_path / "pipe")
    asking = asyncio.create_task(runtime.call("POST", "/tools/hang", {"pipe": str(tmp_path / "pipe")}))
    await runtime.call("GET", "/health")
    asking.cancel()
    await opened(tmp_path / "pipe")
    calls = await history(runtime)
    assert [(call["name"], call["ok"], call["error"]) for call in calls] == [("hang", False, "CancelledError")]


async def test_health_checks_resets_and_lists_are_not_calls(project, start):
    runtime = await start(project(CODE))
    await runtime.call("GET", "/health")
    await runtime.call("POST", "/task/reset", {})
    await runtime.rpc("tools/list")
    await runtime.call("GET", "/functions/list")
    assert await history(runtime) == []


@pytest.mark.slow
async def test_long_arguments_are_cut(project, start):
    runtime = await start(project(CODE))
    await runtime.tool("echo", text="ü" * 100_000)
    await runtime.tool("echo", text="x", items=[{"n": n} for n in range(100_000)])
    for call in await history(runtime):
        assert len(call["arguments"].encode()) <= 2048
        assert "…" in call["arguments"]


async def test_arguments_are_remembered_as_they_were_given(project, start):
    runtime = await start(project(CODE))
    await runtime.tool("echo", text="x", items=[1, {"a": None}])
    (call,) = await history(runtime)
    assert json.loads(call["arguments"]) == {"text": "x", "items": [1, {"a": None}]}


async def test_nothing_is_remembered_when_it_is_off(project, start):
    runtime = await start(project(CODE), "--no-history")
    assert (await runtime.tool("echo", text="secret"))["isError"] is False
    assert await runtime.call("POST", "/functions/double", {"number": 1}) == (
        200,
        {"success": True, "data": [1, 1]},
    )
    status, reply = await runtime.call("GET", "/history")
    assert (status, reply["error"]) == (404, "this instance keeps no history of its calls")


async def test_an_environments_own_history_comes_first(project, start):
    code = "from aenv import *\n@register_function(endpoint='/history', method='GET')\ndef mine(): return 'mine'"
    runtime = await start(project(code))
    assert await runtime.call("GET", "/history") == (200, {"success": True, "data": "mine"})


def test_only_the_last_calls_are_remembered():
    history = History()
    for number in range(300):
        with history.call("tool", "count", {"number": number}):
            pass
    remembered = [json.loads(call["arguments"])["number"] for call in history.as_list()]
    assert remembered == list(range(44, 300))


@pytest.mark.parametrize(
    "arguments",
    [
        {"a" * 10_000_000: 1},
        {"a": "b" * 10_000_000},
        {f"key {n}": "value" * 1000 for n in range(10_000)},
        {"key" * 500 + str(n): n for n in range(10_000)},
        {"a": [["x" * 3000] * 100] * 100},
    ],
)
def test_what_is_remembered_of_huge_arguments_is_small(arguments):
    history = History(1)
    with history.call("tool", "x", arguments):
        pass
    assert _size(history._calls[0]._arguments) < 10_000
    (call,) = history.as_list()
    assert len(call["arguments"].encode()) <= 2048
    assert "…" in call["arguments"]


def test_text_that_has_no_utf8_form_does_not_spoil_the_history():
    history = History()
    with pytest.raises(ValueError, match="bad"), history.call("tool", "\ud800", {}):
        raise ValueError("bad \ud800")
    json.dumps(history.as_list(), ensure_ascii=False).encode()


def _size(value):
    if isinstance(value, dict):
        return sum(len(key) + _size(item) for key, item in value.items())
    return sum(map(_size, value)) if isinstance(value, list) else len(str(value))
