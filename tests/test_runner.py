"""`Runner` and `rollout`: typed results, every fault with its outcome, and nothing left behind."""

from __future__ import annotations

import asyncio
import contextlib
import json
import resource
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from aenv import Environment
from aenv.base.addresses import Origin
from aenv.base.errors import Conflict, InvalidRequest
from aenv.client import chat
from aenv.client.chat import Chat
from aenv.rollouts import Outcome, RolloutResult, Runner, Timeouts, journal, rollout
from aenv.rollouts.llm import Llm, Model
from tests.command_line import Server, environ
from tests.evaluations import lines
from tests.lease_clients import without_sockets
from tests.model_servers import model
from tests.rollout_worlds import answering, gateway
from tests.test_eval import instances


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with gateway(tmp_path_factory.mktemp("runner")) as (url, _):
        yield url


async def solve(env: Any, task: dict[str, Any]) -> str:
    await env.call_tool("submit", {"answer": 2 if task["id"] == "two" else 6})
    return f"the answer of {task['instruction']!r} is submitted"


async def run(url: str, agent: Any, env: str = "trouble", **options: Any) -> list[RolloutResult]:
    own = {name: options.pop(name) for name in ("retries", "timeouts", "max_calls") if name in options}
    async with Runner(4, url=url, **{"retries": 0, **own}) as runner:
        return await runner.run(env, agent, **options)


async def one(url: str, agent: Any, **options: Any) -> RolloutResult:
    (found,) = await run(url, agent, tasks=["two"], **options)
    assert (found.reward is None) is (found.outcome != Outcome.REWARD)
    assert bool(found.reason) is (found.reward is None)
    return found


