"""`Runner` and `rollout`: typed results, limits of stages, agents that misbehave, and task files."""

from __future__ import annotations

import asyncio
import contextlib
import json
import math
import re
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, cast

import pytest

from aenv import Environment
from aenv.base import settings
from aenv.base.errors import InvalidRequest
from aenv.rollouts import Outcome, Runner, Timeouts, journal, rollout
from tests.command_line import environ, serving
from tests.evaluations import lines
from tests.gateways import make_project
from tests.rollout_worlds import gateway, one, run, solve
from tests.task_environments import SUMS

pytestmark = pytest.mark.slow  # episodes are played on a gateway


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with gateway(tmp_path_factory.mktemp("runner")) as (url, _):
        yield url


class TestResults:
    async def test_a_result_is_typed_and_has_its_trajectory(self, served: str, tmp_path: Path) -> None:
        found = await run(served, solve, repeat=2, out=tmp_path / "run.jsonl", seed=3)
        assert [one.key for one in found] == [("two", 1), ("six", 1), ("two", 2), ("six", 2)]
        first = next(one for one in found if one.task == "two")
        assert (first.outcome, first.reward, first.attempts, first.seed) == (Outcome.REWARD, 1.0, 1, 3)
        assert first.timings.whole >= first.timings.agent + first.timings.reward > 0
        assert first.trajectory
        step = first.trajectory.steps[1]
        assert step.call and (step.call.name, step.call.arguments) == ("submit", {"answer": 2})
        assert step.call.value == {"observation": "noted", "done": True}
        roles = [message["role"] for message in first.trajectory.messages]
        assert roles == ["user", "assistant", "tool", "assistant"]
        assert [tool["name"] for tool in first.trajectory.tools][:2] == ["submit", "look"]
        assert {one.key: one for one in journal.results(tmp_path / "run.jsonl")} == {one.key: one for one in found}

    async def test_the_agent_random_draws_from_the_seed_of_the_run(self, served: str) -> None:
        async def drawn(seed: int) -> list[Any]:
            (found,) = await run(served, "random", tasks=["two"], seed=seed)
            assert found.trajectory
            return [(call.name, call.arguments) for call in found.trajectory.calls]

        assert await drawn(5) == await drawn(5) != await drawn(6)

    async def test_named_parts_stand_beside_the_reward(self, served: str) -> None:
        found = await one(served, solve, env="parts")
        assert (found.reward, found.parts) == (1.0, {"format": 1.0, "sum": 0.5})

    async def test_one_rollout_on_an_environment_of_your_own(self, served: str) -> None:
        variables = {"ID": "six", "N": "3", "SUM": "3+3"}
        async with Environment("trouble@1.0.0", aenv_url=served, environment_variables=variables) as env:
            found = await rollout(env, solve, {"id": "six"})
            assert (found.reward, found.task, found.variables["N"]) == (1.0, "six", "3")
            assert found.trajectory and [call.name for call in found.trajectory.calls] == ["submit"]
            assert (await env.call_tool("look")).text == "what is 3+3"  # it is still the caller's

    async def test_one_rollout_by_name(self, served: str, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("AENV_SYSTEM_URL", served)
        found = await rollout("trouble@1.0.0", solve, "six")
        assert (found.task, found.reward) == ("six", 1.0)
        assert not (
            settings.home() / "run"
        ).exists()  # the gateway of the variable is used, and no other is started

    async def test_the_folder_of_a_project_is_served_while_the_runner_lives(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setenv("AENV_HOME", str(tmp_path / "home"))
        project = make_project(tmp_path, "sums", code=SUMS)
        async with Runner() as runner:
            found = await runner.run(project, solve)
        assert [one.reward for one in found] == [1.0, 1.0]
        assert len(found[0].run.digest or "") == 64


class TestStages:
    async def test_an_agent_that_loops_for_ever(self, served: str) -> None:
        async def agent(env: Any, task: dict[str, Any]) -> None:
            while True:
                await env.call_tool("look")

        found = await one(served, agent, timeouts=Timeouts(agent=2.0), max_calls=None)
        assert (found.outcome, found.reason) == (Outcome.TIMEOUT, "the agent took longer than 2 s")
        assert found.steps and found.steps > 1
        assert found.trajectory and len(found.trajectory.calls) >= found.steps - 1

    async def test_an_agent_that_computes_for_ever_and_never_awaits(self, served: str) -> None:
        async def agent(env: Any, task: dict[str, Any]) -> None:
            while task["id"] == "two":
                with contextlib.suppress(Exception):
                    task["count"] = task.get("count", 0) + 1

        found = {one.task: one for one in await run(served, agent, timeouts=Timeouts(agent=1.0))}
        assert found["two"].outcome == Outcome.TIMEOUT
        assert found["two"].reason == "the agent took longer than 1 s"
        assert (await one(served, solve)).reward == 1.0  # the loop goes on

    async def test_an_agent_that_holds_the_loop_costs_the_others_no_time(self, served: str) -> None:
        holds = asyncio.Event()

        async def agent(env: Any, task: dict[str, Any]) -> None:
            if task["id"] == "two":
                await holds.wait()
                while True:
                    pass
            holds.set()
            await asyncio.sleep(2.0)  # a good part of its time, all of which the other one takes
            await solve(env, task)

        found = {one.task: one for one in await run(served, agent, timeouts=Timeouts(agent=4.0))}
        assert found["two"].reason == "the agent took longer than 4 s"
        assert found["six"].reward == 1.0, found["six"].reason

    async def test_an_agent_that_does_not_end_when_it_is_cancelled(self, served: str) -> None:
        ends = asyncio.Event()

        async def agent(env: Any, task: dict[str, Any]) -> None:
            while not ends.is_set():
                try:
                    await asyncio.Event().wait()
                except asyncio.CancelledError:
                    ends.set()

        found = await one(served, agent, timeouts=Timeouts(agent=0.2))
        assert (found.outcome, ends.is_set()) == (Outcome.TIMEOUT, True)

    @pytest.mark.slow  # agents that do not end are waited for
    @pytest.mark.parametrize("agent", ["calls", "sleeps", "blocks"])
    async def test_an_agent_that_goes_on_after_every_error_holds_up_neither_the_run_nor_the_end_of_the_process(
        self, served: str, tmp_path: Path, agent: str
    ) -> None:
        script = tmp_path / "script.py"
        script.write_text(STUBBORN.format(url=served, agent=agent))
        done = await asyncio.to_thread(
            subprocess.run, [sys.executable, script], capture_output=True, text=True, env=environ(), timeout=60
        )
        assert (done.returncode, done.stdout) == (0, "two timeout\nsix reward\n"), done.stderr
        told = [] if agent == "blocks" else ["an agent goes on after it was cancelled, and is left to itself"]
        assert done.stderr.splitlines() == told

    @pytest.mark.slow  # what does not end is waited for
    def test_what_an_agent_left_running_does_not_hold_up_the_end_of_the_command(
        self, served: str, tmp_path: Path
    ) -> None:
        (tmp_path / "leaving.py").write_text(LEAVING)
        command = (
            "eval",
            "trouble",
            "--agent",
            "leaving:agent",
            "--tasks",
            "two",
            "--out",
            tmp_path / "out",
            "--json",
        )
        with serving(*command, cwd=tmp_path, env={**environ(), "AENV_SYSTEM_URL": served}) as running:
            line = running.until("result")[-1]
            assert running.process.wait(timeout=60) == 0
        assert json.loads(line)["reward"] == 1.0

    async def test_what_an_agent_left_running_calls_nothing_any_more(self, served: str) -> None:
        async def agent(env: Any, task: dict[str, Any]) -> None:
            kept.append(env)
            await env.call_tool("look")

        kept: list[Any] = []
        variables = {"ID": "two", "N": "1", "SUM": "1+1"}
        async with Environment("trouble@1.0.0", aenv_url=served, environment_variables=variables) as env:
            for _ in range(2):  # the same instance, played again
                found = await rollout(env, agent)
                assert (found.outcome, found.reward, found.steps) == (Outcome.REWARD, 0.0, 1)
            for call in (kept[0].call_tool("submit", {"answer": 2}), kept[0].exec(["true"])):
                with pytest.raises(asyncio.CancelledError, match="the rollout is over"):
                    await call
            await env.call_tool("submit", {"answer": 2})  # its owner may

    @pytest.mark.parametrize("at_once", [False, True])
    async def test_an_agent_that_floods(self, served: str, at_once: bool) -> None:
        async def agent(env: Any, task: dict[str, Any]) -> None:
            async def call() -> None:
                with contextlib.suppress(Exception):
                    await env.call_tool("look")

            if at_once:
                await asyncio.gather(*(call() for _ in range(200)))
            while True:
                await call()

        found = await one(served, agent, max_calls=20)
        assert (found.outcome, found.reason) == (Outcome.AGENT_ERROR, "the agent made more than 20 calls")

    async def test_a_start_that_takes_too_long_is_tried_again(self, served: str) -> None:
        async with Runner(url=served, timeouts=Timeouts(start=0.0), retries=1) as runner:
            (found,) = await runner.run("trouble", solve, tasks=["two"])
        assert (found.outcome, found.attempts) == (Outcome.INFRA_ERROR, 2), found
        assert found.reason == "the start took longer than 0 s"

    async def test_a_reward_that_takes_too_long(self, served: str) -> None:
        found = await one(served, solve, env="slow-reward", timeouts=Timeouts(reward=0.3))
        assert (found.outcome, found.reason) == (Outcome.TIMEOUT, "the reward took longer than 0.3 s")


class ErrorOfItsOwn(BaseException):
    """One that `except Exception` does not catch."""


class ErrorWithoutText(Exception):
    def __str__(self) -> str:
        raise RuntimeError("no text")


class TestAgents:
    @pytest.mark.parametrize(
        ("gives", "why"),
        [
            (None, ""),
            ("done", ""),
            ({"content": "done"}, ""),
            (b"bytes", "the agent returned bytes; return a text"),
            ("x" * 100_000_000, "100,000,000 characters; at most 1,000,000"),
            ({"messages": [1]}, "each with a 'role'"),
            (
                {"messages": [{"role": "user", "content": [{"type": "text", "text": "x" * 2_000_000}]}]},
                "1,000,000",
            ),
            ({"messages": [{"role": "user", "name": "x" * 11_000_000}]}, "at most 10,000,000"),
        ],
    )
    async def test_what_an_agent_returns(self, served: str, gives: Any, why: str) -> None:
        async def agent(env: Any, task: dict[str, Any]) -> Any:
            return gives

        found = await one(served, agent)
        assert found.outcome == (Outcome.AGENT_ERROR if why else Outcome.REWARD)
        assert why in found.reason

    @pytest.mark.parametrize(
        "error",
        [
            ValueError("no"),
            SystemExit(3),
            TimeoutError(),
            StopAsyncIteration(),
            asyncio.CancelledError(),
            GeneratorExit(),
            BaseExceptionGroup("two", [SystemExit(1), ValueError("no")]),
            ErrorOfItsOwn(),
            ErrorWithoutText(),
        ],
    )
    @pytest.mark.parametrize("kind", ["async", "plain"])
    async def test_an_agent_that_raises(self, served: str, error: BaseException, kind: str) -> None:
        async def agent(env: Any, task: dict[str, Any]) -> None:
            raise error

        def plain(env: Any, task: dict[str, Any]) -> None:
            raise error

        found = await one(served, agent if kind == "async" else plain)
        assert found.outcome == Outcome.AGENT_ERROR

    async def test_an_agent_that_raises_a_long_text(self, served: str, tmp_path: Path) -> None:
        async def agent(env: Any, task: dict[str, Any]) -> None:
            raise ValueError("x" * 50_000_000)

        found = await one(served, agent, out=tmp_path / "x")
        assert found.outcome == Outcome.AGENT_ERROR
        assert found.reason.endswith("x… (50,000,012 characters)")
        assert (tmp_path / "x").stat().st_size < 100_000

    async def test_a_lambda_that_makes_a_coroutine_says_what_to_write(self, served: str) -> None:
        found = await one(served, lambda env, task: solve(env, task))
        assert (found.outcome, "use 'async def'" in found.reason) == (Outcome.AGENT_ERROR, True)

    @pytest.mark.parametrize("kind", ["async", "plain"])
    async def test_an_agent_that_leaves_the_block_of_its_environment(self, served: str, kind: str) -> None:
        async def agent(env: Any, task: dict[str, Any]) -> None:
            async with env:
                await solve(env, task)

        def plain(env: Any, task: dict[str, Any]) -> None:
            with env:
                env.call_tool("submit", {"answer": 2})
            env.release()

        found = await one(served, agent if kind == "async" else plain)
        assert found.reward == 1.0  # of the instance that it has played on

    async def test_an_object_that_plays(self, served: str) -> None:
        class Player:
            async def play(self, env: Any, task: dict[str, Any]) -> str:
                return await solve(env, task)

        found = await one(served, Player())
        assert (found.reward, found.run.agent.endswith("Player")) == (1.0, True)

    async def test_an_object_whose_play_takes_something_else_is_refused(self, served: str) -> None:
        class Player:
            async def play(self, env: Any) -> None: ...

        with pytest.raises(InvalidRequest, match=r"Player.play must take \(env, task\)"):
            await one(served, Player())

    async def test_the_run_goes_on_after_each(self, served: str) -> None:
        async def agent(env: Any, task: dict[str, Any]) -> None:
            if task["id"] == "two":
                raise RuntimeError("I cannot")
            await env.call_tool("submit", {"answer": 6})

        found = {one.task: one.outcome for one in await run(served, agent)}
        assert found == {"two": Outcome.AGENT_ERROR, "six": Outcome.REWARD}

    async def test_a_long_answer_is_kept_by_its_digest(self, served: str, tmp_path: Path) -> None:
        async def agent(env: Any, task: dict[str, Any]) -> None:
            assert len((await env.call_tool("long", {"size": 20_000_000})).text) == 20_000_000

        found = await one(served, agent, out=tmp_path / "x")
        assert found.outcome == Outcome.REWARD
        (step,) = lines(tmp_path / "x", "step")[1:]
        assert (step["cut_bytes"] > 20_000_000, len(step["sha256"])) == (True, 64)
        assert (tmp_path / "x").stat().st_size < 100_000


@pytest.mark.parametrize(
    ("make", "why"),
    [
        (lambda: Runner(0), "concurrency must be a whole number of 1 or more, and is 0"),
        (lambda: Runner(cast(Any, "4")), "concurrency must be a whole number of 1 or more, and is '4'"),
        (lambda: Runner(retries=-1), "retries must be a whole number of 0 or more, and is -1"),
        (lambda: Runner(max_calls=0), "max_calls must be a whole number of 1 or more, and is 0"),
        (lambda: Timeouts(agent=-1), "timeouts: 'agent' must be a number of 0 or more seconds, and is -1"),
        (
            lambda: Timeouts(reward=math.nan),
            "timeouts: 'reward' must be a number of 0 or more seconds, and is nan",
        ),
        (lambda: Timeouts(whole=cast(Any, None)), "timeouts: 'whole' must be a number of more than 0 seconds"),
        (lambda: Timeouts(whole=0), "timeouts: 'whole' must be a number of more than 0 seconds, and is 0"),
    ],
)
def test_a_wrong_limit_is_refused_with_its_name(make: Callable[[], Any], why: str) -> None:
    with pytest.raises(InvalidRequest, match=re.escape(why)):
        make()


class TestTasks:
    async def test_tasks_may_be_objects_that_the_environment_does_not_list(self, served: str) -> None:
        task = {"id": "ten", "variables": {"ID": "ten", "N": "5", "SUM": "5+5"}, "instruction": "ten?"}

        async def agent(env: Any, task: dict[str, Any]) -> None:
            assert (task["id"], task["instruction"]) == ("ten", "ten?")
            await env.call_tool("submit", {"answer": 10})

        (found,) = await run(served, agent, tasks=[task])
        assert (found.task, found.reward) == ("ten", 1.0)

    @pytest.mark.parametrize(
        ("wanted", "why"),
        [({"tasks": []}, "tasks is empty"), ({"limit": 0}, "limit must be above 0"), ({"limit": -1}, "and is -1")],
    )
    async def test_no_tasks_are_refused(self, served: str, wanted: dict[str, Any], why: str) -> None:
        with pytest.raises(InvalidRequest, match=why):
            await run(served, solve, **wanted)

    @pytest.mark.parametrize(
        ("line", "why"),
        [
            ('{"id": 5}', "line 2: field 'id' must be a text"),
            ('{"id": "a", "variables": {"X": 1}}', "line 2: field 'variables' must be an object"),
            ('{"id": "a", "variables": {"X=Y": ""}}', "line 2: field 'variables': 'X=Y' cannot be a variable"),
            ('{"id": "a", "variables": {"X": "\\u0000"}}', "line 2: field 'variables': 'X' cannot be a variable"),
            ('{"id": "a", "variabels": {}}', "line 2: field 'variabels' is not known; did you mean 'variables'?"),
            ('{"id": "a", "max_steps": 0}', "line 2: field 'max_steps' must be a whole number above 0"),
            ('{"id": "a"', "line 2 is not JSON"),
            ('["a"]', "line 2 must be an object"),
            ('{"id": "fine"}', "line 2 names the task 'fine' twice; it is in line 1 already"),
        ],
    )
    async def test_a_task_file_with_wrong_fields_names_line_and_field(
        self, served: str, tmp_path: Path, line: str, why: str
    ) -> None:
        file = tmp_path / "tasks.jsonl"
        file.write_text(f'{{"id": "fine"}}\n{line}\n')
        with pytest.raises(InvalidRequest) as raised:
            await run(served, solve, tasks=str(file))
        assert why in raised.value.message


STUBBORN = """
import asyncio, threading, time
from aenv.rollouts import Runner, Timeouts
from aenv.rollouts.task_instances import REFUSALS

errors = 0


async def calls(env, task):
    while True:
        try:
            await (env.call_tool("submit", {{"answer": 6}}) if task["id"] == "six" else env.call_tool("hang"))
            return
        except:
            pass


async def sleeps(env, task):
    while task["id"] == "two":
        try:
            await asyncio.sleep(60)
        except BaseException:
            pass
    await env.call_tool("submit", {{"answer": 6}})


def blocks(env, task):
    global errors
    while True:
        try:
            env.call_tool("submit", {{"answer": 6}}) if task["id"] == "six" else env.call_tool("hang")
            return
        except BaseException:
            errors += 1


async def main():
    async with Runner(1, url={url!r}, timeouts=Timeouts(agent=1)) as runner:
        for one in await runner.run("trouble", {agent}):
            print(one.task, one.outcome)
    while {agent} is blocks and errors <= REFUSALS:  # the thread stands still then
        await asyncio.sleep(0.01)
    before = time.process_time()
    await asyncio.sleep(0.2)
    assert time.process_time() - before < 0.1  # nothing computes


asyncio.run(main())
"""


LEAVING = """
import asyncio

kept = []


async def goes_on():
    while True:
        try:
            await asyncio.sleep(60)
        except BaseException:
            pass


async def agent(env, task):
    kept.append(asyncio.create_task(goes_on()))
    await env.call_tool("submit", {"answer": 2})
"""
