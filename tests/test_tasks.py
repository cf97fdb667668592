"""What validation and evaluation are made of: rewards, lists of tasks, contracts, samples, statistics."""

from __future__ import annotations

import textwrap
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from random import Random
from typing import Any

import pytest

from aenv.base.errors import InvalidRequest
from aenv.base.outcomes import Outcome, read_reward
from aenv.rollouts import cheats, samples, summaries, task
from aenv.rollouts.contract import OfferedFunctions, described, task_told
from aenv.rollouts.report import Finding, Report
from aenv.rollouts.results import RolloutResult
from aenv.rollouts.statistics import summary, wilson
from aenv.rollouts.task import Task, TaskSelection


class TestReward:
    @pytest.mark.parametrize(
        ("value", "number", "full"),
        [
            (1, 1.0, True),
            (True, 1.0, True),
            (0.25, 0.25, False),
            ({"score": 0.5, "resolved": True}, 0.5, False),
            ({"reward": 1.0, "total_reward": 0.0}, 0.0, False),
            (0.1 + 0.2 + 0.7, 1.0, True),
        ],
    )
    def test_the_number_is_the_value_or_the_first_known_key(
        self, value: object, number: float, full: bool
    ) -> None:
        reward = read_reward(value)
        assert (reward.number, reward.is_full, reward.outcome) == (pytest.approx(number), full, "reward")

    @pytest.mark.parametrize(
        "value", ["1", None, [], {"points": 1}, {"reward": "1"}, float("nan"), 1.5, -0.1, 1e999]
    )
    def test_what_is_no_number_in_the_range_is_a_mistake_of_the_environment(self, value: object) -> None:
        reward = read_reward(value)
        assert (reward.number, reward.outcome, reward.is_full) == (None, "env_error", False)
        assert reward.reason

    def test_a_reward_that_cannot_be_judged_has_no_number(self) -> None:
        reward = read_reward({"invalid": "no evidence", "reward": 1.0})
        assert (reward.number, reward.outcome, reward.reason) == (None, "invalid", "no evidence")
        assert not reward.is_full


class TestTasks:
    @pytest.mark.parametrize(
        ("listed", "message"),
        [
            ({}, "must return a list, and returned a dict"),
            (["a"], r"list_tasks\(\)\[0\] must be an object"),
            ([{"id": 1}], r"\[0\]: field 'id' must be a text"),
            ([{"id": "a"}, {"id": "a"}], "'a' twice"),
            ([{"id": "a", "variables": {"X": 1}}], "values are texts"),
            ([{"id": "a", "split": 1}], "field 'split' must be a text"),
            ([{"id": "a\x1b[2J"}], "printable"),
        ],
    )
    def test_a_wrong_list_names_the_entry(self, listed: object, message: str) -> None:
        with pytest.raises(InvalidRequest, match=message):
            task.read(listed)

    def test_ids_come_from_words_and_files_and_may_have_commas(self, tmp_path: Path) -> None:
        file = tmp_path / "ids"
        file.write_text("# chosen\nb\n\n  c\n")
        known = [Task(id) for id in ("a", "b", "c", "d,e")]

        def ids(*words: str, limit: int | None = None) -> list[str]:
            return [one.id for one in task.chosen(known, TaskSelection(words, limit=limit))]

        assert ids("c,a") == ["c", "a"]
        assert ids("d,e", "a") == ["d,e", "a"]
        assert ids(str(file), "b") == ["b", "c"]
        assert ids(limit=2) == ["a", "b"]

    def test_a_list_of_ids_may_be_longer_than_the_name_of_a_file(self) -> None:
        known = [Task(f"task-{n:03}") for n in range(900)]
        words = ",".join(one.id for one in known)
        assert len(words) > 4096
        for length in (300, 4097, len(words)):
            chosen = words[:length].rpartition(",")[0] if length < len(words) else words
            assert ",".join(one.id for one in task.chosen(known, TaskSelection([chosen]))) == chosen

    @pytest.mark.parametrize(
        "told",
        [[], {"id": "b", "instruction": "x"}, {"id": "a"}, {"id": "a", "instruction": "x", "max_steps": True}],
    )
    def test_a_task_that_is_told_wrongly_is_a_failure(self, told: object) -> None:
        assert task_told("a", told).status == "failed"