class TestResults:
    async def test_a_result_is_typed_and_has_its_trajectory(self, served: str, tmp_path: Path) -> None:
        found = await run(served, solve, repeat=2, out=tmp_path / "run.jsonl", seed=3)
        assert sorted(one.key for one in found) == [("six", 1), ("six", 2), ("two", 1), ("two", 2)]
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
        assert journal.results(tmp_path / "run.jsonl") == found

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

    async def test_a_function_that_is_not_async_plays_in_a_thread(self, served: str) -> None:
        def plain(env: Any, task: dict[str, Any]) -> None:
            assert threading.current_thread() is not threading.main_thread()
            env.call_tool("submit", {"answer": 2})

        assert (await one(served, plain)).reward == 1.0

    async def test_the_folder_of_a_project_is_served_while_the_runner_lives(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        from tests.gateways import make_project
        from tests.task_environments import SUMS

        monkeypatch.setenv("AENV_HOME", str(tmp_path / "home"))
        project = make_project(tmp_path, "sums", code=SUMS)
        async with Runner() as runner:
            found = await runner.run(project, solve)
        assert [one.reward for one in found] == [1.0, 1.0]
        assert len(found[0].run.digest or "") == 64


class TestFaults:
    async def test_an_instance_that_is_killed(self, served: str) -> None:
        async def agent(env: Any, task: dict[str, Any]) -> None:
            await env.call_tool("die")

        found = await one(served, agent, retries=1)
        assert (found.outcome, found.attempts) == (Outcome.INFRA_ERROR, 2)
        assert "ended before it had answered" in found.reason

    @pytest.mark.parametrize("kind", ["tool", "function", "reward"])
    async def test_an_instance_that_was_ended_by_others(self, served: str, kind: str) -> None:
        async def agent(env: Any, task: dict[str, Any]) -> None:
            await env._launched.api.delete_instance(env.instance_id)
            if kind == "tool":
                await env.call_tool("look")
            elif kind == "function":
                await env.call_function("name_of", {"value": 1})

        found = await one(served, agent, retries=1)
        assert (found.outcome, found.attempts) == (Outcome.INFRA_ERROR, 2), found.reason

    async def test_what_the_environment_does_not_have_is_not_the_infrastructure(self, served: str) -> None:
        async def agent(env: Any, task: dict[str, Any]) -> None:
            await env.call_function("no_such_function")

        assert (await one(served, agent, retries=1)).outcome == Outcome.AGENT_ERROR

    async def test_an_agent_that_hides_that_its_instance_died(self, served: str) -> None:
        async def agent(env: Any, task: dict[str, Any]) -> None:
            for tool in ("die", "look"):
                with contextlib.suppress(Exception):
                    await env.call_tool(tool)

        assert (await one(served, agent)).outcome == Outcome.INFRA_ERROR

    async def test_a_failure_of_the_infrastructure_is_tried_again_on_a_fresh_instance(
        self, served: str, tmp_path: Path
    ) -> None:
        seen: list[str] = []

        async def agent(env: Any, task: dict[str, Any]) -> None:
            seen.append(env.instance_id)
            await env.call_tool("submit" if len(seen) == 2 else "die", {"answer": 2} if len(seen) == 2 else {})

        found = await one(served, agent, retries=2, out=tmp_path / "x")
        assert (found.outcome, found.reward, found.attempts) == (Outcome.REWARD, 1.0, 2)
        assert len(set(seen)) == 2
        assert [line["attempts"] for line in lines(tmp_path / "x", "begin")] == [1, 2]
        assert "ended before" in lines(tmp_path / "x", "retry")[0]["error"]
        assert found.trajectory and [call.name for call in found.trajectory.calls] == ["submit"]

    @pytest.mark.slow  # an instance is filled
    async def test_an_instance_out_of_memory_is_an_error_of_the_environment(self, served: str) -> None:
        async def agent(env: Any, task: dict[str, Any]) -> None:
            await env.call_tool("fill", {"megabytes": 1024})

        found = await one(served, agent, retries=2)
        assert (found.outcome, found.attempts) == (Outcome.ENV_ERROR, 1)
        assert "used more memory than its limit" in found.reason

    async def test_a_slow_tool(self, served: str) -> None:
        async def agent(env: Any, task: dict[str, Any]) -> None:
            await env.call_tool("hang", timeout=0.2)

        found = await one(served, agent)
        assert (found.outcome, "within 0.2 s" in found.reason) == (Outcome.TIMEOUT, True)

    @pytest.mark.parametrize(
        ("status", "body"),
        [
            (200, b"<html>"),
            (200, b'{"jsonrpc": "2.0"'),
            (429, b'{"success": false, "message": "slow down", "error": "too_many_requests"}'),
            (503, b"down"),
            (502, b"bad gateway"),
        ],
    )
    async def test_an_answer_of_something_between(
        self, served: str, status: int, body: bytes, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        without_sockets(monkeypatch)
        async with answering(status, body) as port:

            async def agent(env: Any, task: dict[str, Any]) -> None:
                env._launched.session.origin = Origin("127.0.0.1", port)
                await env.call_tool("look")

            assert (await one(served, agent)).outcome == Outcome.INFRA_ERROR

    async def test_a_model_that_cannot_be_reached(self, served: str, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(chat, "_MAX_WAIT", 0.0)  # the waiting between attempts is not what this is about
        found = await one(served, Llm(Chat("http://127.0.0.1:1/v1"), Model("m")))
        assert (found.outcome, "cannot connect" in found.reason) == (Outcome.INFRA_ERROR, True)

    async def test_a_model_whose_answer_cannot_be_used(self, served: str) -> None:
        async with model((200, "<html>")) as server:
            found = await one(served, Llm(Chat(server.url), Model("m")))
        assert found.outcome == Outcome.AGENT_ERROR

    async def test_a_disk_that_is_full(self, served: str, tmp_path: Path) -> None:
        limits = resource.getrlimit(resource.RLIMIT_FSIZE)
        before = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        file = tmp_path / "run.jsonl"

        async def agent(env: Any, task: dict[str, Any]) -> None:
            # No file may grow by more than a part of a line: a disk that is full from here on.
            resource.setrlimit(resource.RLIMIT_FSIZE, (file.stat().st_size + 10, limits[1]))
            await env.call_tool("look")

        try:
            found = await one(served, agent, out=file)
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, limits)
            signal.signal(signal.SIGXFSZ, before)
        assert found.outcome == Outcome.INFRA_ERROR
        assert "cannot be written: no space left on device" in found.reason
        assert all(json.loads(line) for line in file.read_text().splitlines())  # no part of a line is left
        assert (await one(served, solve_as(agent), out=file)).reward == 1.0  # and the run goes on there

    @pytest.mark.slow  # a gateway of its own
    @pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM])
    async def test_a_gateway_that_goes_away(self, tmp_path: Path, number: signal.Signals) -> None:
        with own_gateway(tmp_path) as (url, server):

            async def agent(env: Any, task: dict[str, Any]) -> None:
                server.process.send_signal(number)
                server.process.wait()
                await env.call_tool("look")

            found = await one(url, agent, retries=1, timeouts=Timeouts(start=2))
        assert (found.outcome, found.attempts) == (Outcome.INFRA_ERROR, 2)


