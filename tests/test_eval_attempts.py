"""`aenv eval --repeat`: several attempts at each task, and what they say together."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator
from dataclasses import replace
from itertools import combinations
from pathlib import Path
from typing import Any

import pytest

from aenv.base.errors import Conflict, InvalidRequest
from aenv.base.outcomes import Outcome
from aenv.rollouts import agents, attempts, journal, summaries
from aenv.rollouts.results import RolloutResult, RunIdentity
from tests.command_line import aenv
from tests.evaluations import Run, by_key, lines, served_projects

pytestmark = pytest.mark.slow  # evaluations are run


@pytest.fixture(scope="module")
def url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with served_projects(tmp_path_factory.mktemp("attempts")) as (found, _):
        yield found


@pytest.fixture
def run(url: str, tmp_path: Path) -> Run:
    return Run(url, tmp_path)


RUN = RunIdentity("")


def keys(found: list[RolloutResult]) -> list[tuple[str, int]]:
    return sorted(one.key for one in found)


def row(task: str, attempt: int, reward: float | None, outcome: str = "reward", **more: Any) -> RolloutResult:
    passed = None if reward is None else reward == 1.0
    return RolloutResult(task, Outcome(outcome), reward, attempt=attempt, passed=passed, run=RUN, **more)


def text(*rows: RolloutResult) -> str:
    return "".join(json.dumps(one.as_json()) + "\n" for one in rows)


EVERY = [("six", 1), ("six", 2), ("two", 1), ("two", 2)]


class TestRepeat:
    @pytest.mark.slow  # four instances
    async def test_each_task_is_played_so_often_and_the_agent_knows_the_attempt(
        self, run: Run, tmp_path: Path
    ) -> None:
        async def second_time(env: Any, task: dict[str, Any]) -> None:
            await env.call_tool("submit", {"answer": {"two": 2, "six": 6}[task["id"]] * (task["attempt"] - 1)})

        agent = agents.Function("test:second_time", second_time)
        found = await run("sums", agent, repeat=2)
        assert keys(found) == EVERY
        assert [one.passed for one in found] == [one.attempt == 2 for one in found]
        assert by_key(lines(tmp_path / "out.jsonl")) == by_key(one.as_json() for one in found)
        assert sorted(line["attempt"] for line in lines(tmp_path / "out.jsonl", "begin")) == [1, 1, 2, 2]

    async def test_without_repeat_results_have_no_attempt(self, run: Run) -> None:
        (one,) = await run("sums", agents.Nop(), tasks=("two",))
        assert one.attempt is None
        assert "attempt" not in one.as_json()

    async def test_attempts_of_the_random_agent_differ(self, run: Run, tmp_path: Path) -> None:
        async def chosen(name: str, **options: Any) -> dict[int, Any]:
            found = await run("sums", agents.RandomCalls(1, 5), tasks=("six",), out=tmp_path / name, **options)
            return {one.attempt or 0: one.trajectory.messages for one in found if one.trajectory}

        several, single = await chosen("several", repeat=2), await chosen("single")
        assert several[1] == single[0]
        assert several[1] != several[2]


class TestResume:
    @pytest.mark.slow  # four instances
    async def test_it_goes_on_by_task_and_attempt(self, run: Run, tmp_path: Path) -> None:
        file = tmp_path / "out.jsonl"
        first = await run("sums", agents.Nop(), repeat=2)
        broken = replace(first[3], outcome=Outcome.INFRA_ERROR, reward=None, passed=None, reason="why")
        file.write_text(text(*first[:2], broken))  # one was never played, and one was not judged
        found = await run("sums", agents.Nop(), repeat=2, resume=True)
        assert keys(found) == EVERY
        assert found[:2] == first[:2]
        assert {one.outcome for one in found} == {"reward"}
        assert len(lines(file)) == 5

    async def test_a_file_without_attempts_has_the_first_ones(self, run: Run) -> None:
        before = await run("sums", agents.Nop(), tasks=("two",))
        found = await run("sums", agents.Nop(), tasks=("two",), repeat=2, resume=True)
        assert found[0] == before[0]
        assert [one.attempt for one in found] == [None, 2]

    @pytest.mark.parametrize("repeat", [1, 2])
    def test_fewer_attempts_than_the_file_has_are_refused(self, tmp_path: Path, repeat: int) -> None:
        file = tmp_path / "x"
        file.write_text(text(*(row("a", attempt, 1.0) for attempt in (1, 3))))
        refused = pytest.raises(Conflict, match="line 2 is of attempt 3; go on with --repeat 3 or more")
        with refused, journal.opened(file, RUN, repeat, "resume"):
            pass
        with journal.opened(file, RUN, 3, "resume") as opened:
            assert list(opened.known.results) == [("a", 1), ("a", 3)]

    @pytest.mark.parametrize("attempt", [0, True, "1", None])
    def test_an_attempt_is_a_number_above_0(self, tmp_path: Path, attempt: Any) -> None:
        file = tmp_path / "x"
        file.write_text(json.dumps({**row("a", 1, 1.0).as_json(), "attempt": attempt}) + "\n")
        with pytest.raises(InvalidRequest, match=r"line 1 .*field 'attempt' must be a number above 0"):
            journal.opened(file, RUN, 9, "resume").__enter__()


class TestMeasures:
    @pytest.mark.parametrize(("n", "c"), [(1, 0), (1, 1), (4, 0), (4, 1), (4, 3), (5, 2), (5, 5)])
    def test_pass_at_k_is_the_share_of_choices_of_k_attempts_with_one_that_passed(self, n: int, c: int) -> None:
        passed = [True] * c + [False] * (n - c)
        for k in range(1, n + 1):
            choices = [any(one) for one in combinations(passed, k)]
            assert attempts.pass_at(k, n, c) == pytest.approx(sum(choices) / len(choices))

    def test_tasks_with_too_few_judged_attempts_are_left_out_and_counted(self) -> None:
        found = [
            *(row("a", n, reward) for n, reward in ((1, 1.0), (2, 0.0), (3, 0.5))),
            row("b", 1, 0.0),
            row("b", 2, None, "timeout"),
            row("b", 3, 1.0),
            *(row("c", n, None, "not_ready") for n in (1, 2, 3)),
        ]
        one, two, three, mean = attempts.measures(found)
        assert (one.name, one.value, one.left_out) == ("pass@1", pytest.approx((1 / 3 + 1 / 2) / 2), 1)
        assert (two.name, two.value, two.left_out) == ("pass@2", pytest.approx((2 / 3 + 1) / 2), 1)
        assert (three.name, three.value, three.left_out, three.interval) == ("pass@3", 1.0, 2, None)
        assert (mean.name, mean.value, mean.left_out) == ("mean reward", 0.5, 1)

    def test_the_interval_is_the_same_each_time_and_about_that_of_the_normal_distribution(self) -> None:
        values = [0.0, 1.0] * 200
        low, high = attempts.bootstrap(values) or (0.0, 0.0)
        half = 1.96 * 0.5 / math.sqrt(400)
        assert (low, high) == pytest.approx((0.5 - half, 0.5 + half), abs=0.005)
        assert attempts.bootstrap(values) == (low, high)
        assert attempts.bootstrap([0.5]) is None
        assert attempts.bootstrap([0.5] * 9) == (0.5, 0.5)

    def test_the_table_fits_50_columns_and_names_a_task_once(self) -> None:
        found = [row("a", n, 1.0) for n in (1, 2)] + [row("b", n, None, "timeout") for n in (1, 2)]
        lines = summaries.table(found, 50).splitlines()
        assert lines == [
            "all: 2 tasks, 4 attempts, 2 judged",
            "measure      value   95 % interval  left out",
            "pass@1       100.0%  -              1",
            "pass@2       100.0%  -              1",
            "mean reward  1.000   -              1",
            "",
            "not judged: 2 timeout",
            "  timeout b: ",
        ]
        wide = summaries.table([row(str(n), k, float(k)) for n in range(9) for k in (0, 1)], 50)
        assert max(map(len, wide.splitlines())) <= 50

    def test_splits_have_tables_of_their_own(self) -> None:
        found = [row("a", 1, 1.0, split="train"), row("b", 1, 0.0, split="test")]
        heads = [line for line in summaries.table(found).splitlines() if "attempts" in line]
        assert [head.partition(":")[0] for head in heads] == ["test", "train", "all"]


@pytest.mark.slow  # six instances
def test_the_command_repeats_and_goes_on(url: str, tmp_path: Path) -> None:
    words = ("eval", "sums", "--agent", "oracle", "--system-url", url)
    done = aenv(*words, "--repeat", "2", "--out", tmp_path / "x")
    assert done.returncode == 0, done.stderr
    assert "all: 2 tasks, 4 attempts, 4 judged" in done.stdout
    assert "pass@2       100.0%  100.0% to 100.0%  0" in done.stdout
    assert "4 attempts at 2 tasks in " in done.stderr
    more = aenv(*words, "--repeat", "3", "--resume", tmp_path / "x", "--json")
    assert keys([RolloutResult.read(json.loads(line)) for line in more.stdout.splitlines()]) == [
        *EVERY[:2],
        ("six", 3),
        *EVERY[2:],
        ("two", 3),
    ]
    fewer = aenv(*words, "--resume", tmp_path / "x")
    assert fewer.returncode == 1
    assert "go on with --repeat 2 or more" in fewer.stderr