class TestContract:
    def tool(self, **parts: object) -> OfferedFunctions:
        return OfferedFunctions(
            [{"name": "x", "description": "d", "inputSchema": {"type": "object"}, **parts}], {}, []
        )

    @pytest.mark.parametrize(
        ("parts", "check", "why"),
        [
            ({"name": "my tool"}, "names", "use letters"),
            ({"name": "x" * 65}, "names", "at most 64"),
            ({"description": "x"}, "docs", "write a docstring"),
            ({"inputSchema": None}, "schemas", "must be an object"),
            ({"inputSchema": {"type": "array"}}, "schemas", "of the type 'object'"),
            ({"inputSchema": {"type": "object", "required": ["a"]}}, "schemas", "requires 'a'"),
            ({"inputSchema": {"type": "object", "properties": {"a": {"type": "int"}}}}, "schemas", "type 'int'"),
            (
                {"inputSchema": {"type": "object", "properties": {"a": {"$ref": "#/$defs/A"}}}},
                "schemas",
                "not there",
            ),
            ({"inputSchema": {"type": "object", "properties": {"a": {"enum": []}}}}, "schemas", "enum"),
            ({"outputSchema": []}, "schemas", "outputSchema must be an object"),
        ],
    )
    def test_a_wrong_description_is_found(self, parts: dict[str, object], check: str, why: str) -> None:
        (found,) = [one for one in described(self.tool(**parts), "an environment") if one.is_bad]
        assert found.check == check
        assert why in found.detail

    def test_an_environment_needs_a_description(self) -> None:
        (found,) = [one for one in described(self.tool(), " ") if one.is_bad]
        assert found.detail == "config.json has no description"

    def test_a_python_tool_is_used_as_a_shell(self) -> None:
        schema = {"type": "object", "properties": {"code": {"type": "string"}}, "required": ["code"]}
        shell = cheats.shell_of(self.tool(name="run", inputSchema=schema))
        assert shell
        call = shell.call("echo 'hi'")
        lines: list[str] = []
        exec(call["arguments"]["code"], {"print": lines.append})
        assert lines == ["hi\n"]

    def test_a_tool_that_needs_more_than_a_command_is_no_shell(self) -> None:
        schema = {"type": "object", "properties": {"command": {"type": "string"}}, "required": ["command", "host"]}
        assert cheats.shell_of(self.tool(inputSchema=schema)) is None

    def test_what_others_wrote_cannot_move_the_cursor(self) -> None:
        report = Report("x@1")
        report.add(cheats.Finding("docs", "a\x1b[2J", "failed", textwrap.dedent("b\x07")) for _ in range(30))
        assert "\x1b" not in report.text()
        assert "10 more; --json has them all" in report.text()

    def test_a_check_of_which_nothing_could_be_tried_does_not_pass(self) -> None:
        report = Report("x@1")
        report.add([Finding("docs", "a", "ok"), Finding("gold", "a", "not tried", "no Chromium")])
        report.add([Finding("cheats", "shell", "not applicable")])
        assert not report.passed
        assert report.untried == ["gold"]
        lines = report.text().splitlines()
        # A line for each check, with the reason where nothing was tried.
        assert lines[2:5] == [
            "docs    ok         1 ok",
            "gold    NOT TRIED  1 not tried: no Chromium",
            "cheats  -          1 not applicable",
        ]
        assert not any(line.startswith("not tried") for line in lines)
        assert "not tried       gold a: no Chromium" in report.text(verbose=True)
        assert report.text().endswith("\nnot validated: nothing could be tried of gold")
        report.add([Finding("gold", "b", "ok")])
        assert report.passed
        assert report.text().endswith("\nvalid, without the 1 not tried")


class TestStatistics:
    @pytest.mark.parametrize(
        ("passed", "tasks", "low", "high"),
        # Known values of Wilson's interval.
        [
            (0, 10, 0.0, 0.2775),
            (10, 10, 0.7225, 1.0),
            (5, 10, 0.2366, 0.7634),
            (81, 263, 0.2553, 0.3662),
            (0, 0, 0, 1),
        ],
    )
    def test_the_interval_is_wilsons(self, passed: int, tasks: int, low: float, high: float) -> None:
        assert wilson(passed, tasks) == pytest.approx((low, high), abs=1e-4)

    def test_only_what_was_judged_counts_in_rate_and_mean(self) -> None:
        found = summary(
            [
                judged(1.0, cost=0.5),
                judged(0.5, cost=0.25),
                *(unjudged(outcome) for outcome in Outcome if outcome != "reward"),
            ]
        )
        assert (found.tasks, found.judged, found.passed) == (9, 2, 1)
        assert (found.pass_rate, found.mean_reward, found.cost) == (0.5, 0.75, 0.75)
        assert found.interval == wilson(1, 2)
        assert set(found.counts.values()) == {2, 1}
        nothing = summary([unjudged("invalid")])
        assert (nothing.pass_rate, nothing.mean_reward) == (None, None)