class TestStages:
    async def test_an_agent_that_loops_for_ever(self, served: str) -> None:
        async def agent(env: Any, task: dict[str, Any]) -> None:
            while True:
                await env.call_tool("look")

        found = await one(served, agent, timeouts=Timeouts(agent=0.5), max_calls=None)
        assert (found.outcome, found.reason) == (Outcome.TIMEOUT, "the agent took longer than 0.5 s")
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

    async def test_a_thread_of_an_agent_ends_at_its_next_call(self, served: str) -> None:
        ended = threading.Event()

        def agent(env: Any, task: dict[str, Any]) -> None:
            try:
                env.call_tool("hang")
            finally:
                ended.set()

        found = await one(served, agent, timeouts=Timeouts(agent=0.3))
        assert found.outcome == Outcome.TIMEOUT
        assert await asyncio.to_thread(ended.wait, 30)

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
        assert (found.outcome, found.attempts) == (Outcome.INFRA_ERROR, 2)
        assert found.reason == "the start took longer than 0 s"

    async def test_a_reward_that_takes_too_long(self, served: str) -> None:
        found = await one(served, solve, env="slow-reward", timeouts=Timeouts(reward=0.3))
        assert (found.outcome, found.reason) == (Outcome.TIMEOUT, "the reward took longer than 0.3 s")


class TestAgents:
    @pytest.mark.parametrize(
        ("gives", "why"),
        [
            (None, ""),
            ("done", ""),
            ({"content": "done"}, ""),
            (b"bytes", "the agent returned a bytes; return a text"),
            ("x" * 100_000_000, "100,000,000 characters; at most 1,000,000"),
            ({"messages": [1]}, "each with a 'role'"),
        ],
    )
    async def test_what_an_agent_returns(self, served: str, gives: Any, why: str) -> None:
        async def agent(env: Any, task: dict[str, Any]) -> Any:
            return gives

        found = await one(served, agent)
        assert found.outcome == (Outcome.AGENT_ERROR if why else Outcome.REWARD)
        assert why in found.reason

    @pytest.mark.parametrize("error", [ValueError("no"), SystemExit(3), TimeoutError(), StopAsyncIteration()])
    async def test_an_agent_that_raises(self, served: str, error: BaseException) -> None:
        async def agent(env: Any, task: dict[str, Any]) -> None:
            raise error

        assert (await one(served, agent)).outcome == Outcome.AGENT_ERROR

    async def test_a_lambda_that_makes_a_coroutine_says_what_to_write(self, served: str) -> None:
        found = await one(served, lambda env, task: solve(env, task))
        assert (found.outcome, "use 'async def'" in found.reason) == (Outcome.AGENT_ERROR, True)

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


