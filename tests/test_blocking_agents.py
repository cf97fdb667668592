"""Agents that are not async: each plays in a thread, with an environment that blocks."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from concurrent.futures import CancelledError
from typing import Any

import pytest

from aenv import Environment
from aenv.rollouts import Outcome, Timeouts, rollout
from tests.rollout_worlds import gateway, one

pytestmark = pytest.mark.slow  # episodes are played on a gateway


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with gateway(tmp_path_factory.mktemp("blocking")) as (url, _):
        yield url


async def test_a_function_that_is_not_async_plays_in_a_thread(served: str) -> None:
    def plain(env: Any, task: dict[str, Any]) -> None:
        assert threading.current_thread() is not threading.main_thread()
        env.call_tool("submit", {"answer": 2})
        env.call_function("name_of", {"value": 1})

    found = await one(served, plain)
    assert (found.reward, found.steps) == (1.0, 1)
    assert found.trajectory and [call.name for call in found.trajectory.calls] == ["submit", "name_of"]


async def test_calls_of_a_function_that_is_not_async_end_with_its_rollout(served: str) -> None:
    raised: asyncio.Future[BaseException] = asyncio.get_running_loop().create_future()

    def hangs(env: Any, task: dict[str, Any]) -> None:
        try:
            env.call_tool("hang")
        except BaseException as error:
            loop.call_soon_threadsafe(raised.set_result, error)

    loop, variables = asyncio.get_running_loop(), {"ID": "two", "N": "1", "SUM": "1+1"}
    async with Environment("trouble@1.0.0", aenv_url=served, environment_variables=variables) as env:
        found = await rollout(env, hangs, timeouts=Timeouts(agent=0.3))
        assert found.outcome == Outcome.TIMEOUT
        assert isinstance(await raised, CancelledError)  # and the instance is still there


async def test_a_function_that_is_not_async_calls_on_the_loop_of_the_run(served: str) -> None:
    async def loop() -> asyncio.AbstractEventLoop:
        return asyncio.get_running_loop()

    def plain(env: Any, task: dict[str, Any]) -> None:
        found.append(env.run(loop()))

    found: list[asyncio.AbstractEventLoop] = []
    await one(served, plain)
    assert found == [asyncio.get_running_loop()]


async def test_a_function_that_is_not_async_is_limited_as_others_are(served: str) -> None:
    def floods(env: Any, task: dict[str, Any]) -> None:
        while True:
            env.call_tool("look")

    found = await one(served, floods, max_calls=5)
    assert (found.outcome, found.reason) == (Outcome.AGENT_ERROR, "the agent made more than 5 calls")


async def test_a_thread_of_an_agent_ends_at_its_next_call(served: str) -> None:
    ended = threading.Event()

    def agent(env: Any, task: dict[str, Any]) -> None:
        try:
            env.call_tool("hang")
        finally:
            ended.set()

    found = await one(served, agent, timeouts=Timeouts(agent=0.3))
    assert found.outcome == Outcome.TIMEOUT
    assert await asyncio.to_thread(ended.wait, 30)
