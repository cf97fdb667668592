"""The runtime as its users meet it: a child process, spoken to over HTTP."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import socket
import subprocess
import sys

import pytest

from aenv.base import mcp
from tests.running import DidNotStart, running_runtime

BASICS = '''
import asyncio, json, os, sys, threading
from pathlib import Path
from aenv import *

@register_tool
def echo(text: str) -> dict:
    """Echo."""
    return {"result": text}

@register_tool(name="renamed", description="Told.", annotations={"readOnlyHint": True})
def original() -> str:
    return "r"

@register_tool(hidden=True)
def secret() -> str:
    return "s"

@register_function
async def add(a: int, b: int = 1) -> int:
    return a + b

@register_function(endpoint="/score", method="GET")
def score(points: list[int], name: str = "x") -> dict:
    return {"total": sum(points), "name": name}

@register_function
def broken():
    raise ValueError("it broke")

@register_reward
def first(x: float = 1.0) -> float:
    return x

@register_reward(name="strict")
def second() -> float:
    return -1.0

state = {"seed": None}

@register_reset
def reset(seed: int | None = None, **options):
    state.update(seed=seed, **options)
    return state
'''


async def test_tools_are_listed_as_they_were_registered(project, start):
    runtime = await start(project(BASICS))
    tools = (await runtime.rpc("tools/list"))["result"]["tools"]
    assert [tool["name"] for tool in tools] == ["echo", "renamed"]
    assert tools[1]["description"] == "Told."
    assert tools[1]["annotations"] == {"readOnlyHint": True}
    assert runtime.ready["tools"] == tools


async def test_a_bare_call_needs_no_handshake_and_no_session(project, start):
    runtime = await start(project(BASICS))
    result = await runtime.tool("echo", text="hi")
    assert result == {
        "content": [{"type": "text", "text": '{"result":"hi"}'}],
        "isError": False,
        "structuredContent": {"result": "hi"},
    }
    assert (await runtime.tool("secret"))["content"][0]["text"] == "s"


async def test_a_tool_can_be_called_as_plain_json(project, start):
    runtime = await start(project(BASICS))
    assert await runtime.call("POST", "/tools/echo", {"text": "hi"}) == (
        200,
        {
            "success": True,
            "data": {
                "content": [{"type": "text", "text": '{"result":"hi"}'}],
                "is_error": False,
                "structured": {"result": "hi"},
            },
        },
    )
    assert (await runtime.call("POST", "/tools/none"))[0] == 404


async def test_functions_answer_at_their_endpoints_and_by_name(project, start):
    runtime = await start(project(BASICS))
    assert await runtime.call("POST", "/functions/add", {"a": 2}) == (200, {"success": True, "data": 3})
    assert (await runtime.call("GET", "/score?points=[1,2]&name=me"))[1]["data"] == {"total": 3, "name": "me"}
    assert (await runtime.call("POST", "/functions/score", {"points": [4]}))[1]["data"]["total"] == 4
    status, reply = await runtime.call("POST", "/functions/broken")
    assert (status, reply) == (500, {"success": False, "error": "it broke"})
    status, reply = await runtime.call("POST", "/functions/add", {"a": "x"})
    assert status == 400
    assert "'a': input should be a valid integer" in reply["error"]


async def test_the_function_list_has_the_published_shape(project, start):
    runtime = await start(project(BASICS))
    listed = (await runtime.call("GET", "/functions/list"))[1]["data"]
    assert listed["total"] == 6
    assert [f["name"] for f in listed["functions"]] == ["add", "score", "broken"]
    assert listed["functions"][0] == {
        "name": "add",
        "endpoint": "/functions/add",
        "method": "POST",
        "description": "",
        "parameters": {"a": {"type": "integer", "default": None}, "b": {"type": "integer", "default": "1"}},
        "is_async": True,
    }
    assert [f["name"] for f in listed["reward"]] == ["first", "strict"]
    assert [f["name"] for f in listed["health"]] == ["default_health_handler"]


async def test_the_first_reward_is_the_default_and_others_go_by_name(project, start):
    runtime = await start(project(BASICS))
    assert (await runtime.call("POST", "/task/reward", {"x": 3}))[1]["data"] == 3.0
    assert (await runtime.call("POST", "/task/reward?name=strict"))[1]["data"] == -1.0
    status, reply = await runtime.call("POST", "/task/reward?name=none")
    assert status == 404
    assert "it has first, strict" in reply["error"]


@pytest.mark.slow
async def test_reset_starts_over_with_seed_and_options(project, start):
    runtime = await start(project(BASICS))
    reply = await runtime.call("POST", "/task/reset", {"seed": 7, "options": {"level": 2}})
    assert reply == (200, {"success": True, "data": {"seed": 7, "level": 2}})
    bare = await start(project("from aenv import *"))
    assert (await bare.call("POST", "/task/reset", {}))[0] == 404


@pytest.mark.slow
async def test_the_default_health_answer_has_the_published_shape(project, start):
    runtime = await start(project(BASICS))
    status, reply = await runtime.call("GET", "/health")
    assert status == 200
    assert reply["data"].keys() == {"status", "message", "details", "last_active"}
    assert (reply["success"], reply["data"]["status"]) == (True, "success")
    assert reply["data"]["details"] == {"tool_count": 2}


@pytest.mark.slow
async def test_a_registered_health_check_replaces_the_default(project, start):
    code = "from aenv import *\n@register_health\ndef h(deep: bool = False): return {'status': 'ok', 'deep': deep}"
    runtime = await start(project(code))
    assert (await runtime.call("GET", "/health?deep=true"))[1]["data"] == {"status": "ok", "deep": True}
    failing = await start(project("from aenv import *\n@register_health\ndef h(): raise OSError('disk')"))
    assert (await failing.call("GET", "/health"))[1]["data"]["status"] == "error"


BLOCKING = """
import asyncio, time, threading
from aenv import *
gate = threading.Event()

