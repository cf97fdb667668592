"""What validation and evaluation are made of: rewards, lists of tasks, contracts, samples, statistics."""

from __future__ import annotations

import textwrap
from collections.abc import Callable
from pathlib import Path
from random import Random
from typing import Any

import pytest

from aenv.errors import InvalidRequest
from aenv.tasks import cheats, rewards, samples, task
from aenv.tasks.contract import Offer, described, task_told
from aenv.tasks.report import Report
from aenv.tasks.statistics import summary, wilson
from aenv.tasks.task import Task, Wanted


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
        reward = rewards.read(value)
        assert (reward.number, reward.is_full, reward.invalid) == (pytest.approx(number), full, "")

    @pytest.mark.parametrize(
        "value", ["1", None, [], {"points": 1}, {"reward": "1"}, float("nan"), 1.5, -0.1, 1e999]
    )
    def test_what_is_no_number_in_the_range_is_never_full(self, value: object) -> None:
        reward = rewards.read(value)
        assert reward.invalid
        assert not reward.is_full
        assert not reward.is_declared_invalid

    def test_a_reward_that_cannot_be_judged_says_so(self) -> None:
        reward = rewards.read({"invalid": "no evidence", "reward": 1.0})
        assert (reward.invalid, reward.is_full, reward.is_declared_invalid) == ("no evidence", False, True)


class TestTasks:
    @pytest.mark.parametrize(
        ("listed", "message"),
        [
            ({}, "must return a list, and returned a dict"),
            (["a"], r"list_tasks\(\)\[0\] must be an object"),
            ([{"id": 1}], r"\[0\].id must be a text"),
            ([{"id": "a"}, {"id": "a"}], "'a' twice"),
            ([{"id": "a", "variables": {"X": 1}}], "values are texts"),
            ([{"id": "a", "split": 1}], "split must be a text"),
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
            return [one.id for one in task.chosen(known, Wanted(words, limit=limit))]

        assert ids("c,a") == ["c", "a"]
        assert ids("d,e", "a") == ["d,e", "a"]
        assert ids(str(file), "b") == ["b", "c"]
        assert ids(limit=2) == ["a", "b"]

    @pytest.mark.parametrize(
        "told",
        [[], {"id": "b", "instruction": "x"}, {"id": "a"}, {"id": "a", "instruction": "x", "max_steps": True}],
    )
    def test_a_task_that_is_told_wrongly_is_a_failure(self, told: object) -> None:
        assert task_told("a", told).status == "failed"


class TestContract:
    def tool(self, **parts: object) -> Offer:
        return Offer([{"name": "x", "description": "d", "inputSchema": {"type": "object"}, **parts}], {}, [])

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

    def test_errors_count_as_tasks_and_not_in_the_mean(self) -> None:
        found = summary(
            [
                {"outcome": "pass", "reward": 1.0, "cost": 0.5},
                {"outcome": "fail", "reward": 0.5, "cost": 0.25},
                {"outcome": "error", "reward": None},
            ]
        )
        assert (found.tasks, found.counts["error"], found.mean_reward, found.cost) == (3, 1, 0.75, 0.75)
        assert found.pass_rate == pytest.approx(1 / 3)
        assert summary([]).mean_reward is None


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
