"""Start functions: they begin when an instance starts, and nobody waits for them who does not depend on them."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from aenv import Context, Depends, register_start, register_tool
from aenv.base.errors import RegistrationError
from aenv.inside.author.registry import Registry, collecting
from aenv.inside.runtime.calls import CallFailed, Calls
from aenv.inside.zygote.purity import is_same_for_all
from tests.gateways import running_gateway

# The start function waits until a tool lets it go on.
SLOW = """
import asyncio
from functools import cache
from aenv import Depends, register_start, register_tool

@cache
def gate():
    return asyncio.Event()

@register_start
async def load() -> str:
    await gate().wait()
    return "a large model"

@register_tool
async def loaded(model: str = Depends(load)) -> str:
    return model

@register_tool
async def release() -> str:
    gate().set()
    return "released"
"""
BEGUN = """
import asyncio
from functools import cache
from aenv import register_start, register_tool

@cache
def begun():
    return asyncio.Event()

@register_start
async def begin() -> None:
    begun().set()

@register_tool(timeout=5)
async def has_begun() -> str:
    await begun().wait()
    return "begun"
"""
FAILING = """
from aenv import Context, Depends, register_start, register_tool

@register_start
async def load(context: Context) -> str:
    if not (context.workspace / "model").exists():
        raise FileNotFoundError("no model here")
    return "a model"

@register_tool
def loaded(model: str = Depends(load)) -> str:
    return model
"""


async def test_a_start_function_runs_in_the_background_and_who_depends_on_it_waits(project, start):
    runtime = await start(project(SLOW))
    assert runtime.ready["ready"]  # while the function still waits
    waiting = asyncio.create_task(runtime.tool("loaded"))
    assert (await runtime.tool("release"))["content"][0]["text"] == "released"
    assert (await waiting)["content"][0]["text"] == "a large model"
    assert (await runtime.tool("loaded"))["content"][0]["text"] == "a large model"


async def test_a_start_that_fails_is_told_by_health_and_by_who_depends_on_it_and_is_tried_again(
    project, start, tmp_path
):
    runtime = await start(project(FAILING), AENV_WORKSPACE=str(tmp_path))
    said = await runtime.tool("loaded")
    assert said["isError"] and "'loaded' depends on: no model here" in said["content"][0]["text"]
    health = (await runtime.call("GET", "/health"))[1]["data"]
    assert (health["status"], health["message"]) == ("error", "the start function 'load' failed: no model here")
    (tmp_path / "model").touch()
    assert (await runtime.tool("loaded"))["content"][0]["text"] == "a model"
    assert (await runtime.call("GET", "/health"))[1]["data"]["status"] == "success"


async def test_a_failed_start_is_logged_with_its_reason(caplog):
    async def load() -> None:
        raise OSError("no model here")

    async with Calls(Context()) as calls:
        calls.start({"load": load})
        await asyncio.gather(*calls._starting)
        assert calls.failed_starts == {"load": "no model here"}
    assert [(record.getMessage(), str(record.exc_info[1])) for record in caplog.records] == [
        ("start function load failed: no model here", "no model here")
    ]


async def test_an_instance_that_ends_ends_the_starts_that_still_run():
    events = []

    async def load():
        try:
            await asyncio.Event().wait()
        finally:
            events.append("ended")

    async with Calls(Context()) as calls:
        calls.start({"load": load})
        await asyncio.sleep(0)
        await asyncio.sleep(0)
    assert events == ["ended"]


async def test_what_a_start_function_yields_is_closed_with_the_instance():
    events = []

    async def load():
        events.append("open")
        yield "model"
        events.append("closed")

    async with Calls(Context()) as calls:
        calls.start({"load": load})
        await asyncio.gather(*calls._starting)
        assert events == ["open"]
    assert events == ["open", "closed"]


async def test_a_start_function_that_exits_does_not_end_the_server():
    def load() -> None:
        raise SystemExit(3)

    async with Calls(Context()) as calls:
        calls.start({"load": load})
        await asyncio.gather(*calls._starting)
        assert calls.failed_starts == {"load": "'load' raised SystemExit(3)"}


async def test_a_resource_that_cannot_be_made_is_an_answer_for_the_agent():
    def broken() -> None:
        raise ValueError("out of order")

    with collecting(Registry()) as registry:

        @register_tool
        def use(thing: None = Depends(broken)) -> str:
            return "used"

    async with Calls(Context()) as calls:
        with pytest.raises(CallFailed, match="cannot make what 'use' depends on: out of order"):
            await calls.run(registry.tools["use"], {})


def test_start_functions_take_only_what_is_injected_and_have_names_of_their_own():
    with collecting(Registry()) as registry:

        @register_start
        def load(context: Context, size: int = 3) -> None: ...

        @register_start()
        def warm() -> None: ...

        assert registry.starts == {"load": load, "warm": warm}
        with pytest.raises(
            RegistrationError, match="start function 'wrong' asks for 'size', which it is not given"
        ):

            @register_start
            def wrong(context: Context, size: int) -> None: ...

        with pytest.raises(RegistrationError, match="start function 'load' is registered already"):
            register_start(load)


@pytest.mark.slow  # starts a gateway
@pytest.mark.parametrize("engine", ["native", "process"])
async def test_a_create_is_answered_while_the_start_function_runs(tmp_path: Path, project, engine):
    folder = project(SLOW)
    assert is_same_for_all(str(folder / "src"))  # so it is loaded ahead, and forked
    async with running_gateway(tmp_path / "home", folder, engine=engine) as gateway:
        id = (await gateway.create("env1@1.0.0"))["id"]
        waiting = asyncio.create_task(gateway.call(id, "loaded"))
        assert (await gateway.call(id, "release")) == "released"
        assert (await waiting) == "a large model"


@pytest.mark.slow  # starts a gateway
@pytest.mark.parametrize("engine", ["native", "process"])
async def test_the_start_function_begins_without_a_call(tmp_path: Path, project, engine):
    folder = project(BEGUN)
    async with running_gateway(tmp_path / "home", folder, engine=engine) as gateway:
        id = (await gateway.create("env1@1.0.0"))["id"]
        assert (await gateway.call(id, "has_begun")) == "begun"