@register_tool
def block():
    gate.wait()

@register_tool
def open_gate():
    gate.set()

@register_tool(timeout=0.05)
def hang():
    threading.Event().wait()
"""


async def test_a_blocked_tool_delays_neither_health_nor_other_calls(project, start):
    runtime = await start(project(BLOCKING))
    blocked = [asyncio.ensure_future(runtime.tool("block")) for _ in range(8)]
    await runtime.call("GET", "/health")
    assert not any(call.done() for call in blocked)
    await runtime.tool("open_gate")
    assert [result["isError"] for result in await asyncio.gather(*blocked)] == [False] * 8


async def test_a_tool_that_never_returns_is_given_up_after_its_timeout(project, start):
    runtime = await start(project(BLOCKING))
    # More than there are threads: abandoned ones must not starve the next call.
    results = await asyncio.gather(*(runtime.tool("hang") for _ in range(40)))
    assert {r["content"][0]["text"] for r in results} == {"'hang' did not finish within 0.05 s"}
    assert (await runtime.tool("open_gate"))["isError"] is False


CANCELLING = """
import asyncio
from aenv import *
log = []

@register_tool
async def wait():
    log.append("started")
    try:
        await asyncio.Event().wait()
    finally:
        log.append("stopped")

@register_tool
async def history(length: int) -> list[str]:
    while len(log) < length:
        await asyncio.sleep(0.001)
    return log
"""


@pytest.mark.slow
async def test_a_client_that_disconnects_stops_its_async_tool(project, start):
    runtime = await start(project(CANCELLING))
    call = asyncio.ensure_future(runtime.tool("wait"))
    await runtime.tool("history", length=1)
    call.cancel()
    assert (await runtime.tool("history", length=2))["structuredContent"]["result"] == ["started", "stopped"]


@pytest.mark.slow
async def test_an_mcp_cancellation_stops_the_call_of_its_session_only(project, start):
    runtime = await start(project(CANCELLING))
    headers = {"mcp-session-id": "one", "content-type": "application/json"}
    body = mcp.dumps(mcp.request(5, "tools/call", {"name": "wait", "arguments": {}}))
    call = asyncio.ensure_future(runtime.request("POST", "/mcp", body, headers))
    await runtime.tool("history", length=1)
    cancel = mcp.dumps(mcp.notification("notifications/cancelled", {"requestId": 5}))
    response, _ = await runtime.request("POST", "/mcp", cancel, {"mcp-session-id": "another"})
    assert response.status == 202
    assert not call.done()
    await runtime.request("POST", "/mcp", cancel, headers)
    _, reply = await call
    assert json.loads(reply)["error"]["message"] == "the call was cancelled"
    assert (await runtime.tool("history", length=2))["structuredContent"]["result"] == ["started", "stopped"]


INJECTED = """
import os
from typing import Annotated
from aenv import *
events = []

def open_db(context: Context):
    events.append("open")
    yield {"id": context.id}
    (context.workspace / "closed").write_text("yes")

async def per_call():
    events.append("enter")
    yield "resource"
    events.append("leave")

