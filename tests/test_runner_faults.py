"""Every fault on the way of a rollout has its outcome, and a run goes on after the end of its process."""

from __future__ import annotations

import asyncio
import contextlib
import json
import resource
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from aenv.base.addresses import Origin
from aenv.base.errors import Conflict
from aenv.client import chat
from aenv.client.chat import Chat
from aenv.rollouts import Outcome, Timeouts, journal
from aenv.rollouts.llm import Llm, Model
from tests.command_line import Server, environ, serving
from tests.evaluations import lines
from tests.gateways import leftovers, make_project
from tests.lease_clients import without_sockets
from tests.model_servers import model
from tests.rollout_worlds import answering, gateway, one, run, solve
from tests.task_environments import SUMS
from tests.test_eval import instances

pytestmark = pytest.mark.slow  # episodes are played on a gateway


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with gateway(tmp_path_factory.mktemp("runner")) as (url, _):
        yield url


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

    async def test_a_reward_after_a_lost_call_says_nothing(
        self, served: str, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        without_sockets(monkeypatch)
        async with answering(503, b"down") as port:

            async def agent(env: Any, task: dict[str, Any]) -> None:
                session = env._launched.session
                way, session.origin = session.origin, Origin("127.0.0.1", port)
                with contextlib.suppress(Exception):
                    await env.call_tool("look")
                session.origin = way
                await env.call_tool("submit", {"answer": 2})

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

    async def test_an_agent_on_an_environment_of_your_own_that_never_awaits(
        self, served: str, tmp_path: Path
    ) -> None:
        script = tmp_path / "script.py"
        script.write_text(HOLDING.format(url=served))
        done = await asyncio.to_thread(
            subprocess.run, [sys.executable, script], capture_output=True, text=True, env=environ(), timeout=60
        )
        assert (done.returncode, done.stdout) == (0, "timeout the agent took longer than 1 s\n"), done.stderr

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

    @pytest.mark.parametrize(("status", "fix"), [(401, "the key of its server"), (404, "no such model or path")])
    async def test_a_model_that_may_not_be_asked_so_is_not_the_agents_fault(
        self, served: str, status: int, fix: str
    ) -> None:
        async with model((status, '{"error": "no"}')) as server:
            found = await one(served, Llm(Chat(server.url), Model("m")))
        assert (found.outcome, fix in found.reason) == (Outcome.NOT_READY, True), found.reason

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

    async def test_another_task_of_the_same_id_is_played(self, served: str, tmp_path: Path) -> None:
        played = []

        async def agent(env: Any, task: dict[str, Any]) -> None:
            played.append(task["instruction"])

        for number, text in (("1", "a"), ("1", "a"), ("2", "a"), ("2", "b")):
            task = {"id": "x", "variables": {"ID": "x", "N": number, "SUM": "s"}, "instruction": text}
            (found,) = await run(served, agent, tasks=[task], out=tmp_path / "x")
            assert found.variables["N"] == number
        assert played == ["a", "a", "b"]

    async def test_a_copy_of_a_journal_ends_no_instance_of_a_run_that_goes_on(
        self, served: str, tmp_path: Path
    ) -> None:
        hangs, goes = asyncio.Event(), asyncio.Event()

        async def agent(env: Any, task: dict[str, Any]) -> None:
            if not hangs.is_set():
                hangs.set()
                await goes.wait()
            await solve(env, task)

        first = asyncio.create_task(run(served, agent, tasks=["two"], out=tmp_path / "x"))
        await hangs.wait()
        shutil.copy(tmp_path / "x", tmp_path / "copy")
        await run(served, agent, tasks=["two"], out=tmp_path / "copy")
        goes.set()
        assert [one.reward for one in await first] == [1.0]

    @pytest.mark.slow  # a process that stands still for longer than its agent may play
    async def test_a_process_that_was_stopped_goes_on(self, served: str, tmp_path: Path) -> None:
        script = tmp_path / "script.py"
        script.write_text(STOPPED.format(url=served))
        done = await asyncio.to_thread(
            subprocess.run, [sys.executable, script], capture_output=True, text=True, env=environ()
        )
        assert (done.returncode, done.stdout) == (0, "reward\n"), done.stderr

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
        found = await run(served, solve, out=file, resume=True)  # the code in the script is another
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


solve.__module__ = "tests.rollout_worlds"


async def main():
    async with Runner(1, url={url!r}) as runner:
        await runner.run("trouble", solve, out={file!r})


asyncio.run(main())
"""


HOLDING = """
import asyncio
from aenv import Environment
from aenv.rollouts import Timeouts, rollout


async def agent(env, task):
    while True:
        pass


async def main():
    task = {{"ID": "two", "N": "1", "SUM": "1+1"}}
    async with Environment("trouble@1.0.0", aenv_url={url!r}, environment_variables=task) as env:
        found = await rollout(env, agent, timeouts=Timeouts(agent=1))
    print(found.outcome, found.reason)


asyncio.run(main())
"""


STOPPED = """
import asyncio, os, subprocess
from aenv.rollouts import Runner, Timeouts


async def agent(env, task):
    pid = os.getpid()
    stop = subprocess.Popen(["sh", "-c", f"kill -STOP {{pid}}; sleep 8; kill -CONT {{pid}}"])
    while stop.poll() is None:  # its task runs when the process goes on
        await asyncio.sleep(0)
    await env.call_tool("submit", {{"answer": 2}})


async def main():
    async with Runner(1, url={url!r}, timeouts=Timeouts(agent=6)) as runner:
        (found,) = await runner.run("trouble", agent, tasks=["two"])
    print(found.outcome, found.reason) if found.reason else print(found.outcome)


asyncio.run(main())
"""


def solve_as(agent: Any) -> Any:
    """`solve` under the name of another agent, for a file that goes on."""

    async def other(env: Any, task: dict[str, Any]) -> str:
        return await solve(env, task)

    other.__qualname__ = agent.__qualname__
    return other


@contextlib.contextmanager
def own_gateway(folder: Path) -> Iterator[tuple[str, Server]]:
    """A gateway that may be killed, and its process. The next one on its home ends what it has left."""
    project, home = make_project(folder, "trouble", code=SUMS), folder / "home"
    options = ("--port", "0", "--data-port", "0", "--home", home, "--log-level", "ERROR")
    for is_first in (True, False):
        with serving("serve", project, *options) as server:
            *_, line = server.until("AENV_SYSTEM_URL", on="stderr")
            if is_first:
                yield line.partition("=")[2], server
    assert leftovers(home) == []
