"""Journals whose agent has changed since: what is taken over is told, and results of other code are refused."""

from __future__ import annotations

import functools
import json
import subprocess
import sys
import textwrap
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from aenv.base.errors import Conflict, InvalidRequest
from aenv.rollouts import Outcome, RolloutResult, agent_source, journal
from aenv.rollouts.agents import Function, Nop, as_agent
from aenv.rollouts.results import RunIdentity
from tests.command_line import aenv, environ
from tests.evaluations import lines
from tests.rollout_worlds import gateway, run

UNKNOWN = RunIdentity("sums@1.0.0", "d", "nop")
BEGUN, CHANGED = replace(UNKNOWN, agent_sha256="a"), replace(UNKNOWN, agent_sha256="b")

AGENT = '''async def agent(env, task):
    """Submit an answer."""
    await env.call_tool("submit", {"answer": 2 if task["id"] == "two" else 6})
'''


def source_of(agent: Any) -> str:
    return agent_source.digest(as_agent(agent))


def module(folder: Path, code: str, name: str = "agent") -> Any:
    """What a file of this code has under `name`."""
    file = folder / f"m{len(list(folder.iterdir()))}.py"
    file.write_text(code)
    names: dict[str, Any] = {"__name__": file.stem}
    exec(compile(code, str(file), "exec"), names)
    return names[name]


class Player:
    async def play(self, env: Any, task: dict[str, Any]) -> None:
        """A comment of the class."""


class Caller:
    def __call__(self, env: Any, task: dict[str, Any]) -> None:
        """A comment of the class."""


class Odd:
    """Answers nothing that is asked of it."""

    def __getattribute__(self, name: str) -> Any:
        raise RuntimeError(name)


class TestDigest:
    def test_it_is_of_the_code_and_not_of_its_place(self, tmp_path: Path) -> None:
        first = source_of(module(tmp_path, AGENT))
        nested = f"def make():\n{textwrap.indent(AGENT, '    ')}    return agent\n\n\nagent = make()\n"
        assert first and source_of(module(tmp_path, f"\n\n# further down\n{AGENT}")) == first
        assert source_of(module(tmp_path, nested)) == first
        assert source_of(module(tmp_path, AGENT.replace("else 6", "else 7"))) != first

    def test_it_is_the_same_in_another_process(self) -> None:
        ask = "from tests.test_agent_source import *; print(source_of(Player()), source_of(source_of))"
        done = subprocess.run(
            [sys.executable, "-c", ask],
            capture_output=True,
            text=True,
            env=environ(),
            cwd=Path(__file__).parents[1],
        )
        assert done.stdout.split() == [source_of(Player()), source_of(source_of)], done.stderr
        assert all(done.stdout.split())

    def test_objects_methods_and_partials_have_that_of_their_code(self) -> None:
        assert source_of(Player()) == source_of(Player().play) == source_of(functools.partial(Player().play)) != ""
        assert source_of(Caller()) == source_of(functools.partial(Caller())) not in ("", source_of(Player()))

    def test_a_lambda_is_not_the_rest_of_its_line(self) -> None:
        pairs = [(lambda env, task: None, 1), (lambda env, task: "x", 2)]  # fmt: skip
        assert [source_of(one) for one, _ in pairs] == ["", ""]  # two in a line cannot be told apart
        one, _ = (lambda env, task: None), 1
        two, _ = (lambda env, task: None), 2
        other, _ = (lambda env, task: "x"), 2
        assert source_of(one) == source_of(two) not in ("", source_of(other))

    def test_what_has_no_source_has_no_digest_and_raises_nothing(self, tmp_path: Path) -> None:
        names: dict[str, Any] = {}
        exec(AGENT, names)
        gone = module(tmp_path, AGENT)
        next(tmp_path.iterdir()).unlink()
        looped = functools.wraps(len)(lambda env, task: None)
        looped.__wrapped__ = looped  # type: ignore[attr-defined]
        for odd in (names["agent"], gone, print, functools.partial(print), looped, Odd()):
            assert agent_source.digest(Function("odd", odd)) == ""
        assert agent_source.digest(Nop()) == agent_source.digest(Odd()) == ""