@register_tool
def instance_scoped(db: Annotated[dict, Depends(open_db)]) -> dict:
    return db

@register_tool
async def call_scoped(thing: str = Depends(per_call, scope="call")) -> str:
    return thing

@register_tool
def seen() -> list[str]:
    return events

@register_tool
def about(context: Context) -> dict:
    return {
        "id": context.id, "environment": context.environment, "workspace": str(context.workspace),
        "arguments": context.arguments, "variable": context.variables["COLOUR"],
    }
"""


async def test_context_tells_the_instance(project, start, tmp_path):
    runtime = await start(
        project(INJECTED),
        "--",
        "--verbose",
        "x",
        AENV_INSTANCE_ID="i-1",
        AENV_ENVIRONMENT="env@2.0",
        AENV_WORKSPACE=str(tmp_path),
        COLOUR="red",
    )
    assert (await runtime.tool("about"))["structuredContent"] == {
        "id": "i-1",
        "environment": "env@2.0",
        "workspace": str(tmp_path),
        "arguments": ["--verbose", "x"],
        "variable": "red",
    }


async def test_a_resource_is_made_once_per_instance_or_once_per_call_and_closed_at_its_end(
    project, start, tmp_path
):
    path = project(INJECTED)
    async with running_runtime(path, variables={"AENV_WORKSPACE": str(tmp_path)}) as runtime:
        await asyncio.gather(*(runtime.tool("instance_scoped") for _ in range(5)))
        await runtime.tool("call_scoped")
        await runtime.tool("call_scoped")
        assert (await runtime.tool("seen"))["structuredContent"]["result"] == [
            *("open", "enter", "leave", "enter", "leave")
        ]
        assert not (tmp_path / "closed").exists()
    assert (tmp_path / "closed").read_text() == "yes"


PROGRESS = """
from aenv import *

@register_tool
def sync_steps(context: Context) -> str:
    for n in range(3):
        context.progress(n, 3, f"step {n}")
    return "done"

@register_tool
async def async_steps(context: Context) -> str:
    await context.progress(1)
    return "done"
