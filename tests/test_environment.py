"""The SDK in direct mode, against a real runtime."""

from __future__ import annotations

import asyncio
import logging

import pytest

from aenv import Environment, NotJudged, SyncEnvironment
from aenv.base import errors
from aenv.client import formats, session
from aenv.client.breaker import HALF_OPEN_AFTER, Breaker
from aenv.client.formats import legal_names
from aenv.client.names import ToolNames
from aenv.client.result import Progress
from aenv.core.mcp_health import check_mcp_health
from aenv.isolation.sandbox import probe

TOOLS = '''
import asyncio
from aenv import *
log = []

@register_tool
def search_code(query: str, path: str = ".") -> dict:
    """Search for code patterns in files."""
    return {"matches": [query, path]}

@register_tool(name="read.file/now")
def oddly_named() -> str:
    return "odd"

@register_tool
def picture():
    return b"\\x89PNG\\r\\n\\x1a\\nxx"

@register_tool
def empty() -> str:
    return ""

@register_tool
def boom():
    raise ValueError("bad thing")

@register_tool
async def steps(context: Context, n: int = 3) -> int:
    for i in range(n):
        context.progress(i, n, f"step {i}")
        await asyncio.sleep(0)
    return n

@register_tool
async def hang():
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

@register_function
def calculate_sum(a: int, b: int) -> int:
    return a + b

@register_function
def nothing():
    return None

@register_function
def failing():
    raise RuntimeError("no luck")

@register_reward
def evaluate(status: dict) -> float:
    return 1.0 if status.get("completed") else 0.0

@register_reward(name="always")
def always() -> float:
    return 0.5

@register_reset
def start_over(seed: int | None = None, level: int = 1):
    return [seed, level]
'''


@pytest.fixture
async def runtime(project, start, monkeypatch):
    running = await start(project(TOOLS))
    monkeypatch.setenv("DUMMY_INSTANCE_IP", running.url)
    return running


async def test_the_documented_walk_works_in_direct_mode(runtime):
    async with Environment("my-env@1.0.0") as env:
        tools = await env.list_tools()
        assert tools[0]["name"] == "my-env@1.0.0/search_code"
        assert tools[0]["description"] == "Search for code patterns in files."
        assert tools[0]["inputSchema"]["required"] == ["query"]
        result = await env.call_tool("search_code", {"query": "def main"})
        assert result.content == [{"type": "text", "text": '{"matches":["def main","."]}'}]
        assert (result.is_error, result.structured) == (False, {"matches": ["def main", "."]})
        assert await env.call_function("calculate_sum", {"a": 10, "b": 20}) == 30
        assert await env.call_function("nothing", {}) is None
        assert await env.call_reward({"status": {"completed": True}}) == 1.0
        assert await env.call_reward({}, name="always") == 0.5
        assert await env.reset(seed=3, level=2) == [3, 2]
        assert (await env.check_health())["data"]["status"] == "success"
        assert (await env.list_functions())["total"] == 6
        info = await env.get_env_info()
        assert (info["name"], info["status"], info["ip"]) == ("my-env@1.0.0", "Running", "127.0.0.1")


@pytest.mark.parametrize(
    ("said", "outcome"),
    [
        ('raise NotJudged("not_ready", "no compiler; install gcc")', "not_ready"),
        ('raise NotJudged("invalid", "no compiler; install gcc")', "invalid"),
        ('return {"reward": 0.0, "invalid": "no compiler; install gcc"}', "invalid"),
    ],
)
async def test_a_reward_that_gives_no_number_raises_not_judged(project, start, monkeypatch, said, outcome):
    judge = f"from aenv import NotJudged, register_reward\n\n@register_reward\ndef judge():\n    {said}\n"
    monkeypatch.setenv("DUMMY_INSTANCE_IP", (await start(project(judge))).url)
    async with Environment("judge") as env:
        with pytest.raises(NotJudged, match="no compiler; install gcc") as raised:
            await env.call_reward({})
    assert raised.value.outcome == outcome