class TestTasks:
    async def test_tasks_may_be_objects_that_the_environment_does_not_list(self, served: str) -> None:
        task = {"id": "ten", "variables": {"ID": "ten", "N": "5", "SUM": "5+5"}, "instruction": "ten?"}

        async def agent(env: Any, task: dict[str, Any]) -> None:
            assert (task["id"], task["instruction"]) == ("ten", "ten?")
            await env.call_tool("submit", {"answer": 10})

        (found,) = await run(served, agent, tasks=[task])
        assert (found.task, found.reward) == ("ten", 1.0)

    @pytest.mark.parametrize(
        ("line", "why"),
        [
            ('{"id": 5}', "line 2: field 'id' must be a text"),
            ('{"id": "a", "variables": {"X": 1}}', "line 2: field 'variables' must be an object"),
            ('{"id": "a", "variabels": {}}', "line 2: field 'variabels' is not known; did you mean 'variables'?"),
            ('{"id": "a", "max_steps": 0}', "line 2: field 'max_steps' must be a whole number above 0"),
            ('{"id": "a"', "line 2 is not JSON"),
            ('["a"]', "line 2 must be an object"),
            ('{"id": "fine"}', "names the task 'fine' twice"),
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


class TestGoingOn:
    async def test_what_is_finished_is_not_run_again(self, served: str, tmp_path: Path) -> None:
        file, played = tmp_path / "run.jsonl", []

        async def agent(env: Any, task: dict[str, Any]) -> None:
            played.append(task["id"])
            await solve(env, task)

        first = await run(served, agent, tasks=["two"], out=file)
        found = await run(served, agent, out=file)
        assert played == ["two", "six"]
        assert found[0] == first[0]
        assert found[0].trajectory and found[0].trajectory.calls == first[0].trajectory.calls

    async def test_a_file_of_another_run_is_refused(self, served: str, tmp_path: Path) -> None:
        await run(served, solve, out=tmp_path / "x")
        with pytest.raises(Conflict, match="is of seed 0, and this is 1"):
            await run(served, solve, out=tmp_path / "x", seed=1)

    @pytest.mark.slow  # a process of its own
    async def test_a_process_that_is_killed_loses_no_step_but_the_one_in_flight(
        self, served: str, tmp_path: Path
    ) -> None:
        script, file = tmp_path / "script.py", tmp_path / "run.jsonl"
        script.write_text(SCRIPT.format(url=served, file=str(file)))
        process = subprocess.Popen([sys.executable, script], stdout=subprocess.PIPE, text=True, env=environ())
        assert process.stdout
        made = 0
        for line in process.stdout:  # it hangs in its last call
            made += line == "called\n"
            if line == "hangs\n":
                break
        process.kill()
        process.wait()
        process.stdout.close()
        known = journal.read(file)
        assert [one.task for one in known.results.values()] == ["two"]
        left = [one for one in known.trajectories.values() if one.result is None]
        assert [len(one.calls) for one in left] == [made]
        assert made == 5
        file.write_bytes(file.read_bytes() + b'{"type": "step", "torn')
        found = await run(served, solve, out=file)
        assert [one.task for one in found] == ["two", "six"]
        assert {one.outcome for one in found} == {Outcome.REWARD}
        assert await instances(served) == []  # also the one that the killed process had

    async def test_a_run_that_is_cancelled_leaves_no_instance(self, served: str, tmp_path: Path) -> None:
        hanging = asyncio.Event()

        async def agent(env: Any, task: dict[str, Any]) -> None:
            hanging.set()
            await env.call_tool("hang")

        running = asyncio.create_task(run(served, agent, out=tmp_path / "x"))
        await hanging.wait()
        running.cancel()
        with pytest.raises(asyncio.CancelledError):
            await running
        assert {one.outcome for one in journal.results(tmp_path / "x")} == {Outcome.CANCELLED}
        assert await instances(served) == []


SCRIPT = """
import asyncio
from aenv.rollouts import Runner


async def solve(env, task):
    if task["id"] == "two":
        await env.call_tool("submit", {{"answer": 2}})
        return
    for _ in range(5):
        await env.call_tool("look")
        print("called", flush=True)
    print("hangs", flush=True)
    await env.call_tool("hang")


solve.__module__ = "tests.test_runner"


async def main():
    async with Runner(1, url={url!r}) as runner:
        await runner.run("trouble", solve, out={file!r})


asyncio.run(main())
"""


def solve_as(agent: Any) -> Any:
    """`solve` under the name of another agent, for a file that goes on."""

    async def other(env: Any, task: dict[str, Any]) -> str:
        return await solve(env, task)

    other.__qualname__ = agent.__qualname__
    return other


def own_gateway(folder: Path) -> Any:
    """A gateway that may be killed: what it leaves is looked after by the next one, which starts at the end."""
    from contextlib import contextmanager

    @contextmanager
    def opened() -> Iterator[tuple[str, Server]]:
        from tests.command_line import serving
        from tests.gateways import make_project
        from tests.task_environments import SUMS

        project = make_project(folder, "trouble", code=SUMS)
        options = ("--port", "0", "--data-port", "0", "--home", folder / "home", "--log-level", "ERROR")
        with serving("serve", project, *options) as server:
            *_, line = server.until("AENV_SYSTEM_URL", on="stderr")
            yield line.partition("=")[2], server

    return opened()