"""


@pytest.mark.slow
async def test_progress_comes_as_events_before_the_result(project, start):
    runtime = await start(project(PROGRESS))
    params = {"name": "sync_steps", "arguments": {}, "_meta": {"progressToken": "t"}}
    body = mcp.dumps(mcp.request(1, "tools/call", params))
    accept = {"accept": "application/json, text/event-stream"}
    response, reply = await runtime.request("POST", "/mcp", body, accept)
    assert response.header(b"content-type") == "text/event-stream"
    *progress, last = [json.loads(event) for event in mcp.SseParser().feed(reply)]
    assert [p["params"] for p in progress] == [
        {"progressToken": "t", "progress": n, "total": 3, "message": f"step {n}"} for n in range(3)
    ]
    assert last["result"]["content"][0]["text"] == "done"


async def test_a_client_that_takes_only_json_gets_json_whatever_the_tool_reports(project, start):
    runtime = await start(project(PROGRESS))
    params = {"name": "async_steps", "arguments": {}, "_meta": {"progressToken": 1}}
    body = mcp.dumps(mcp.request(1, "tools/call", params))
    response, reply = await runtime.request("POST", "/mcp", body, {"accept": "application/json"})
    assert response.header(b"content-type") == "application/json"
    assert json.loads(reply)["result"]["content"][0]["text"] == "done"


async def test_lazy_imports_inside_tools_work_and_shared_modules_run_once(project, start):
    path = project(
        "from aenv import *\nimport shared_code\n"
        "@register_tool\ndef late() -> str:\n    import only_later\n    return only_later.VALUE"
    )
    (path / "src" / "shared_code.py").write_text(
        "from aenv import *\n@register_tool\ndef common() -> str: return 'c'"
    )
    (path / "src" / "only_later.py").write_text("VALUE = 'later'")
    (path / "src" / "types.py").write_text("from aenv import *\n@register_tool\ndef typed() -> str: return 't'")
    runtime = await start(path)
    assert {tool["name"] for tool in runtime.ready["tools"]} == {"common", "late", "typed"}
    assert (await runtime.tool("late"))["content"][0]["text"] == "later"


@pytest.mark.slow
async def test_a_file_that_was_imported_by_another_name_is_not_executed_again(project, start):
    path = project(
        "import sys\nfrom pathlib import Path\nsys.path.insert(0, str(Path(__file__).parent / 'z'))\nimport a"
    )
    (path / "src" / "z").mkdir()
    (path / "src" / "z" / "a.py").write_text("from aenv import *\n@register_tool\ndef once() -> str: return 'o'")
    runtime = await start(path)
    assert [tool["name"] for tool in runtime.ready["tools"]] == ["once"]


async def test_tests_hidden_files_and_virtual_environments_are_not_executed(project, start):
    path = project("from aenv import *\n@register_tool\ndef tool() -> str: return 't'")
    for name in (
        "test_x.py",
        "x_test.py",
        "conftest.py",
        "_private.py",
        ".hidden.py",
        "tests/deep.py",
        "env/x.py",
    ):
        file = path / "src" / name
        file.parent.mkdir(exist_ok=True)
        file.write_text("raise SystemExit('executed')")
    (path / "src" / "env" / "pyvenv.cfg").touch()
    runtime = await start(path)
    assert [tool["name"] for tool in runtime.ready["tools"]] == ["tool"]


async def test_a_file_that_fails_to_load_fails_the_start_with_its_traceback(project):
    path = project("from aenv import *\n@register_tool\ndef fine(): ...\n1 / 0")
    with pytest.raises(DidNotStart, match=r"custom_env\.py failed to load") as caught:
        async with running_runtime(path):
            pass
    assert "ZeroDivisionError" in str(caught.value)
    assert 'custom_env.py", line 4' in str(caught.value)


@pytest.mark.parametrize(
    ("code", "said"),
    [
        ("x = 1\ndef f(:\n    pass", "custom_env.py failed to load: line 2: SyntaxError: invalid syntax"),
        ("import other", "custom_env.py failed to load: other.py, line 3: ValueError: wrong"),
        ("from json import nothing", "custom_env.py failed to load: line 1: ImportError: cannot import name"),
        ("import json\njson.loads('{')", "custom_env.py failed to load: line 2: JSONDecodeError: Expecting"),
    ],
)
async def test_the_first_line_about_a_file_that_fails_to_load_has_the_line_in_the_authors_code(
    project, code: str, said: str
):
    path = project(code)
    (path / "src" / "other.py").write_text("\n\nraise ValueError('wrong\\nin two lines')")
    with pytest.raises(DidNotStart) as caught:
        async with running_runtime(path):
            pass
    lines = str(caught.value).splitlines()
    first = next(number for number, line in enumerate(lines) if said in line)
    assert lines[first + 1] == "Traceback (most recent call last):"


async def test_lenient_leaves_out_the_file_that_fails(project, start):
    path = project("from aenv import *\n@register_tool\ndef fine(): ...")
    (path / "src" / "broken.py").write_text("import does_not_exist")
    runtime = await start(path, "--lenient")
    assert [tool["name"] for tool in runtime.ready["tools"]] == ["fine"]


async def test_the_runtime_serves_an_inherited_unix_socket_and_stops_cleanly(project, tmp_path):
    listener = socket.socket(socket.AF_UNIX)
    listener.bind(str(tmp_path / "sock"))
    ready_read, ready_write = os.pipe()
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "aenv.main", str(project(BASICS))),
        *("--fd", str(listener.fileno()), "--ready-fd", str(ready_write)),
        pass_fds=(listener.fileno(), ready_write),
    )
    listener.close()
    os.close(ready_write)
    with os.fdopen(ready_read, "rb") as pipe:
        lines = await asyncio.to_thread(pipe.read)
    assert lines.count(b"\n") == 1
    assert json.loads(lines)["address"] == "fd"
    reader, writer = await asyncio.open_unix_connection(tmp_path / "sock")
    writer.write(b"GET /health HTTP/1.1\r\nhost: x\r\n\r\n")
    assert (await reader.readline()).startswith(b"HTTP/1.1 200")
    writer.close()
    process.send_signal(signal.SIGTERM)
    assert await process.wait() == 0


async def test_a_port_in_use_is_one_clear_line(project):
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "aenv.main", str(project(BASICS)), "--host", "127.0.0.1", "--port", str(port)),
            stderr=subprocess.PIPE,
        )
        _, stderr = await process.communicate()
    assert process.returncode == 1
    assert (
        f"cannot listen on 127.0.0.1:{port}: Address already in use; choose another with --port" in stderr.decode()
    )


@pytest.mark.slow
async def test_log_dir_holds_the_log(project, start, tmp_path):
    await start(project(BASICS), "--log-dir", str(tmp_path / "logs"))
    assert "serving 2 tools" in (tmp_path / "logs" / "runtime.log").read_text()
