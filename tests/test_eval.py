"""`aenv eval`: agents over tasks, results that outlive an interruption, and what the numbers say."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from aenv.base import mcp
from aenv.base.addresses import Origin
from aenv.base.errors import Conflict, InvalidRequest, NotFound
from aenv.base.http1 import Pool
from aenv.rollouts import agents, journal, roster
from aenv.rollouts.results import RunIdentity, TokenCount
from aenv.rollouts.task import Task
from aenv.rollouts.task_instances import InstanceSource
from tests.command_line import aenv, environ, serving
from tests.evaluations import Run, by_key, lines, outcomes, served_projects
from tests.gateways import make_project
from tests.lease_clients import without_sockets
from tests.task_environments import SUMS

pytestmark = pytest.mark.slow  # evaluations are run

RUN = RunIdentity("sums@1.0.0")


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[str, Path]]:
    with served_projects(tmp_path_factory.mktemp("eval")) as found:
        yield found


@pytest.fixture
def url(served: tuple[str, Path]) -> str:
    return served[0]


@pytest.fixture
def run(url: str, tmp_path: Path) -> Run:
    return Run(url, tmp_path)


class TestAgents:
    async def test_the_oracle_passes_and_who_does_nothing_fails(self, run: Run, tmp_path: Path) -> None:
        found = await run("sums", agents.Oracle())
        assert outcomes(found) == {"two": "pass", "six": "pass"}
        one = found[0]
        assert one.reward == 1.0
        assert one.timings.whole > 0
        assert (one.steps, one.run.environment, one.run.agent, one.seed) == (1, "sums@1.0.0", "oracle", 0)
        assert {one.task: one.split for one in found} == {"two": "train", "six": "test"}
        variables = {one.task: one.variables for one in found}
        assert variables["two"] == {"ID": "two", "N": "1", "SUM": "1+1"}
        written = lines(tmp_path / "out.jsonl")
        assert (
            by_key(one.as_json() for one in run.told) == by_key(written) == by_key(one.as_json() for one in found)
        )
        assert outcomes(await run("sums", agents.Nop(), out=tmp_path / "nop")) == {"two": "fail", "six": "fail"}

    async def test_calls_at_random_are_the_same_for_the_same_seed(self, run: Run, tmp_path: Path) -> None:
        async def conversation(seed: int, number: int) -> list[Any]:
            agent = agents.RandomCalls(seed, 5)
            (one,) = await run("sums", agent, tasks=("six",), out=tmp_path / str(number))
            assert one.trajectory
            return one.trajectory.messages

        first, second, other = [await conversation(seed, n) for n, seed in enumerate((1, 1, 5))]
        assert first == second
        assert first != other
        assert first[0] == {"role": "user", "content": "what is 3+3?"}
        assert [message["role"] for message in first[1:3]] == ["assistant", "tool"]

    async def test_a_function_of_your_own_plays(
        self, run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        (tmp_path / "my_agent.py").write_text(
            "async def solve(env, task):\n"
            "    await env.call_tool('submit', {'answer': 2 if task['id'] == 'two' else 7})\n"
            "    return {'cost': 0.5, 'tokens': {'in': 3, 'out': 4}}\n\n\n"
            "async def fail(env, task):\n    raise RuntimeError('I cannot')\n\n\n"
            "def short(env):\n    pass\n\n\n"
            "number = 5\n"
        )
        monkeypatch.chdir(tmp_path)
        monkeypatch.syspath_prepend(str(tmp_path))
        found = await run("sums", roster.agent("my_agent:solve"))
        assert outcomes(found) == {"two": "pass", "six": "fail"}
        assert (found[0].cost, found[0].tokens, found[0].steps) == (0.5, TokenCount(3, 4), 1)
        found = await run("sums", roster.agent("my_agent:fail"), tasks=("two",), out=tmp_path / "fail")
        assert outcomes(found) == {"two": "agent_error"}
        assert found[0].reason == "RuntimeError: I cannot"
        for name, why in (
            ("my_agent:number", "not a function"),
            ("my_agent:x", "not there"),
            ("nowhere:x", r"No module.*looked for in the current folder and on Python's path"),
            ("my_agent:short", r"short must take \(env, task\): too many positional arguments"),
            ("./my_agent.py:play", "is not the name of a module; write it as my_agent:play"),
        ):
            with pytest.raises(InvalidRequest, match=why):
                roster.agent(name)
        with pytest.raises(InvalidRequest, match="no agent 'magic'; use oracle"):
            roster.agent("magic")

    async def test_steps_that_the_environment_does_not_tell_are_unknown(self, run: Run) -> None:
        found = await run("silent", agents.Oracle(), tasks=("two",))
        assert (found[0].passed, found[0].steps) == (True, None)

    async def test_a_reward_that_cannot_be_judged_is_invalid(self, run: Run) -> None:
        found = await run("unjudged", agents.Nop(), tasks=("two",))
        assert outcomes(found) == {"two": "invalid"}
        assert found[0].reason == "no evidence"

    @pytest.mark.parametrize("agent", [agents.Nop(), agents.Oracle()], ids=["nop", "oracle"])
    async def test_what_is_missing_is_told_and_is_no_number(self, run: Run, agent: Any) -> None:
        found = await run("unready", agent, tasks=("two",))
        assert outcomes(found) == {"two": "not_ready"}
        assert found[0].reason == "no abacus; buy one"

    async def test_a_reward_outside_its_range_is_an_error_of_the_environment(self, run: Run) -> None:
        found = await run("wrong", agents.Nop(), tasks=("two",))
        assert outcomes(found) == {"two": "env_error"}
        assert found[0].reason == "the reward 7 is outside 0..1"

    async def test_an_instance_that_cannot_be_made_is_an_error_of_the_infrastructure(self, run: Run) -> None:
        found = await run("refused", agents.Nop(), tasks=("two",))
        assert outcomes(found) == {"two": "infra_error"}
        assert "field 'datasource'" in found[0].reason

    async def test_a_connection_that_breaks_is_an_error_of_the_infrastructure(
        self, run: Run, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        without_sockets(monkeypatch)

        async def broken(env: Any, task: dict[str, Any]) -> None:
            await env.call_tool("submit", {"answer": 2})
            env._launched.session.origin = Origin("127.0.0.1", 1)

        found = await run("sums", agents.Function("test:broken", broken), tasks=("two",))
        assert outcomes(found) == {"two": "infra_error"}
        assert "127.0.0.1:1" in found[0].reason

    @pytest.mark.slow  # it takes its two seconds
    async def test_an_episode_that_takes_too_long_is_a_timeout(self, run: Run) -> None:
        async def wait(env: Any, task: dict[str, Any]) -> None:
            await env.call_tool("hang")

        found = await run("talk", agents.Function("test:wait", wait), tasks=("two",), limit=2.0)
        assert outcomes(found) == {"two": "timeout"}
        assert "2 s" in found[0].reason

    async def test_a_timeout_of_the_agents_own_is_the_agents(self, run: Run) -> None:
        async def late(env: Any, task: dict[str, Any]) -> None:
            raise TimeoutError("my model")

        found = await run("sums", agents.Function("test:late", late), tasks=("two",))
        assert outcomes(found) == {"two": "agent_error"}

    async def test_an_environment_without_tasks_cannot_be_evaluated(self, run: Run) -> None:
        with pytest.raises(NotFound, match=r"'bare@1\.0\.0' has no tasks: it registers no function 'list_tasks'"):
            await run("bare", agents.Nop())

    async def test_a_split_chooses_and_an_unknown_one_is_refused_by_the_environment(self, run: Run) -> None:
        assert list(outcomes(await run("sums", agents.Nop(), split="test"))) == ["six"]
        with pytest.raises(Exception, match="there are train, test"):
            await run("sums", agents.Nop(), split="dev")


class TestResume:
    async def test_what_is_there_is_not_played_again_and_a_torn_line_is_no_harm(
        self, run: Run, tmp_path: Path
    ) -> None:
        file = tmp_path / "out.jsonl"
        first = await run("sums", agents.Nop(), tasks=("two",))
        file.write_bytes(file.read_bytes() + b'{"type": "result", "task": "six", "rew' + b"a" * 9999)
        run.told.clear()
        found = await run("sums", agents.Nop(), resume=True)
        assert found[0] == first[0]
        assert [one.task for one in run.told] == ["two", "six"]
        assert [line["task"] for line in lines(file)] == ["two", "six"]

    @pytest.mark.parametrize("outcome", ["invalid", "not_ready", "infra_error", "cancelled"])
    async def test_what_was_not_judged_is_played_again(self, run: Run, tmp_path: Path, outcome: str) -> None:
        (one,) = await run("sums", agents.Nop(), tasks=("two",))
        other = {**one.as_json(), "outcome": outcome, "reward": None, "passed": None, "error": "why"}
        (tmp_path / "out.jsonl").write_text(json.dumps(other) + "\n")
        found = await run("sums", agents.Nop(), tasks=("two",), resume=True)
        assert outcomes(found) == {"two": "fail"}

    async def test_results_of_another_agent_or_seed_do_not_mix(self, run: Run) -> None:
        await run("sums", agents.Nop(), tasks=("two",))
        with pytest.raises(Conflict, match="of agent 'nop', and this is 'oracle'"):
            await run("sums", agents.Oracle(), resume=True)
        with pytest.raises(Conflict, match="of seed 0, and this is 1"):
            await run("sums", agents.Nop(), resume=True, seed=1)

    async def test_a_file_with_results_is_not_overwritten(self, run: Run) -> None:
        await run("sums", agents.Nop(), tasks=("two",))
        with pytest.raises(Conflict, match="--resume"):
            await run("sums", agents.Nop(), tasks=("two",))

    def test_two_evaluations_cannot_write_to_one_file(self, tmp_path: Path) -> None:
        file, busy = tmp_path / "x", pytest.raises(Conflict, match="another evaluation writes")
        with journal.opened(file, RUN), busy, journal.opened(file, RUN):
            pass

    @pytest.mark.parametrize(
        "line",
        [
            "[]",
            "{",
            '{"task": 1}',
            '{"task": "a", "outcome": "won"}',
            '{"task": "a", "outcome": "reward", "reward": null}',
            '{"task": "a", "outcome": "invalid", "reward": 0.0}',
        ],
    )
    def test_a_file_of_something_else_is_refused_and_left_alone(self, tmp_path: Path, line: str) -> None:
        file = tmp_path / "x"
        file.write_text(f"{line}\n")
        with pytest.raises(InvalidRequest, match="line 1"), journal.opened(file, RUN, mode="resume"):
            pass
        assert file.read_text() == f"{line}\n"

    @pytest.mark.parametrize("mode", ["either", "resume"])
    def test_a_file_of_one_line_without_an_end_is_left_alone(self, tmp_path: Path, mode: Any) -> None:
        file = tmp_path / "package.json"
        file.write_text('{"name": "mine"}')
        with pytest.raises(Conflict, match="is not a journal"), journal.opened(file, RUN, mode=mode):
            pass
        assert file.read_text() == '{"name": "mine"}'

    def test_a_run_without_results_does_not_go_on_as_another_one(self, tmp_path: Path) -> None:
        file = tmp_path / "x"
        with journal.opened(file, RUN):
            pass
        other = replace(RUN, seed=RUN.seed + 1)
        with pytest.raises(Conflict, match="line 1 is of seed"), journal.opened(file, other, mode="either"):
            pass


async def test_results_carry_that_an_environment_is_for_evaluation_alone(run: Run, tmp_path: Path) -> None:
    (one,) = await run("sums", agents.RandomCalls(0, 1), tasks=("two",), eval_only=True)
    assert one.run.eval_only
    assert lines(tmp_path / "out.jsonl")[0]["evalOnly"] is True
    assert journal.read(tmp_path / "out.jsonl").eval_only


class TestCommand:
    def test_a_folder_that_is_for_evaluation_alone(self, tmp_path: Path) -> None:
        project = make_project(tmp_path, "sums", code=SUMS)
        config = json.loads((project / "config.json").read_text())
        (project / "config.json").write_text(json.dumps({**config, "evalOnly": True}))
        home = tmp_path / "home"
        done = aenv("eval", project, "--agent", "oracle", "--json", env=environ(AENV_HOME=str(home)))
        assert done.returncode == 0, done.stderr
        printed = [json.loads(line) for line in done.stdout.splitlines()]
        assert sorted(one["task"] for one in printed) == ["six", "two"]
        assert all(one["evalOnly"] and len(one["digest"]) == 64 for one in printed)
        (file,) = (home / "evals").glob("sums@1.0.0-oracle-*.jsonl")
        assert lines(file) == printed
        assert str(file) in done.stderr
        assert "100.0%" in done.stderr

    def test_the_table_has_splits_and_intervals(self, url: str, tmp_path: Path) -> None:
        words = ("eval", "sums", "--agent", "oracle", "--system-url", url, "--out", tmp_path / "x")
        done = aenv(*words)
        assert done.returncode == 0, done.stderr
        assert [line.split()[0] for line in done.stdout.splitlines()] == ["split", "test", "train", "all"]
        assert "34.2% to 100.0%" in done.stdout.splitlines()[-1]
        assert done.stdout.splitlines()[-1].split()[1:5] == ["2", "2", "2", "0"]
        again = aenv(*words[:-2], "--resume", tmp_path / "x", "--json")
        assert len(again.stdout.splitlines()) == 2
        assert len(lines(tmp_path / "x")) == 2

    def test_an_evaluation_in_which_nothing_could_be_judged_fails_and_says_why(
        self, url: str, tmp_path: Path
    ) -> None:
        done = aenv("eval", "unready", "--agent", "nop", "--system-url", url, "--out", tmp_path / "x")
        assert done.returncode == 1
        assert "not judged: 2 not_ready" in done.stdout
        assert "no abacus; buy one" in done.stdout
        assert "%" not in done.stdout.splitlines()[1]

    def test_misuse_is_one_line(self, url: str, tmp_path: Path) -> None:
        for words, message in (
            (("sums",), "missing option '--agent'"),
            (("sums", "--agent", "magic"), "no agent 'magic'"),
            (("sums", "--agent", "nop", "--tasks", "tow"), "no task 'tow'; there are 'two'"),
            (("sums", "--agent", "nop", "--resume", tmp_path / "none"), "no such file"),
            (("a b", "--agent", "nop"), "bad environment name"),
        ):
            done = aenv("eval", *words, "--system-url", url)
            assert done.returncode in (1, 2)
            assert message in done.stderr
            assert len(done.stderr.splitlines()) <= 2
            assert done.stdout == ""

    @pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
    def test_an_interruption_leaves_results_and_no_instances(
        self, served: tuple[str, Path], tmp_path: Path, number: signal.Signals
    ) -> None:
        (tmp_path / "slow.py").write_text(
            "import os\n\n\nasync def run(env, task):\n    if task['id'] == 'six':\n"
            "        os.write(1, b'hanging\\n')\n        await env.call_tool('hang')\n"
        )
        out = tmp_path / "x"
        words = ("talk", "--agent", "slow:run", "--concurrency", "1", "--system-url", served[0], "--out", out)
        with serving("eval", *words, cwd=tmp_path) as command:
            command.until("hanging")
            code = command.stop(number)
            assert command.process.stderr
            said = command.process.stderr.read()
        assert code == 130
        assert said.strip() == f"interrupted; continue with --resume {out}"
        written = journal.results(out)
        assert outcomes(written) == {"two": "fail", "six": "cancelled"}
        assert written[1].steps == 1
        assert asyncio.run(instances(served[0])) == []


async def instances(url: str) -> list[dict[str, Any]]:
    host, port = url.removeprefix("http://").split(":")
    async with Pool() as pool:
        response = await pool.request(Origin(host, int(port)), "GET", "/env-instance/*/list")
        listed: list[dict[str, Any]] = mcp.loads(await response.read())["data"] or []
    return listed


def on_terminal(folder: Path, columns: int, *words: object) -> tuple[str, str]:
    """What a command prints, and what a terminal of so many columns has shown of its progress."""
    parent, child = os.openpty()
    command = [sys.executable, "-m", "aenv.cli", *map(str, words)]
    variables = environ(AENV_HOME=str(folder / "home"), TERM="xterm", COLUMNS=str(columns))
    with subprocess.Popen(command, env=variables, stdout=subprocess.PIPE, stderr=child, text=True) as process:
        os.close(child)
        shown = b""
        # An OSError is the end: the other side is closed.
        with os.fdopen(parent, "rb", buffering=0) as terminal, contextlib.suppress(OSError):
            while piece := terminal.read(1 << 16):
                shown += piece
        printed, _ = process.communicate()
    assert process.returncode == 0, shown
    return printed, shown.decode()


@pytest.mark.parametrize("columns", [200, 50])
def test_progress_is_shown_on_a_terminal_alone(url: str, tmp_path: Path, columns: int) -> None:
    words = ("eval", "sums", "--agent", "nop", "--system-url", url, "--out", tmp_path / "x")
    printed, shown = on_terminal(tmp_path, columns, *words)
    assert "2/2" in shown
    assert "0% pass" in shown
    assert ("sums@1.0.0 nop" in shown) is (columns == 200)
    assert "\x1b" not in printed


def test_a_bar_of_a_resumed_evaluation_begins_where_it_was(url: str, tmp_path: Path) -> None:
    words = ("eval", "sums", "--agent", "nop", "--system-url", url)
    assert aenv(*words, "--tasks", "two", "--out", tmp_path / "x").returncode == 0
    _, shown = on_terminal(tmp_path, 200, *words, "--resume", tmp_path / "x")
    assert "1/2" in shown
    assert "2/2" in shown
    assert "0/2" not in shown


def test_results_carry_variables_without_what_is_secret_by_its_name() -> None:
    place = InstanceSource("sums", variables={"MODE": "a", "MY_API_KEY": "sk-1"})
    assert place.told_variables(Task("t", {"ID": "t"})) == {"MODE": "a", "MY_API_KEY": "***", "ID": "t"}


def test_nor_do_they_carry_what_refers_to_a_secret() -> None:
    place = InstanceSource("sums", variables={"MODE": {"secret": "MODE_OF_MINE"}})
    assert place.told_variables(Task("t", {})) == {"MODE": "***"}
    assert place.environment().environment_variables == {"MODE": {"secret": "MODE_OF_MINE"}}
