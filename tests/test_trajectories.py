"""Trajectories: what they hold, other formats and back, replays, and rewards that are given again."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import click
import pytest

import aenv as aenv_package
from aenv.base.errors import Conflict, Forbidden, InvalidRequest
from aenv.base.outcomes import Outcome
from aenv.cli.commands import trajectories
from aenv.rollouts import Runner, journal
from aenv.rollouts.exports import exchange
from aenv.rollouts.exports.exchange import FORMATS
from aenv.rollouts.results import RolloutResult, RunIdentity
from aenv.rollouts.trajectory import SampledTokens, Trajectory, TrajectoryHead, Turn
from tests.command_line import aenv, environ
from tests.rollout_worlds import gateway
from tests.task_environments import DICE, SUMS, changed
from tests.venvs import judge

pytestmark = pytest.mark.slow  # evaluations are run

SOURCE = Path(aenv_package.__file__).parent.parent
HALF = changed(SUMS, ("    return float(sheet.answer ==", "    return 0.5 * float(sheet.answer =="))
OTHER_TOOL = changed(SUMS, ('"what is "', '"how much is "'))
ROLLING = SUMS + DICE.replace("from aenv import register_tool", "")


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    folder = tmp_path_factory.mktemp("trajectories")
    with gateway(folder, sums=SUMS, half=HALF, other=OTHER_TOOL, rolling=ROLLING) as (url, _):
        yield url


async def look_and_solve(env: Any, task: dict[str, Any]) -> str:
    await env.call_tool("look")
    right = {"two": 2, "six": 6}[task["id"]]
    await env.call_tool("submit", {"answer": right * (2 - task.get("attempt", 1))})
    return "done"


async def roll(env: Any, task: dict[str, Any]) -> None:
    await env.call_tool("look")
    await env.call_tool("dice")


@pytest.fixture
async def run(served: str, tmp_path: Path) -> Path:
    """The journal of two attempts at two tasks: the first attempts are right."""
    async with Runner(url=served) as runner:
        await runner.run("sums", look_and_solve, repeat=2, out=tmp_path / "run.jsonl")
    return tmp_path / "run.jsonl"


def made(reward: float, attempt: int = 1, *, eval_only: bool = False) -> Trajectory:
    """A rollout of a model, with its tokens."""
    call = {"id": "1", "type": "function", "function": {"name": "submit", "arguments": '{"answer": 2}'}}
    turns = [
        Turn({"role": "system", "content": "be brief"}, None, 1.0),
        Turn({"role": "user", "content": "1+1? ½"}, None, 1.0),
        Turn(
            {"role": "assistant", "content": None, "tool_calls": [call]},
            SampledTokens([5, 6], [-0.5, -0.25], [1, 2]),
            2.0,
        ),
        Turn({"role": "tool", "tool_call_id": "1", "content": "noted"}, None, 2.0),
        Turn({"role": "assistant", "content": f"done {attempt}"}, SampledTokens([7]), 3.0),
    ]
    run = RunIdentity("sums@1.0.0", "d" * 64, "llm", "tiny", 7, eval_only)
    id = f"r{attempt}"
    result = RolloutResult(
        "two",
        Outcome.REWARD,
        reward,
        parts={"format": 1.0},
        passed=reward == 1.0,
        attempt=attempt,
        variables={"N": "1"},
        run=run,
        rollout=id,
    )
    tools = [{"name": "submit", "description": "Give it.", "inputSchema": {"type": "object", "properties": {}}}]
    head = TrajectoryHead(id, "two", attempt, variables={"N": "1"})
    return Trajectory.of_turns(head, tools, turns, result)


class TestFormats:
    def test_the_command_offers_each_of_them(self) -> None:
        command = trajectories.command.commands["export"]
        offered = next(each.type for each in command.params if each.name == "kind")
        assert isinstance(offered, click.Choice)
        assert tuple(offered.choices) == FORMATS

    @pytest.mark.parametrize("format", [one for one in FORMATS if one not in ("sft", "preferences", "parquet")])
    def test_what_is_written_is_read_again(self, tmp_path: Path, format: Any) -> None:
        before = [made(1.0), made(0.0, 2)]
        file = tmp_path / "x.jsonl"
        assert exchange.save(file, before, format) > 0
        after = exchange.load(file)
        for one, other in zip(before, after, strict=True):
            assert [turn.message for turn in other.turns] == [turn.message for turn in one.turns]
            assert [turn.tokens for turn in other.turns] == [turn.tokens for turn in one.turns]
            assert other.tools == one.tools
            assert one.result and other.result
            assert (other.result.reward, other.result.parts) == (one.result.reward, one.result.parts)
            assert (other.head.task, other.head.attempt, other.result.run) == (
                "two",
                one.head.attempt,
                one.result.run,
            )

    def test_a_chat_has_a_loss_mask_for_what_the_agent_said(self, tmp_path: Path) -> None:
        exchange.save(tmp_path / "x", [made(0.5)], "chat")
        row = json.loads((tmp_path / "x").read_text())
        assert row["loss_mask"] == [0, 0, 1, 0, 1]
        assert row["tools"][0]["function"]["name"] == "submit"
        assert (row["reward"], row["digest"], row["seed"], row["model"]) == (0.5, "d" * 64, 7, "tiny")

    def test_conversations_to_imitate_have_a_least_reward(self, tmp_path: Path) -> None:
        given = [made(1.0), made(0.5, 2), made(0.0, 3)]
        assert exchange.save(tmp_path / "a", given, "sft") == 1
        assert exchange.save(tmp_path / "b", given, "sft", min_reward=0.5) == 2
        (only,) = exchange.load(tmp_path / "a")
        assert only.messages == given[0].messages

    def test_pairs_are_of_one_task_and_differ_in_reward(self, tmp_path: Path) -> None:
        given = [made(0.0), made(1.0, 2), made(0.5, 3), made(0.5, 4)]
        assert exchange.save(tmp_path / "a", given, "preferences") == 1
        row = json.loads((tmp_path / "a").read_text())
        assert [one["role"] for one in row["prompt"]] == ["system", "user"]
        assert (row["chosen"][-1]["content"], row["rejected"][-1]["content"]) == ("done 2", "done 1")
        assert (row["chosen_reward"], row["rejected_reward"]) == (1.0, 0.0)
        chosen, rejected = exchange.load(tmp_path / "a")
        assert (chosen.messages, rejected.messages) == (given[1].messages, given[0].messages)

    def test_an_atif_document_has_sequential_steps_whose_answers_have_their_calls(self, tmp_path: Path) -> None:
        exchange.save(tmp_path / "x.json", [made(1.0)], "atif")
        document = json.loads((tmp_path / "x.json").read_text())
        assert document["schema_version"] == "ATIF-v1.8"
        assert [(step["step_id"], step["source"]) for step in document["steps"]] == [
            (1, "system"),
            (2, "user"),
            (3, "agent"),
            (4, "agent"),
        ]
        third = document["steps"][2]
        assert third["tool_calls"][0]["arguments"] == {"answer": 2}
        assert third["observation"]["results"] == [{"content": "noted", "source_call_id": "1"}]
        assert third["metrics"] == {
            "completion_token_ids": [5, 6],
            "logprobs": [-0.5, -0.25],
            "prompt_token_ids": [1, 2],
        }

    @pytest.mark.slow  # another's packages
    def test_datasets_loads_parquet(self, tmp_path: Path) -> None:
        python = judge("datasets")
        (tmp_path / "write.py").write_text(PARQUET)
        exchange.save(tmp_path / "run.jsonl", [made(1.0), made(0.0, 2)], "journal")
        variables = {**environ(), "PYTHONPATH": str(SOURCE), "HF_HUB_OFFLINE": "1"}
        done = subprocess.run([python, "write.py"], cwd=tmp_path, env=variables, capture_output=True, text=True)
        assert done.returncode == 0, done.stderr
        assert json.loads(done.stdout.splitlines()[-1]) == {
            "rows": 2,
            "roles": ["system", "user", "assistant", "tool", "assistant"],
            "mask": [0, 0, 1, 0, 1],
            "reward": 1.0,
            "same": True,
            "of others": [
                ["hi"],
                ["a", "b"],
                "line 1: field 'messages' must be a list of messages, each with a 'role'",
                "cannot be read as parquet",
                "a column of the table has values of another type",
            ],
        }

    @pytest.mark.parametrize("format", [one for one in FORMATS if one not in ("journal", "parquet")])
    def test_what_is_for_evaluation_alone_is_not_exported_unless_forced(self, tmp_path: Path, format: Any) -> None:
        with pytest.raises(Forbidden, match=r"sums@1\.0\.0 is for evaluation alone.*--force"):
            exchange.save(tmp_path / "x", [made(1.0, eval_only=True)], format)
        assert not (tmp_path / "x").exists()
        exchange.save(tmp_path / "x", [made(1.0, eval_only=True)], format, force=True)

    def test_what_is_for_evaluation_alone_is_not_exported_unfinished_either(self, tmp_path: Path) -> None:
        run = {"type": "run", "schema": "aenv-trajectory/1", "environment": "sums@1.0.0", "evalOnly": True}
        begin = {"type": "begin", "rollout": "r", "task": "two"}
        (tmp_path / "x").write_text(f"{json.dumps(run)}\n{json.dumps(begin)}\n")
        with pytest.raises(Forbidden, match=r"sums@1\.0\.0 is for evaluation alone"):
            exchange.save(tmp_path / "y", exchange.load(tmp_path / "x"), "chat")

    def test_a_file_is_not_overwritten(self, tmp_path: Path) -> None:
        (tmp_path / "x").write_text("mine")
        with pytest.raises(Conflict, match="exists"):
            exchange.save(tmp_path / "x", [made(1.0)], "chat")

    @pytest.mark.parametrize(
        ("text", "why"),
        [
            ('{"messages": 5}', "line 1: field 'messages'"),
            ('{"messages": [], "reward": "much"}', "line 1: field 'reward'"),
            ('{"messages": []}\n{"messages": [1]}', "line 2: field 'messages'"),
            (
                '{"messages": [], "parts": {"sum": "half"}}',
                "line 1: field 'parts' must be an object whose values are num",
            ),
            ('{"messages": [], "variables": 3}', "line 1: field 'variables'"),
            ('{"messages": [], "tools": [{"function": {"name": 3}}]}', "line 1: field 'tools'"),
            ('{"schema_version": "ATIF-v2.0"}', "line 1: field 'schema_version'"),
            ('{"schema_version": "ATIF-v1.8", "steps": 1}', "line 1: fields 'steps'"),
            ('{"type": "run", "schema": "aenv-trajectory/2"}\n', "line 1 .*'aenv-trajectory/2'"),
            ('{"type": "dream"}\n', "line 1 .*field 'type' is 'dream'"),
            ("", "has no trajectories"),
        ],
    )
    def test_a_file_that_is_wrong_names_line_and_field(self, tmp_path: Path, text: str, why: str) -> None:
        (tmp_path / "x").write_text(text)
        with pytest.raises(InvalidRequest, match=why):
            exchange.load(tmp_path / "x")


class TestCommand:
    async def test_a_transcript_has_the_calls_with_their_answers(self, run: Path) -> None:
        done = aenv("trajectories", "show", run, "--task", "six")
        assert done.returncode == 0, done.stderr
        assert "task six, attempt 1" in done.stdout
        assert "[2] look({})" in done.stdout
        assert "what is 3+3" in done.stdout
        assert '[3] submit({"answer": 6})' in done.stdout
        assert "reward 1\n" in done.stdout
        assert "task two" not in done.stdout

    async def test_numbers_and_a_chart(self, run: Path, tmp_path: Path) -> None:
        done = aenv("trajectories", "stats", run, "--out", tmp_path / "x.svg")
        assert done.returncode == 0, done.stderr
        rows = [line.split() for line in done.stdout.splitlines()]
        assert ["mean", "reward", "0.500"] in rows
        assert ["look", "4", "0"] in [row[:3] for row in rows]
        assert ElementTree.parse(tmp_path / "x.svg").getroot().tag.endswith("svg")

    async def test_an_export_and_what_is_made_of_it(self, run: Path, tmp_path: Path) -> None:
        done = aenv("trajectories", "export", run, "--format", "preferences", "--out", tmp_path / "pairs")
        assert (done.returncode, done.stderr) == (0, f"2 rows: {tmp_path / 'pairs'}\n")
        shown = aenv("trajectories", "show", tmp_path / "pairs", "--task", "two")
        assert "what is 1+1?" in shown.stdout

    async def test_two_runs_are_compared(self, served: str, run: Path, tmp_path: Path) -> None:
        other = tmp_path / "other.jsonl"
        async with Runner(url=served) as runner:
            await runner.run("other", look_and_solve, tasks=["two"], repeat=2, out=other)
        same = aenv("trajectories", "diff", run, run)
        assert (same.returncode, set(same.stdout.split("\n"))) == (
            0,
            {f"{task} attempt {n}: the same" for task in ("two", "six") for n in (1, 2)} | {""},
        )
        done = aenv("trajectories", "diff", run, other, "--task", "two")
        assert done.returncode == 1
        assert "step 2: " in done.stdout and "'what is 1+1' and then 'how much is 1+1'" in done.stdout

    @pytest.mark.parametrize(
        "words", [["trajectories", "show"], ["trajectories", "diff", "RUN"], ["replay"], ["rescore"]]
    )
    def test_a_file_of_others_cannot_move_the_cursor(
        self, served: str, run: Path, tmp_path: Path, words: list[str]
    ) -> None:
        file = tmp_path / "x"
        file.write_text(run.read_text().replace('"two"', '"two\\u001b[2J\\u009b1A"'))
        asks = ("--system-url", served) if words[0] in ("replay", "rescore") else ()
        done = aenv(*(str(run) if word == "RUN" else word for word in words), file, *asks)
        assert "two[2J1A" in done.stdout, done.stderr
        assert not {"\x1b", "\x9b"} & set(done.stdout + done.stderr)


class TestReplay:
    async def test_the_same_calls_have_the_same_answers(self, served: str, run: Path) -> None:
        done = aenv("replay", run, "--system-url", served)
        assert done.returncode == 0, done.stderr
        told = "2 calls, the same answers"
        assert sorted(done.stdout.splitlines()) == [
            f"{t} attempt {n}: {told}" for t in ("six", "two") for n in (1, 2)
        ]

    async def test_the_first_answer_that_differs_is_named(self, served: str, run: Path) -> None:
        done = aenv(
            "replay", run, "--env", "other", "--system-url", served, "--tasks", "two", "--limit", "1", "--json"
        )
        assert done.returncode == 1
        found = json.loads(done.stdout)
        assert (found["task"], found["same"], found["calls"]) == ("two", False, 1)
        assert "call 1, look: " in found["detail"] and "'how much is 1+1'" in found["detail"]

    async def test_what_is_left_to_chance_differs(self, served: str, tmp_path: Path) -> None:
        async with Runner(url=served) as runner:
            await runner.run("rolling", roll, tasks=["two"], out=tmp_path / "x")
        done = aenv("replay", tmp_path / "x", "--system-url", served)
        assert (done.returncode, "two: call 2, dice: " in done.stdout) == (1, True)

    @pytest.mark.slow  # many instances
    @pytest.mark.parametrize(("env", "status"), [("sums", "ok"), ("rolling", "failed")])
    def test_determinism_is_a_property_that_is_checked(self, served: str, env: str, status: str) -> None:
        done = aenv("validate", env, "--determinism", "--system-url", served, "--json")
        found = {
            one["subject"]: one for one in json.loads(done.stdout)["findings"] if one["check"] == "determinism"
        }
        assert {found[f"replay of {task}"]["status"] for task in ("two", "six")} == {status}
        assert ("dice" in found["replay of two"]["detail"]) is (status == "failed")


class TestRescore:
    async def test_a_newer_verifier_judges_again(self, served: str, run: Path, tmp_path: Path) -> None:
        out = tmp_path / "new.jsonl"
        done = aenv("rescore", run, "--env", "half", "--system-url", served, "--out", out)
        assert done.returncode == 0, done.stderr
        assert "two attempt 1: 1 → 0.5" in done.stdout
        assert "two attempt 2: 0 → 0" in done.stdout
        found = {one.key: one for one in journal.results(out)}
        assert found["two", 1].reward == 0.5
        assert found["two", 1].run.environment == "half@1.0.0"
        trajectory = found["two", 1].trajectory
        assert trajectory and [call.name for call in trajectory.calls] == ["look", "submit"]

    @pytest.mark.parametrize("command", ["replay", "rescore"])
    async def test_an_environment_that_is_not_there_is_refused_once(
        self, served: str, run: Path, tmp_path: Path, command: str
    ) -> None:
        more = ("--out", tmp_path / "new") if command == "rescore" else ()
        done = aenv(command, run, "--env", "nosuch", "--system-url", served, *more)
        evaluated = aenv("eval", "nosuch", "--agent", "nop", "--system-url", served, "--out", tmp_path / "x")
        assert (done.returncode, done.stdout) == (1, "")
        assert done.stderr.count("nosuch") == evaluated.stderr.count("nosuch") > 0, done.stderr
        assert evaluated.stderr.splitlines()[0] in done.stderr
        assert "--env FOLDER" in done.stderr
        assert not (tmp_path / "new").exists()

    async def test_where_the_replay_diverges_it_is_invalid(self, served: str, run: Path) -> None:
        done = aenv("rescore", run, "--env", "other", "--system-url", served, "--tasks", "two", "--json")
        assert done.returncode == 1
        assert len(done.stdout.splitlines()) == 2
        for line in done.stdout.splitlines():
            found = json.loads(line)
            assert (found["outcome"], found["reward"]) == ("invalid", None), found["error"]
            assert "the replay diverges: call 1, look" in found["error"]

    async def test_what_was_not_judged_stays_what_it_is(self, served: str, tmp_path: Path) -> None:
        async def agent(env: Any, task: dict[str, Any]) -> None:
            if task["id"] == "two":
                raise ValueError("no")
            await look_and_solve(env, task)

        async with Runner(url=served) as runner:
            await runner.run("sums", agent, out=tmp_path / "x")
        out = tmp_path / "new"
        done = aenv("rescore", tmp_path / "x", "--env", "half", "--system-url", served, "--out", out)
        assert "two: agent_error (ValueError: no) → agent_error (ValueError: no)" in done.stdout, done.stderr
        found = {one.task: one for one in journal.results(out)}
        assert (found["two"].outcome, found["six"].reward) == (Outcome.AGENT_ERROR, 0.5)

    async def test_what_was_done_without_calls_is_invalid(self, served: str, tmp_path: Path) -> None:
        async def agent(env: Any, task: dict[str, Any]) -> None:
            if task["id"] == "two":
                await env.exec("true")
            else:
                assert env.proxy_headers
            await look_and_solve(env, task)

        async with Runner(url=served) as runner:
            found = await runner.run("sums", agent, out=tmp_path / "x")
        assert [one.reward for one in found] == [1.0, 1.0]
        why = {"two": "the agent used env.exec", "six": "the agent used mcp_url"}
        done = aenv("rescore", tmp_path / "x", "--system-url", served, "--json")
        for line in map(json.loads, done.stdout.splitlines()):
            assert (line["outcome"], why[line["task"]] in line["error"]) == ("invalid", True)
        done = aenv("replay", tmp_path / "x", "--system-url", served)
        assert (done.returncode, "two: invalid: the agent used env.exec" in done.stdout) == (1, True)

    async def test_a_file_that_exists_is_refused_before_the_work(self, served: str, run: Path) -> None:
        done = aenv("rescore", run, "--system-url", served, "--out", run)
        assert (done.returncode, "exists; name another file" in done.stderr, done.stdout) == (1, True, "")

    def test_a_file_without_steps_is_refused(self, tmp_path: Path) -> None:
        old = replace(made(1.0).result, rollout="")  # type: ignore[type-var]
        (tmp_path / "x").write_text(json.dumps(old.as_json()) + "\n")
        for command in ("replay", "rescore"):
            done = aenv(command, tmp_path / "x")
            assert (done.returncode, "has no rollouts with their steps" in done.stderr) == (1, True)


async def test_what_is_secret_by_its_name_is_not_in_the_journal(served: str, tmp_path: Path) -> None:
    file = tmp_path / "x"
    async with Runner(url=served, variables={"MY_API_KEY": "sk-1234567890"}) as runner:
        (one,) = await runner.run("sums", look_and_solve, tasks=["two"], out=file)
    assert one.variables["MY_API_KEY"] == "***"
    assert "sk-1234567890" not in file.read_text()


PARQUET = """
import json, sys
from pathlib import Path
import datasets, pyarrow.parquet
from aenv.base.errors import InvalidRequest
from aenv.rollouts.exports import exchange

