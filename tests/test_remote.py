"""The SDK through a real gateway with the process engine: the whole walk."""

from __future__ import annotations

import asyncio

import pytest

from aenv import Environment, SyncEnvironment
from aenv.base import errors, http1
from tests.gateways import make_project, running_gateway
from tests.lease_clients import without_sockets

CODE = """
import asyncio, os, sys
from aenv import *

@register_tool
def echo(text: str) -> dict:
    return {"text": text}

@register_tool
def given(context: Context) -> dict:
    secret = os.environ.get("AENV_API_KEY")
    return {"A": context.variables.get("A"), "argv": sys.argv[1:], "id": context.id, "secret": secret}

@register_tool
async def steps(context: Context) -> str:
    for n in range(3):
        await context.progress(n, 3)
    return "done"

@register_tool
async def hang():
    await asyncio.Event().wait()

@register_function
def add(a: int, b: int) -> int:
    return a + b

@register_reward
def score(x: float) -> float:
    return x
"""


@pytest.fixture
async def gateway(tmp_path, monkeypatch):
    projects = [make_project(tmp_path, "my-env", version, code=CODE) for version in ("1.0.0", "1.10.0", "1.9.0")]
    async with running_gateway(tmp_path / "home", *projects) as running:
        monkeypatch.setenv("AENV_SYSTEM_URL", running.address.url)
        yield running


@pytest.fixture
def requests(monkeypatch):
    """Every request that goes over the wire, as "METHOD target" with the id written as ID."""
    seen: list[str] = []
    real = http1.Pool.request

    async def request(self, origin, method, target, *rest):
        seen.append(f"{method} {target}")
        return await real(self, origin, method, target, *rest)

    # The one place that all of the SDK's requests pass; the gateway's own go to unix sockets and are not counted.
    monkeypatch.setattr(
        http1.Pool,
        "request",
        lambda self, origin, *rest: real(self, origin, *rest) if origin.socket else request(self, origin, *rest),
    )
    return seen


async def test_the_documented_walk_works_through_a_gateway(gateway, monkeypatch):
    monkeypatch.setenv("AENV_API_KEY", "not-for-instances")
    async with Environment(
        *("my-env@1.0.0", "", "2h", {"A": "1"}, ["--x"]), timeout=60.0, max_retries=5, labels={"team": "a"}
    ) as env:
        assert (await env.list_tools())[0]["name"] == "my-env@1.0.0/echo"
        assert (await env.call_tool("my-env@1.0.0/echo", {"text": "hi"})).structured == {"text": "hi"}
        assert (await env.call_tool("given")).structured == {
            "A": "1",
            "argv": ["--x"],
            "id": env.instance_id,
            "secret": None,
        }
        assert await env.call_function("add", {"a": 10, "b": 20}) == 30
        assert await env.call_reward({"x": 0.5}) == 0.5
        assert (await env.check_health())["data"]["status"] == "success"
        assert [type(item).__name__ async for item in env.stream("steps")] == [*["Progress"] * 3, "ToolResult"]
        shown = (await gateway.ask("GET", f"/env-instance/{env.instance_id}"))[1]["data"]
        assert (shown["status"], shown["ttl"], shown["labels"]) == ("Running", "2h", {"team": "a"})
        id = env.instance_id
    assert (await gateway.ask("GET", f"/env-instance/{id}"))[1]["data"]["status"] == "Terminated"


async def test_n_tool_calls_cost_n_plus_two_requests(gateway, requests, monkeypatch):
    without_sockets(monkeypatch)
    async with Environment("my-env@1.0.0") as env:
        await env.list_tools()
        for n in range(5):
            await env.call_tool("echo", {"text": str(n)})
        id = env.instance_id
    assert [line.replace(id, "ID") for line in requests] == [
        "PUT /env-instance/ID",
        *["POST /instances/ID/mcp"] * 5,
        "DELETE /env-instance/ID",
    ]


async def test_on_the_gateways_host_the_gateway_sees_two_requests_a_rollout_and_one_a_process(gateway, requests):
    ids = []
    for _ in range(2):
        async with Environment("my-env@1.0.0") as env:
            for n in range(5):
                await env.call_tool("echo", {"text": str(n)})
            ids.append(env.instance_id)
    assert requests == [
        f"PUT /env-instance/{ids[0]}",
        "POST /leases",  # held for all instances of this process, until it has had none for a while
        f"DELETE /env-instance/{ids[0]}",
        f"PUT /env-instance/{ids[1]}",
        f"DELETE /env-instance/{ids[1]}",
    ]


async def test_a_name_without_version_is_the_latest_and_its_tools_go_by_both_names(gateway):
    async with Environment("my-env") as env:
        assert (await env.list_tools())[0]["name"] == "my-env/echo"
        assert (await env.call_tool("my-env/echo", {"text": "a"})).structured == {"text": "a"}
        assert (await env.call_tool("my-env@1.10.0/echo", {"text": "b"})).structured == {"text": "b"}
        with pytest.raises(errors.ToolError, match="not found"):
            await env.call_tool("my-env@1.9.0/echo", {"text": "c"})


async def test_attaching_uses_an_instance_and_leaves_it_running(gateway):
    async with Environment("my-env@1.0.0") as first:
        async with Environment("my-env@1.0.0", attach=first.instance_id) as second:
            assert (await second.call_tool("given")).structured["id"] == first.instance_id
        assert (await first.call_tool("echo", {"text": "still"})).structured == {"text": "still"}
    with pytest.raises(errors.NotFound, match="not found"):
        async with Environment("my-env@1.0.0", attach="no-such-instance"):
            pass


async def test_an_unknown_environment_is_not_found_with_what_there_is(gateway):
    with pytest.raises(errors.NotFound, match="my-env"):
        async with Environment("my-evn@1.0.0"):
            pass


async def test_a_cancelled_rollout_gives_its_instance_back(gateway):
    inside = asyncio.Event()

    async def rollout():
        async with Environment("my-env@1.0.0") as env:
            inside.set()
            await env.call_tool("hang")

    task = asyncio.ensure_future(rollout())
    await inside.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert (await gateway.ask("GET", "/env-instance/*/list"))[1]["data"] == []


@pytest.mark.slow
async def test_many_environments_at_once_share_the_gateway(gateway):
    async def rollout(n: int) -> int:
        async with Environment("my-env@1.0.0") as env:
            return await env.call_function("add", {"a": n, "b": 0})

    assert await asyncio.gather(*(rollout(n) for n in range(6))) == list(range(6))


async def test_an_instance_that_ended_is_not_found_when_it_is_called(gateway):
    async with Environment("my-env@1.0.0") as env:
        await gateway.ask("DELETE", f"/env-instance/{env.instance_id}")
        with pytest.raises(errors.NotFound, match="it has ended: deleted"):
            await env.call_tool("echo", {"text": "x"})


async def test_a_long_rollout_renews_its_instance(gateway):
    async with Environment("my-env@1.0.0", ttl="1m") as env:
        until = await env.renew("2h")
        shown = (await gateway.ask("GET", f"/env-instance/{env.instance_id}"))[1]["data"]
        assert (shown["expires_at"], shown["ttl"]) == (until, "2h")
        with pytest.raises(errors.InvalidRequest, match="bad duration 'soon'"):
            await env.renew("soon")


async def test_the_sync_environment_walks_through_a_gateway(gateway):
    def walk() -> object:
        with SyncEnvironment("my-env@1.0.0") as env:
            return env.call_tool("echo", {"text": "hi"}).structured

    assert await asyncio.to_thread(walk) == {"text": "hi"}
