"""Injection without a server: resources are shared, closed in order, replaced in tests."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from aenv import Context, Depends, register_tool
from aenv.inside.author.inject import Resources, replaced
from aenv.inside.author.registry import Registry, collecting
from aenv.inside.author.signature import Signature


async def in_place(function):
    return function()


async def call(resources: Resources, function, **arguments: Any):
    """Call `function` as the runtime does: its arguments, and what is injected."""
    signature = Signature(function)
    async with resources.injected(signature.injected, Context(id="i-1")) as injected:
        result = function(**arguments, **injected)
        return await result if signature.is_async else result


@pytest.fixture
def events() -> list[str]:
    return []


async def test_resources_are_closed_last_made_first(events):
    def first():
        events.append("open first")
        yield 1
        events.append("close first")

    async def second(context: Context, base: NotImported = Depends(first)):  # noqa: F821
        events.append("open second")
        assert context.id == "i-1"
        yield base + 1
        events.append("close second")

    def tool(value: int = Depends(second)):
        return value

    async with Resources(in_place) as resources:
        assert await call(resources, tool) == 2
        assert await call(resources, tool) == 2
        assert events == ["open first", "open second"]
    assert events[2:] == ["close second", "close first"]


@pytest.mark.parametrize("scope", ["instance", "call"])
async def test_a_maker_may_be_any_kind_of_function(scope):
    def plain():
        return "plain"

    async def coroutine():
        return "coroutine"

    def generator():
        yield "generator"

    async def async_generator():
        yield "async generator"

    class Made:
        def __str__(self) -> str:
            return "class"

    async with Resources(in_place) as resources:
        for make in (plain, coroutine, generator, async_generator, Made):

            async def tool(made: Any = Depends(make, scope=scope)):
                return made

            assert str(await call(resources, tool)).replace(" ", "_") == make.__name__.replace("Made", "class")


async def test_calls_at_once_share_one_resource(events):
    async def make():
        events.append("made")
        await asyncio.sleep(0)
        return object()

    async def tool(made: object = Depends(make)):
        return made

    async with Resources(in_place) as resources:
        made = await asyncio.gather(*(call(resources, tool) for _ in range(5)))
    assert events == ["made"]
    assert len(set(map(id, made))) == 1


async def test_a_maker_that_failed_is_tried_again(events):
    def make():
        events.append("tried")
        if len(events) == 1:
            raise OSError("not yet")
        return "made"

    def tool(made: str = Depends(make)):
        return made

    async with Resources(in_place) as resources:
        with pytest.raises(OSError, match="not yet"):
            await call(resources, tool)
        assert await call(resources, tool) == "made"


async def test_a_call_that_is_cancelled_does_not_cancel_what_others_wait_for():
    begun, go_on = asyncio.Event(), asyncio.Event()

    async def make():
        begun.set()
        await go_on.wait()
        return "made"

    async def tool(made: str = Depends(make)):
        return made

    async with Resources(in_place) as resources:
        first = asyncio.ensure_future(call(resources, tool))
        await begun.wait()
        second = asyncio.ensure_future(call(resources, tool))
        first.cancel()
        await asyncio.wait({first})
        go_on.set()
        assert await second == "made"


async def test_a_resource_of_a_call_is_closed_when_the_call_fails(events):
    def make():
        yield "made"
        events.append("closed")

    def tool(made: str = Depends(make, scope="call")):
        raise ValueError("tool")

    async with Resources(in_place) as resources:
        with pytest.raises(ValueError, match="tool"):
            await call(resources, tool)
        assert events == ["closed"]


async def test_tests_can_replace_a_maker():
    def database():
        raise AssertionError("the real one")

    def tool(db: str = Depends(database)):
        return db

    with replaced(database, lambda: "fake"):
        async with Resources(in_place) as resources:
            assert await call(resources, tool) == "fake"
    async with Resources(in_place) as resources:
        with pytest.raises(AssertionError, match="the real one"):
            await call(resources, tool)


def test_a_unit_test_passes_its_own_resource():
    with collecting(Registry()):

        @register_tool
        def tool(query: str, db: dict = Depends(dict)) -> str:
            return db[query]

    assert tool("a", db={"a": "b"}) == "b"


def test_progress_outside_a_server_does_nothing():
    async def main() -> None:
        context = Context()
        context.progress(1)
        await context.progress(2, 3, "half")

    asyncio.run(main())