WHYS = (
    "line 1: field 'messages' must be a list of messages, each with a 'role'",
    "cannot be read as parquet",
    "a column of the table has values of another type",
)

trajectories = exchange.load(Path("run.jsonl"))
exchange.save(Path("x.parquet"), trajectories, "parquet")
table = datasets.load_dataset("parquet", data_files="x.parquet", split="train", cache_dir="cache")
again = exchange.load(Path("x.parquet"))


def loaded(columns):
    pyarrow.parquet.write_table(pyarrow.table(columns), "of_others.parquet")
    return [one.messages[-1]["content"] for one in exchange.load(Path("of_others.parquet"))]


def refused(act):
    try:
        act()
    except InvalidRequest as error:
        return next(why for why in WHYS if why in error.message)


Path("torn.parquet").write_bytes(Path("x.parquet").read_bytes()[:200])
odd = {"messages": [{"role": "tool", "tool_call_id": 3, "content": "x"}]}
Path("odd").write_text(json.dumps(odd))
of_others = [
    loaded({"messages": [[{"role": "user", "content": "hi"}]], "tools": [[{"function": {"name": "look"}}]]}),
    loaded({"chosen": [[{"role": "assistant", "content": "a"}]], "rejected": ["b"]}),
    refused(lambda: loaded({"x": [1]})),
    refused(lambda: exchange.load(Path("torn.parquet"))),
    refused(lambda: exchange.save(Path("y.parquet"), exchange.load(Path("odd")), "parquet")),
]
print(json.dumps({
    "rows": len(table),
    "roles": [one["role"] for one in table[0]["messages"]],
    "mask": table[0]["loss_mask"],
    "reward": table[0]["reward"],
    "same": [one.messages for one in again] == [one.messages for one in trajectories],
    "of others": of_others,
}))
"""