class TestJournal:
    @staticmethod
    def judged(file: Path, run: RunIdentity, outcome: str = "reward") -> None:
        reward = 1.0 if outcome == "reward" else None
        passed = True if reward else None
        with journal.opened(file, run) as opened:
            opened.append(RolloutResult("two", Outcome(outcome), reward, passed=passed, run=run).as_json())

    def test_a_file_of_other_code_is_refused(self, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
        file = tmp_path / "x"
        self.judged(file, BEGUN)
        ways = "x' has results of other code of the agent 'nop'; name another file or delete .* with resume=True"
        with pytest.raises(Conflict, match=ways), journal.opened(file, CHANGED, mode="either"):
            pass
        assert len(lines(file, "run")) == 1  # nothing is written to it
        for same in (BEGUN, UNKNOWN):
            with journal.opened(file, same, mode="either"):
                pass
        assert not caplog.messages
        with journal.opened(file, CHANGED, mode="resume") as opened:
            assert list(opened.known.results) == [("two", 1)]
        assert [one.partition(": ")[2] for one in caplog.messages] == [
            "they are not played again, and count with those of this code"
        ]

    def test_code_that_has_earned_nothing_may_change(self, tmp_path: Path) -> None:
        self.judged(tmp_path / "x", BEGUN, "agent_error")
        with journal.opened(tmp_path / "x", CHANGED, mode="either"):
            pass

    def test_a_file_of_an_earlier_version_goes_on(self, tmp_path: Path) -> None:
        self.judged(tmp_path / "x", UNKNOWN)
        assert "agent_sha256" not in (tmp_path / "x").read_text()
        for one in (BEGUN, CHANGED):
            with journal.opened(tmp_path / "x", one, mode="either") as opened:
                assert len(opened.known.results) == 1


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with gateway(tmp_path_factory.mktemp("source")) as (url, _):
        yield url


PROGRAM = """
import asyncio
from aenv.rollouts import Runner


{agent}

async def main():
    async with Runner(url={url!r}) as runner:
        for one in await runner.run("trouble", agent, out="run.jsonl"{more}):
            print(one.task, one.reward)


asyncio.run(main())
"""


@pytest.mark.slow  # episodes are played on a gateway, by programs
class TestPrograms:
    def test_a_program_that_is_changed_and_run_again(self, served: str, tmp_path: Path) -> None:
        def played(agent: str, more: str = "") -> subprocess.CompletedProcess[str]:
            (tmp_path / "program.py").write_text(PROGRAM.format(agent=agent, url=served, more=more))
            command = [sys.executable, "program.py"]
            return subprocess.run(command, capture_output=True, text=True, env=environ(), cwd=tmp_path)

        first = played(AGENT)
        assert (first.stdout, first.stderr) == ("two 1.0\nsix 1.0\n", "")
        again = played(f"# the same code\n\n{AGENT}", ", tasks=['two', 'six']")
        told = (
            "'run.jsonl' has 2 of 2 rollouts already: they are not played again; name another file to play them\n"
        )
        assert (again.stdout, again.stderr) == (first.stdout, told)
        worse = AGENT.replace("else 6", "else 7")
        refused = played(worse)
        assert (refused.returncode, refused.stdout) == (1, "")
        assert "'run.jsonl' has results of other code of the agent '__main__:agent'; name" in refused.stderr
        kept = played(worse, ", resume=True")
        assert (kept.stdout, len(kept.stderr.splitlines())) == (first.stdout, 2)
        (tmp_path / "run.jsonl").unlink()
        assert played(worse).stdout == "two 1.0\nsix 0.0\n"

    async def test_resume_needs_a_file(self, served: str, tmp_path: Path) -> None:
        with pytest.raises(InvalidRequest, match="resume needs the file to go on with: out"):
            await run(served, "nop", resume=True)
        with pytest.raises(FileNotFoundError):
            await run(served, "nop", resume=True, out=tmp_path / "none")

    def test_an_evaluation_goes_on_and_warns(self, served: str, tmp_path: Path) -> None:
        (tmp_path / "my_agent.py").write_text(AGENT)
        words = ("eval", "trouble", "--agent", "my_agent:agent", "--system-url", served)
        assert aenv(*words, "--tasks", "two", "--out", "x", cwd=tmp_path).returncode == 0
        # Of another length: Python takes compiled code by the second and the size of its source.
        (tmp_path / "my_agent.py").write_text(AGENT.replace("else 6", "else 70"))
        done = aenv(*words, "--resume", "x", "--json", cwd=tmp_path)
        assert [json.loads(line)["reward"] for line in done.stdout.splitlines()] == [1.0, 0.0]
        assert "'x' has results of other code of the agent 'my_agent:agent': they are not played" in done.stderr