def judged(reward: float, **more: Any) -> RolloutResult:
    return RolloutResult("t", Outcome.REWARD, reward, passed=reward == 1.0, **more)


def unjudged(outcome: str, reason: str = "why", task: str = "t") -> RolloutResult:
    return RolloutResult(task, Outcome(outcome), reason=reason)


class TestTable:
    def test_each_outcome_without_a_number_is_counted_with_its_reasons(self) -> None:
        found = [
            judged(1.0),
            *(unjudged("not_ready", "no Chromium;\n install it", f"n{n}") for n in range(5)),
            unjudged("agent_error", "RuntimeError: I cannot", "two"),
            unjudged("env_error", "x" * 5000, "long"),
        ]
        lines = summaries.table(found).splitlines()
        assert lines[1].split()[:6] == ["all", "8", "1", "1", "0", "100.0%"]
        assert lines[3] == "not judged: 5 not_ready, 1 env_error, 1 agent_error"
        assert lines[4] == "  not_ready n0, n1, n2 and 2 more: no Chromium; install it"
        assert lines[5] == "  agent_error two: RuntimeError: I cannot"
        assert lines[6].endswith("x…")
        assert len(lines[6]) < 1000

    def test_what_it_took_counts_one_task_and_many(self) -> None:
        one, two = judged(1.0), replace(judged(1.0), task="other")
        assert summaries.spent([one], 3.94) == "1 task in 3.9 s"
        assert summaries.spent([one, two], 3.94) == "2 tasks in 3.9 s"
        assert summaries.spent([one, one], 3.94) == "2 attempts at 1 task in 3.9 s"

    def test_a_terminal_of_50_columns_can_show_it(self) -> None:
        found = [judged(1.0, split="a-long-name"), judged(0.0, split="train")]
        lines = summaries.table(found, 50).splitlines()
        assert max(map(len, lines)) <= 50
        assert lines[:3] == [
            "a-long-name: 1 tasks, 1 judged, 1 pass, 0 fail",
            "  pass rate 100.0% (20.7% to 100.0%)",
            "  mean reward 1.000",
        ]
        assert summaries.table(found, 200) == summaries.table(found)

    def test_where_nothing_was_judged_there_is_no_rate(self) -> None:
        found = [unjudged("invalid")]
        assert summaries.table(found).splitlines()[1].split() == ["all", "1", "0", "0", "0", "-", "-", "-"]
        assert summaries.failed(found)

    @pytest.mark.parametrize("outcome", list(Outcome))
    def test_an_evaluation_fails_when_an_episode_broke_off(self, outcome: str) -> None:
        found = [judged(0.0), judged(0.0) if outcome == "reward" else unjudged(outcome)]
        assert summaries.failed(found) is (outcome not in ("reward", "invalid", "cancelled"))


class TestSamples:
    @pytest.mark.parametrize(
        ("schema", "fits"),
        [
            ({"type": "integer", "minimum": 3, "maximum": 4}, lambda v: v in (3, 4)),
            ({"type": "integer", "exclusiveMinimum": 3, "maximum": 4}, lambda v: v == 4),
            ({"type": "number", "maximum": -5}, lambda v: v <= -5),
            ({"enum": ["a", "b"]}, lambda v: v in ("a", "b")),
            ({"const": 7}, lambda v: v == 7),
            ({"type": "string", "minLength": 30, "maxLength": 31}, lambda v: 30 <= len(v) <= 31),
            (
                {"type": "array", "items": {"type": "boolean"}, "minItems": 1},
                lambda v: v and isinstance(v[0], bool),
            ),
            ({"anyOf": [{"type": "null"}, {"type": "integer"}]}, lambda v: v is None or isinstance(v, int)),
            ({"type": ["string", "null"]}, lambda v: v is None or isinstance(v, str)),
        ],
    )
    def test_a_value_fits_its_schema(self, schema: dict[str, Any], fits: Callable[[Any], bool]) -> None:
        assert all(fits(samples.sample(schema, Random(seed), {})) for seed in range(50))

    def test_a_schema_that_names_itself_ends(self) -> None:
        node = {"type": "object", "properties": {"next": {"anyOf": [{"$ref": "#/$defs/N"}, {"type": "null"}]}}}
        node = {**node, "required": ["next"]}
        schema = {
            "type": "object",
            "properties": {"n": {"$ref": "#/$defs/N"}},
            "required": ["n"],
            "$defs": {"N": node},
        }
        for seed in range(50):
            assert "n" in samples.arguments(schema, Random(seed))