@pytest.mark.slow
@pytest.mark.parametrize("address", ["{host}:{port}", "http://{host}:{port}", "http://{host}:{port}/"])
async def test_the_direct_address_may_have_a_scheme_or_not(runtime, monkeypatch, address):
    origin = runtime.origin
    monkeypatch.setenv("DUMMY_INSTANCE_IP", address.format(host=origin.host, port=origin.port))
    async with Environment("e") as env:
        assert await env.call_function("calculate_sum", {"a": 1, "b": 1}) == 2


async def test_a_bare_environment_starts_itself_at_the_first_call(runtime):
    env = Environment("my-env@1.0.0")
    assert await env.call_function("calculate_sum", {"a": 1, "b": 2}) == 3
    await env.destroy()


async def test_short_full_and_legal_names_mean_the_same_tool(runtime):
    async with Environment("my-env@1.0.0") as env:
        for name in ("read.file/now", "my-env@1.0.0/read.file/now"):
            assert (await env.call_tool(name, {})).text == "odd"
        legal = [tool["function"]["name"] for tool in await env.openai_tools()]
        assert "read_file_now" in legal
        assert (await env.call_tool("read_file_now", {})).text == "odd"
        with pytest.raises(errors.ToolError, match="Tool 'other@1/x' not found in environment 'my-env@1"):
            await env.call_tool("other@1/x", {})


async def test_tools_come_in_the_formats_of_model_providers(runtime):
    async with Environment("my-env@1.0.0") as env:
        openai = (await env.openai_tools())[0]
        anthropic = (await env.anthropic_tools())[0]
        schema = (await env.list_tools())[0]["inputSchema"]
    described = {"name": "search_code", "description": "Search for code patterns in files."}
    assert openai == {"type": "function", "function": {**described, "parameters": schema}}
    assert anthropic == {**described, "input_schema": schema}


def test_providers_are_told_properties_as_objects_however_a_tool_describes_them():
    schemas = [{"type": "object"}, {"type": "object", "properties": {"value": True, "x": {"type": "string"}}}]
    told = formats.openai([{"name": "any", "inputSchema": schema} for schema in schemas])
    assert [tool["function"]["parameters"] for tool in told] == [
        {"type": "object", "properties": {}},
        {"type": "object", "properties": {"value": {}, "x": {"type": "string"}}},
    ]


def test_the_names_of_tools_are_worked_out_once_however_many_calls_there_are():
    class Tools(list):
        looks = 0

        def __iter__(self):
            self.looks += 1
            return super().__iter__()

    tools = Tools({"name": name} for name in ("a b", "a_b", "of/another"))
    names = ToolNames("e@1", "1.0", tools)
    asked = ("a b", "e@1/a b", "a_b", "e@1.0/a_b_2", "of/another", "of_another", "unknown")
    assert [names.resolve(name) for name in asked] == [
        "a b",
        "a b",
        "a_b",
        "a_b",
        "of/another",
        "of/another",
        "unknown",
    ]
    assert tools.looks == 1


def test_legal_names_are_unique_and_map_back():
    names = ["a b", "a_b", "x" * 80, "x" * 70]
    legal = legal_names(names)
    assert list(legal.values()) == names
    assert list(legal) == ["a_b", "a_b_2", "x" * 64, "x" * 62 + "_2"]


async def test_results_keep_images_with_their_type_and_empty_text(runtime):
    async with Environment("e@1") as env:
        (image,) = (await env.call_tool("picture")).content
        assert image == {"type": "image", "data": "iVBORw0KGgp4eA==", "mimeType": "image/png"}
        assert (await env.call_tool("empty")).content == [{"type": "text", "text": ""}]


async def test_a_failing_tool_is_a_result_and_a_failing_function_an_error(runtime):
    async with Environment("e@1") as env:
        result = await env.call_tool("boom", {})
        assert (result.is_error, result.text) == (True, "Error calling tool 'boom': bad thing")
        assert repr(result) == f"ToolResult(content={result.content!r}, is_error=True)"
        assert (await env.call_tool("unknown", {})).text.startswith("Unknown tool: unknown")
        assert "'query' is required" in (await env.call_tool("search_code", {})).text
        with pytest.raises(errors.EnvironmentError, match="no luck"):
            await env.call_function("failing", {})
        with pytest.raises(errors.InvalidRequest, match="'a' is required"):
            await env.call_function("calculate_sum", {"b": 1})
        with pytest.raises(errors.NotFound):
            await env.call_function("missing", {})


async def test_progress_reaches_the_callback_and_the_stream(runtime):
    async with Environment("e@1") as env:
        seen: list[Progress] = []
        await env.call_tool("steps", {"n": 2}, on_progress=seen.append)
        assert seen == [Progress(0, 2, "step 0"), Progress(1, 2, "step 1")]
        items = [item async for item in env.stream("steps", {"n": 1})]
        assert items[0] == Progress(0, 1, "step 0")
        assert items[1].structured == {"result": 1}


@pytest.mark.slow
async def test_a_timeout_is_typed_and_stops_the_tool(runtime):
    async with Environment("e@1") as env:
        with pytest.raises(errors.ToolTimeoutError, match=r"tool 'hang' gave no answer within 0.1 s"):
            await env.call_tool("hang", {}, timeout=0.1)
        assert (await env.call_tool("history", {"length": 2})).structured == {"result": ["started", "stopped"]}


@pytest.mark.slow
async def test_a_cancelled_call_is_cancelled_and_stops_the_tool(runtime):
    async with Environment("e@1") as env:
        call = asyncio.ensure_future(env.call_tool("hang", {}))
        await env.call_tool("history", {"length": 1})
        call.cancel()
        with pytest.raises(asyncio.CancelledError):
            await call
        assert (await env.call_tool("history", {"length": 2})).structured == {"result": ["started", "stopped"]}


async def test_without_a_data_plane_data_methods_say_why_they_refuse(runtime):
    async with Environment("e@1", enable_data_plane=False) as env:
        for call in (env.list_tools(), env.call_tool("x"), env.call_reward({}), env.check_health()):
            with pytest.raises(errors.EnvironmentError, match="enable_data_plane=False"):
                await call


async def test_an_unreachable_runtime_is_told_when_entering(monkeypatch, unused_tcp_port):
    monkeypatch.setenv("DUMMY_INSTANCE_IP", f"127.0.0.1:{unused_tcp_port}")
    with pytest.raises(errors.NetworkError, match=f"cannot connect to http://127.0.0.1:{unused_tcp_port}"):
        async with Environment("e@1"):
            pass


@pytest.mark.slow
async def test_skip_for_healthy_leaves_out_the_probe_and_the_first_call_makes_up_for_it(runtime, monkeypatch):
    async with Environment("e@1", skip_for_healthy=True) as env:
        assert (await env.call_tool("empty")).is_error is False
    monkeypatch.setenv("DUMMY_INSTANCE_IP", "127.0.0.1:1")
    async with Environment("e@1", skip_for_healthy=True) as env:
        with pytest.raises(errors.ToolError, match="cannot connect"):
            await env.call_tool("empty")


async def test_first_calls_at_once_ask_for_the_era_once(runtime, monkeypatch):
    asked = []
    exchange = session.Session._exchange

    async def counted(self, method, *rest):
        asked.append(method)
        return await exchange(self, method, *rest)

    monkeypatch.setattr(session.Session, "_exchange", counted)  # the only place that sees every message
    async with Environment("e@1", skip_for_healthy=True) as env:
        await asyncio.gather(*(env.call_tool("empty") for _ in range(3)))
    assert sorted(asked) == ["server/discover", *["tools/call"] * 3]


async def test_a_runtime_that_dies_opens_the_breaker_after_five_failures(runtime):
    async with Environment("e@1") as env:
        runtime.process.kill()
        await runtime.process.wait()
        for _ in range(5):
            with pytest.raises(errors.ToolError, match="it may have run, so it is not repeated"):
                await env.call_tool("empty")
        with pytest.raises(errors.UnrecoverableEnvironmentError, match="Circuit breaker open: 5 consecutive"):
            await env.call_tool("empty")


def test_the_breaker_lets_one_call_try_after_its_pause():
    now = 0.0
    breaker = Breaker(clock=lambda: now)
    for _ in range(5):
        breaker.check()
        breaker.failed()
    with pytest.raises(errors.UnrecoverableEnvironmentError):
        breaker.check()
    now = HALF_OPEN_AFTER
    breaker.check()
    with pytest.raises(errors.UnrecoverableEnvironmentError):
        breaker.check()  # only one: its outcome is not known yet
    breaker.succeeded()
    breaker.check()


async def test_nothing_secret_is_logged_at_info(runtime, caplog):
    caplog.set_level(logging.INFO)
    async with Environment("e@1", environment_variables={"TOKEN": "s3cret-v"}, api_key="s3cret-k") as env:
        await env.call_tool("search_code", {"query": "s3cret-a"})
        await env.call_function("calculate_sum", {"a": 31337, "b": 0})
    assert "s3cret" not in caplog.text
    assert "31337" not in caplog.text


@pytest.mark.slow
async def test_the_sync_environment_works_beside_a_running_loop(runtime):
    with SyncEnvironment("my-env@1.0.0") as env:
        assert env.call_tool("search_code", {"query": "q"}).structured == {"matches": ["q", "."]}
        assert env.call_reward({"status": {}}) == 0.0
        assert env.list_tools()[0]["name"] == "my-env@1.0.0/search_code"
        assert [type(item).__name__ for item in env.stream("steps", {"n": 1})] == ["Progress", "ToolResult"]


def test_the_sync_environment_is_shared_by_threads(project, tmp_path):
    """Driven without a loop of the test's own, as a script would."""
    import subprocess
    import sys

    code = f"""
import os, subprocess, sys, json, threading
read, write = os.pipe()
runtime = subprocess.Popen([sys.executable, "-m", "aenv.main", {str(project(TOOLS))!r}, "--host", "127.0.0.1",
                            "--port", "0", "--ready-fd", str(write)], pass_fds=(write,))
os.environ["DUMMY_INSTANCE_IP"] = json.loads(os.fdopen(read).readline())["address"]
from aenv import SyncEnvironment
sums = []
with SyncEnvironment("e@1") as env:
    def add(n): sums.append(env.call_function("calculate_sum", {{"a": n, "b": 0}}))
    threads = [threading.Thread(target=add, args=(n,)) for n in range(8)]
    [t.start() for t in threads]; [t.join() for t in threads]
runtime.terminate(); runtime.wait()
print(sorted(sums))
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=25)
    assert done.stdout == "[0, 1, 2, 3, 4, 5, 6, 7]\n", done.stderr


async def test_the_published_health_functions_ask_the_runtime(runtime):
    assert (await check_mcp_health(f"{runtime.url}/mcp"))["status"] == "success"
    assert (await check_mcp_health("http://127.0.0.1:1/mcp"))["status"] == "error"


@pytest.mark.parametrize("name", ["", "a b@1", "x@"])
def test_a_bad_name_is_refused_before_any_request(name):
    with pytest.raises(errors.InvalidRequest, match="bad"):
        Environment(name)


def test_a_bad_ttl_is_refused_before_any_request():
    with pytest.raises(errors.InvalidRequest, match="bad duration 'soon'"):
        Environment("e", ttl="soon")


async def test_list_openai_tools_names_the_extra_when_it_is_missing(runtime):
    async with Environment("e@1") as env:
        with pytest.raises(ImportError, match=r"pip install 'openai-agents>=0.24'"):
            await env.list_openai_tools()


async def test_without_any_configuration_and_isolation_creating_is_refused_with_the_fix(monkeypatch):
    monkeypatch.setattr(probe, "missing_isolation", lambda: "no user namespaces")
    with pytest.raises(errors.EnvironmentError, match="set AENV_ALLOW_UNISOLATED=1"):
        async with Environment("e@1"):
            pass
