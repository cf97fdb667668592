"""`aenv synth`: new tasks from templates, mutations and a model, kept only where they were checked."""

from __future__ import annotations

import json
import random
from collections.abc import Iterator
from dataclasses import replace
from fractions import Fraction
from pathlib import Path
from typing import Any

import pytest

import aenv.envs
from aenv.base.errors import Conflict, InvalidRequest, NotFound
from aenv.base.expressions import BadExpression, evaluate, spelled
from aenv.client.chat import Chat
from aenv.rollouts import Runner
from aenv.rollouts.agents import Function
from aenv.rollouts.synthesis import (
    Solver,
    SynthesisOptions,
    from_model,
    from_mutations,
    from_templates,
    synthesize,
    work_log,
)
from aenv.rollouts.synthesis.checking import NotChecked
from aenv.rollouts.synthesis.mutations import mutated
from aenv.rollouts.synthesis.proposals import TaskForm
from aenv.rollouts.synthesis.schema_checks import misfit
from aenv.rollouts.synthesis.seeds import SeedTask
from aenv.rollouts.synthesis.similarity import GuardedTexts, KnownTasks
from aenv.rollouts.synthesis.templates import template_file
from aenv.rollouts.task import Task, TaskSelection, task_file
from aenv.rollouts.task_instances import InstanceSource
from tests.command_line import aenv as command
from tests.command_line import serving
from tests.gateways import make_project
from tests.model_servers import model
from tests.native import traces
from tests.task_environments import SUMS, changed

pytestmark = pytest.mark.slow  # each starts gateways and plays tasks
GSM = Path(aenv.envs.__path__[0]) / "gsm_tools"
BOXES: dict[str, Any] = {
    "id": "boxes",
    "parameters": {"a": {"range": [2, 9]}, "b": {"range": [3, 12]}, "who": ["Ada", "Bo"], "total": "a * b"},
    "where": ["total > 20"],
    "task": {"text": "{who} has {a} boxes of {b} kites. How many are that?", "steps": ["{a} * {b}"]},
}
PLAIN: dict[str, Any] = {
    "id": "double",
    "parameters": {"n": {"range": [4, 9_000_000]}},
    "variables": {"ID": "new", "N": "{n}", "SUM": "{n}+{n}"},
    "gold": [{"tool": "submit", "arguments": {"answer": "{n * 2}"}}],
}
LAX = changed(SUMS, ("sheet.answer ==", "sheet.answer is None or sheet.answer =="))
NO_GOLD = SUMS.replace("def play_gold(", "def hidden_gold(")
WRONG_GOLD = changed(SUMS, ("    submit(right, sheet)", "    submit(right + (right > 8), sheet)"))
DIE = '''
@register_tool
def die() -> None:
    """End like a crash."""
    import os

    os._exit(9)
'''
UNTOLD = SUMS.replace("def get_task(", "def hidden_task(")
PROJECTS = {"untold": UNTOLD, "sums": SUMS + DIE, "lax": LAX, "no-gold": NO_GOLD, "wrong-gold": WRONG_GOLD}


@pytest.fixture(scope="module")
def url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    folder = tmp_path_factory.mktemp("synth")
    made = [make_project(folder, name, code=code) for name, code in PROJECTS.items()]
    sealed = make_project(folder, "sealed", code=SUMS)
    config = json.loads((sealed / "config.json").read_text())
    (sealed / "config.json").write_text(json.dumps({**config, "evalOnly": True, "selfCheck": False}))
    made.append(sealed)
    options = ("--port", "0", "--data-port", "0", "--engine", "native", "--home", folder / "home")
    with serving("serve", *made, GSM, *options, "--log-level", "WARNING") as server:
        *_, line = server.until("AENV_SYSTEM_URL", on="stderr")
        yield line.partition("=")[2]
    assert traces(folder / "home") == []


@pytest.fixture
def gsm(url: str) -> InstanceSource:
    return InstanceSource("gsm-tools@1.0.0", url, variables={"GSM_COUNT": "4"}, limit=60.0)


@pytest.fixture
def sums(url: str) -> InstanceSource:
    return InstanceSource("sums@1.0.0", url, limit=60.0)


def templates(folder: Path, *lines: Any) -> Path:
    path = folder / "templates.jsonl"
    path.write_text("".join(f"{one if isinstance(one, str) else json.dumps(one)}\n" for one in lines))
    return path


def records(path: Path) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    header, *lines = map(json.loads, path.read_text().splitlines())
    return header, lines


async def good(env: Any, task: dict[str, Any]) -> None:
    first, second = task["instruction"].removeprefix("what is ").rstrip("?").split("+")
    await env.call_tool("submit", {"answer": int(first) + int(second)})


class TestTemplates:
    async def test_a_set_is_checked_has_its_provenance_and_can_be_played(
        self, gsm: InstanceSource, url: str, tmp_path: Path
    ) -> None:
        out = tmp_path / "set.jsonl"
        source = from_templates(templates(tmp_path, BOXES))
        made = await synthesize(gsm, source, SynthesisOptions(5, seed=3, out=out))
        header, lines = records(out)
        assert (header["schema"], header["version"], header["kept"]) == ("aenv-task-set/1", "1.0.0", 5)
        assert (header["environment"], header["source"], header["seed"]) == ("gsm-tools@1.0.0", "template", 3)
        assert header["draws"] == 5 + sum(header["dropped"].values())
        assert len({one["instruction"] for one in lines}) == len(made.tasks) == 5
        for one in lines:
            problem = json.loads(one["task"]["variables"]["GSM_PROBLEM"])
            assert problem["text"] == one["instruction"]
            assert evaluate(problem["steps"][0]) > 20  # type: ignore[operator]
            assert (one["parent"], one["gold"]) == ("boxes", [{"function": "play_gold", "arguments": {}}])
        assert not list(tmp_path.glob("*.work"))
        async with Runner(2, url=url) as runner:
            results = await runner.run("gsm-tools@1.0.0", "oracle", out, limit=2)
        assert [one.passed for one in results] == [True, True]

    async def test_the_same_inputs_give_the_same_bytes_and_another_seed_gives_others(
        self, sums: InstanceSource, tmp_path: Path
    ) -> None:
        source = templates(tmp_path, PLAIN)
        written = []
        for number, (seed, concurrency) in enumerate(((1, 1), (1, 3), (2, 3))):
            out = tmp_path / f"{number}.jsonl"
            await synthesize(
                sums, from_templates(source), SynthesisOptions(3, seed, concurrency=concurrency, out=out)
            )
            written.append(out.read_bytes())
        assert written[0] == written[1] != written[2]

    async def test_gold_of_the_template_is_played_as_an_agent_would(self, url: str, tmp_path: Path) -> None:
        place = InstanceSource("no-gold@1.0.0", url, limit=60.0)
        made = await synthesize(place, from_templates(templates(tmp_path, PLAIN)), SynthesisOptions(2))
        assert [one.gold[0].name for one in made.tasks] == ["submit", "submit"]
        wrong = {**PLAIN, "gold": [{"tool": "submit", "arguments": {"answer": "{n * 2 + 1}"}}]}
        made = await synthesize(place, from_templates(templates(tmp_path, wrong)), SynthesisOptions(1))
        assert (made.tasks, set(made.dropped)) == ([], {"gold fails"})

    @pytest.mark.parametrize(
        ("change", "why"),
        [
            ({"parameters": {"a": {"range": [9, 2]}}}, "field 'parameters.a': it must be"),
            ({"parameters": {"a": {"range": [1, 2, 0]}}}, "field 'parameters.a': the third number"),
            ({"parameters": {}}, "field 'parameters': it must be an object"),
            ({"parameters": {"a-b": [1]}}, "field 'parameters.a-b': the name of a parameter"),
            ({"parameters": {"a": "c + 1"}}, "field 'parameters.a': there is no parameter 'c'"),
            ({"where": ["a +"]}, r"field 'where\[0\]': 'a \+' is not an expression"),
            ({"where": ["a + 1"]}, r"field 'where\[0\]': it must be a comparison"),
            ({"task": {"text": "{a} {", "steps": []}}, "field 'task.text': a single '{'"),
            ({"task": {"text": "x", "steps": ["{__import__('os')}"]}}, r"field 'task.steps\[0\]': use numbers"),
            ({"gold": {}}, "field 'gold': it must be a list"),
            ({"parameter": {}}, "field 'parameter' is not known; did you mean 'parameters'"),
            ({"id": 7}, "field 'id' must be a text"),
            ({"task": None}, "field 'task': give what instances get"),
        ],
    )
    def test_a_bad_template_names_its_line_and_field(
        self, tmp_path: Path, change: dict[str, Any], why: str
    ) -> None:
        with pytest.raises(InvalidRequest, match=f"templates.jsonl' line 3: {why}"):
            template_file(templates(tmp_path, BOXES, "", {**BOXES, "id": "other", **change}))

    def test_a_file_that_has_no_templates_is_refused(self, tmp_path: Path) -> None:
        with pytest.raises(InvalidRequest, match="line 1 is not JSON"):
            template_file(templates(tmp_path, "{"))
        with pytest.raises(InvalidRequest, match="has no templates"):
            template_file(templates(tmp_path, ""))
        with pytest.raises(InvalidRequest, match="line 2: field 'id': there is another template 'boxes'"):
            template_file(templates(tmp_path, BOXES, BOXES))

    async def test_a_template_that_does_not_fit_the_environment_names_the_field(
        self, gsm: InstanceSource, sums: InstanceSource, tmp_path: Path
    ) -> None:
        lacking = templates(tmp_path, {**BOXES, "task": {"text": "{a}"}})
        with pytest.raises(InvalidRequest, match=r"line 1: field 'task\.steps' is missing"):
            await synthesize(gsm, from_templates(lacking), SynthesisOptions(1))
        with pytest.raises(
            InvalidRequest, match="line 1: field 'task': the environment has no function 'task_form'"
        ):
            await synthesize(sums, from_templates(templates(tmp_path, BOXES)), SynthesisOptions(1))


class TestMutations:
    async def test_tasks_of_the_environment_are_changed_and_still_solved_by_their_steps(
        self, gsm: InstanceSource, tmp_path: Path
    ) -> None:
        made = await synthesize(gsm, from_mutations("numbers", "names", "order"), SynthesisOptions(8))
        assert len(made.tasks) == 8
        parents = {one.proposal.parent for one in made.tasks}
        assert len(parents) > 2
        for one in made.tasks:
            assert one.proposal.task.variables["GSM_PROBLEM"]
            assert one.instruction == one.proposal.content["text"]

    async def test_variables_are_changed_together_where_there_is_no_form(self, sums: InstanceSource) -> None:
        made = await synthesize(sums, from_mutations("numbers"), SynthesisOptions(3))
        for one in made.tasks:
            n = one.proposal.task.variables["N"]
            assert one.proposal.task.variables["SUM"] == f"{n}+{n}" and n not in "13"
            assert one.instruction == f"what is {n}+{n}?"

    def test_what_follows_from_a_number_changes_with_it_and_stays_whole(self) -> None:
        form = TaskForm("P", {}, "steps")
        content = {"text": "Ada has 48 rolls for 6 shops and bakes 5.", "steps": ["48 / 6", "8 + 5"]}
        seed = SeedTask(Task("x"), {}, content)
        kinds = [mutated(seed, form, "numbers", random.Random(n), 0) for n in range(40)]
        found = [one.content for one in kinds if one]
        assert len({one["text"] for one in found}) > 10
        for one in found:
            first = evaluate(one["steps"][0])
            assert isinstance(first, Fraction) and first.denominator == 1 and first > 0
            assert one["steps"][1].startswith(f"{spelled(first)} + ")
            numbers = [word.rstrip(".") for word in one["text"].split() if word[0].isdigit()]
            assert one["steps"][0] == f"{numbers[0]} / {numbers[1]}" and one["steps"][1].endswith(
                f"+ {numbers[2]}"
            )

    def test_a_number_whose_part_is_not_clear_is_left_alone(self) -> None:
        form = TaskForm("P", {}, "steps")
        for content in (
            {"text": "8 crates hold 48 rolls for 6 shops.", "steps": ["48 / 6", "8 + 8"]},
            {"text": "Twice 7 and 7.", "steps": ["7 + 7"]},
        ):
            assert mutated(SeedTask(Task("x"), {}, content), form, "numbers", random.Random(0), 0) is None

    async def test_an_unknown_kind_and_an_environment_without_tasks_are_refused(
        self, sums: InstanceSource
    ) -> None:
        with pytest.raises(InvalidRequest, match="no mutation 'colours'; there are numbers"):
            await synthesize(sums, from_mutations("colours"), SynthesisOptions(1))
        with pytest.raises(NotFound, match="no task 'nine'"):
            await synthesize(sums, from_mutations(), SynthesisOptions(1), seeds=TaskSelection(["nine"]))


class TestChecks:
    async def test_tasks_that_do_not_validate_are_dropped_and_counted(self, url: str, tmp_path: Path) -> None:
        source = from_templates(templates(tmp_path, {**PLAIN, "gold": []}))
        lax = await synthesize(InstanceSource("lax@1.0.0", url, limit=60.0), source, SynthesisOptions(1))
        assert (lax.tasks, set(lax.dropped)) == ([], {"doing nothing passes"})
        small = {**PLAIN, "gold": [], "parameters": {"n": {"range": [2, 6]}}}
        source = from_templates(templates(tmp_path, small))
        wrong = await synthesize(InstanceSource("wrong-gold@1.0.0", url, limit=60.0), source, SynthesisOptions(3))
        # The seeds are 1 and 3; of 2, 4, 5 and 6 the gold of the last two is wrong.
        assert sorted(one.instruction for one in wrong.tasks) == ["what is 2+2?", "what is 4+4?"]
        assert wrong.dropped["gold fails"] == 2 and wrong.dropped["duplicate"] > 0
        assert not wrong.is_complete

    async def test_tasks_without_a_text_are_told_apart_by_their_content(self, url: str, tmp_path: Path) -> None:
        few = from_templates(templates(tmp_path, {**PLAIN, "parameters": {"n": [1, 4, 5]}, "gold": []}))
        made = await synthesize(InstanceSource("untold@1.0.0", url, limit=60.0), few, SynthesisOptions(5))
        assert sorted(one.proposal.task.variables["N"] for one in made.tasks) == ["1", "4", "5"]
        assert set(made.dropped) == {"duplicate"}

    async def test_the_solve_rate_is_measured_kept_and_limits_what_is_kept(
        self, sums: InstanceSource, tmp_path: Path
    ) -> None:
        async def half(env: Any, task: dict[str, Any]) -> None:
            if task["attempt"] == 1:
                await good(env, task)

        source, out = templates(tmp_path, PLAIN), tmp_path / "set.jsonl"
        options = SynthesisOptions(2, repeat=2, min_solve_rate=0.2, max_solve_rate=0.8, out=out)
        await synthesize(sums, from_templates(source), options, solver=Solver(Function("half", half)))
        header, lines = records(out)
        assert header["agent"] == "half"
        assert [(one["solve_rate"], one["attempts"]) for one in lines] == [(0.5, 2), (0.5, 2)]
        options = replace(options, count=1, min_solve_rate=0.6, max_solve_rate=1.0, out=None)
        made = await synthesize(sums, from_templates(source), options, solver=Solver(Function("half", half)))
        assert (made.tasks, set(made.dropped)) == ([], {"solve rate out of bounds"})

    async def test_an_agent_solves_what_has_no_gold_and_its_calls_become_the_gold(
        self, url: str, tmp_path: Path
    ) -> None:
        place = InstanceSource("no-gold@1.0.0", url, limit=60.0)
        source = templates(tmp_path, {**PLAIN, "gold": []})
        with pytest.raises(InvalidRequest, match="has no 'play_gold'"):
            await synthesize(place, from_templates(source), SynthesisOptions(1))
        solver = Solver(Function("good", good))
        made = await synthesize(place, from_templates(source), SynthesisOptions(1), solver=solver)
        answer = 2 * int(made.tasks[0].proposal.task.variables["N"])
        assert [one.as_json() for one in made.tasks[0].gold] == [
            {"tool": "submit", "arguments": {"answer": answer}}
        ]

    async def test_a_failure_of_the_infrastructure_drops_no_task_and_the_same_call_goes_on(
        self, sums: InstanceSource, tmp_path: Path
    ) -> None:
        source, out = templates(tmp_path, PLAIN), tmp_path / "set.jsonl"
        options = SynthesisOptions(2, out=out, concurrency=1)
        played: list[str] = []

        def failing(fails: bool) -> Solver:
            async def play(env: Any, task: dict[str, Any]) -> None:
                played.append(task["instruction"])
                if fails and len(played) > 1:
                    await env.call_tool("die", {})
                await good(env, task)

            return Solver(Function("good", play))

        with pytest.raises(NotChecked, match="the same command goes on"):
            await synthesize(sums, from_templates(source), options, solver=failing(True))
        assert not out.exists()
        first = played[0]
        played.clear()
        with pytest.raises(Conflict, match="begun with other inputs"):
            await synthesize(sums, from_templates(source), replace(options, seed=9), solver=failing(False))
        await synthesize(sums, from_templates(source), options, solver=failing(False))
        assert first not in played and len(played) >= 1
        assert [one["solve_rate"] for one in records(out)[1]] == [1.0, 1.0]
        with pytest.raises(Conflict, match="there already"):
            await synthesize(sums, from_templates(source), options, solver=failing(False))


class TestModels:
    async def test_what_a_model_writes_is_checked_field_by_field(self, gsm: InstanceSource) -> None:
        fine = {"text": "Zoe stacks 4 towers of 12 bricks. How many bricks are that?", "steps": ["4 * 12"]}
        other = {"text": "A tram with 30 seats runs 5 times. How many people can sit in all?", "steps": ["30 * 5"]}
        tasks = [
            {"text": "x", "steps": "4 * 12"},
            {"text": "y", "steps": ["4 *"]},
            fine,
            {**fine, "text": fine["text"].upper()},
        ]
        replies = ["no JSON", f"```json\n{json.dumps({'tasks': tasks})}\n```", json.dumps({"tasks": [other]})]
        async with model(*({"content": one} for one in replies)) as server:
            recipe = from_model(Chat(server.url, "sk-1"), "writer-1")
            made = await synthesize(gsm, recipe, SynthesisOptions(2))
            asked = server.asked[0]
        assert [one.proposal.content for one in made.tasks] == [fine, other]
        assert made.origin.model == "writer-1"
        assert made.dropped == {"duplicate": 1, "not a task": 2, "refused by the environment": 1}
        assert asked["model"] == "writer-1" and asked["response_format"]["type"] == "json_schema"
        assert "calculate" in asked["messages"][1]["content"] and "steps" in asked["messages"][1]["content"]

    async def test_a_server_that_knows_no_schemas_is_asked_without_and_gold_is_held_against_the_tools(
        self, sums: InstanceSource, tmp_path: Path
    ) -> None:
        def task(n: int, answer: Any) -> dict[str, Any]:
            gold = [{"tool": "submit", "arguments": {"answer": answer}}]
            variables = {"ID": "new", "N": str(n), "SUM": f"{n}+{n}"}
            return {"instruction": f"Double {n}, please.", "variables": variables, "gold": gold}

        reply = {"content": json.dumps({"tasks": [task(7, "many"), task(8, 17), task(9, 18)]})}
        out = tmp_path / "set.jsonl"
        async with model((400, "no response_format here"), reply, (500, "gone")) as server:
            recipe = from_model(Chat(server.url, attempts=1), "writer-1")
            with pytest.raises(Exception, match="500"):
                await synthesize(sums, recipe, SynthesisOptions(2, out=out))
            assert ["response_format" in one for one in server.asked] == [True, False, False]
        again = {"content": json.dumps({"tasks": [task(11, 22)]})}
        async with model(again) as server:  # what was written and checked before is not asked for again
            made = await synthesize(sums, from_model(Chat(server.url), "writer-1"), SynthesisOptions(2, out=out))
        assert made.dropped == {"gold fails": 1, "not a task": 1}
        header, lines = records(out)
        assert header["model"] == "writer-1"
        assert [one["instruction"] for one in lines] == ["Double 9, please.", "Double 11, please."]


class TestContamination:
    async def test_an_environment_for_evaluation_is_no_source_unless_forced(
        self, url: str, tmp_path: Path
    ) -> None:
        place = InstanceSource("sealed@1.0.0", url, limit=60.0)
        source = templates(tmp_path, PLAIN)
        with pytest.raises(InvalidRequest, match=r"sealed@1\.0\.0 is for evaluation alone .*--force"):
            await synthesize(place, from_templates(source), SynthesisOptions(1))
        out = tmp_path / "set.jsonl"
        await synthesize(place, from_templates(source), SynthesisOptions(1, force=True, out=out))
        assert records(out)[0]["forced"] is True

    async def test_tasks_near_to_a_guarded_one_are_dropped_and_counted(
        self, sums: InstanceSource, url: str, tmp_path: Path
    ) -> None:
        guard = InstanceSource("sealed@1.0.0", url, limit=60.0)
        far = {**PLAIN, "id": "far", "instruction": "A clerk doubles {n}: say the number that comes out"}
        source = from_templates(templates(tmp_path, PLAIN, far))
        made = await synthesize(sums, source, SynthesisOptions(2), guards=[guard])
        assert {one.proposal.parent for one in made.tasks} == {"far"}
        assert made.dropped["near a guarded task"] >= 2 and made.guarded == 2

    def test_numbers_names_and_case_do_not_hide_a_guarded_task(self) -> None:
        guarded = GuardedTexts(["Ada has 3 boxes of kites and sells one. How many kites are left?"])
        few = GuardedTexts(["Ada gives Bob 12, Carol 9 and Emma 30."])
        assert few.is_near("Liam gives Noah 1, Zoe 2 and Tara 44.")
        assert guarded.is_near("bob has 17 boxes of kites, and sells one: how many kites are left")
        assert not guarded.is_near("A train leaves at noon and travels for two hours. How far does it get?")

    def test_a_duplicate_is_one_by_text_or_by_structure(self) -> None:
        known = KnownTasks()
        known.add("s", "What is  1 + 1?")
        assert known.has_text("what IS 1+1") and known.has_structure("s")
        assert not known.has_text("what is 2 + 2?") and not known.has_text("")


class TestWorkLog:
    def test_a_torn_last_line_is_not_read_and_a_foreign_one_is_named(self, tmp_path: Path) -> None:
        path = tmp_path / "set.jsonl.work"
        with work_log.opened(path, "i") as log:
            log.replied(0, "first")
        with path.open("ab") as file:
            file.write(b'{"type": "reply", "request": 1, "cont')
        with work_log.opened(path, "i") as log:
            assert (log.reply(0), log.reply(1)) == ("first", None)
            log.replied(1, "second")
            with pytest.raises(Conflict, match="another 'aenv synth' writes"), work_log.opened(path, "i"):
                pass
        with work_log.opened(path, "i") as log:
            assert log.reply(1) == "second"
        with path.open("ab") as file:
            file.write(b'{"type": "other"}\n')
        with pytest.raises(InvalidRequest, match="line 4: it is not a line of a log"), work_log.opened(path, "i"):
            pass


class TestTaskSets:
    def test_the_gold_of_a_set_is_not_told_to_agents(self, tmp_path: Path) -> None:
        path = tmp_path / "set.jsonl"
        task = {"id": "a", "variables": {"N": "1"}, "split": "synthetic"}
        lines = [{"type": "task-set", "schema": "aenv-task-set/1"}, {"task": task, "gold": ["secret"]}]
        path.write_text("\n".join(map(json.dumps, lines)))
        (found,) = task_file(path)
        assert found == Task("a", {"N": "1"}, split="synthetic")
        path.write_text(json.dumps({"type": "task-set", "schema": "aenv-task-set/2"}))
        with pytest.raises(InvalidRequest, match="line 1: field 'schema' is 'aenv-task-set/2'"):
            task_file(path)

    def test_the_command_makes_a_set_and_says_what_it_dropped(self, url: str, tmp_path: Path) -> None:
        out = tmp_path / "set.jsonl"
        options = ("--templates", templates(tmp_path, PLAIN), "--out", out, "--system-url", url)
        done = command("synth", "sums@1.0.0", *options, "--count", "2", "--agent", "nop", "--json")
        assert done.returncode == 0, done.stderr
        assert [json.loads(line) for line in done.stdout.splitlines()] == records(out)[1]
        assert "kept 2 of 2 tasks" in done.stderr and "solve rate of nop: mean 0.00" in done.stderr
        done = command("synth", "sums@1.0.0", "--out", tmp_path / "other", "--system-url", url)
        assert done.returncode == 1 and "name one source of tasks" in done.stderr
        done = command("eval", "sums@1.0.0", "--agent", "oracle", "--tasks", out, "--system-url", url, "--json",
                       "--out", tmp_path / "results.jsonl")  # fmt: skip
        assert [json.loads(line)["passed"] for line in done.stdout.splitlines()] == [True, True]


class TestExpressions:
    @pytest.mark.parametrize(
        ("text", "value"),
        [("2 + 3 * a", "14"), ("1 / 3", "1/3"), ("0.1 + 0.2", "0.3"), ("-7 // 2", "-4"), ("max(a, 9) % 4", "1"),
         ("ceil(7 / 2)", "4"), ("a >= 4", "True"), ("name == 'Ada'", "True"), ("7 / 4", "1.75")],
    )  # fmt: skip
    def test_values_are_exact(self, text: str, value: str) -> None:
        assert spelled(evaluate(text, {"a": Fraction(4), "name": "Ada"})) == value

    @pytest.mark.parametrize(
        "text",
        ["__import__('os').system('x')", "().__class__", "a.b", "1e999999", "10 ** 10 ** 10", "1 / 0", "[1][0]",
         "lambda: 1", "'a' + 'b'", "(" * 300, "9" * 501, "f'{1}'", "abs(1, 2)", "open('x')", "1 if 1 else 2"],
    )  # fmt: skip
    def test_nothing_else_is_an_expression(self, text: str) -> None:
        with pytest.raises(BadExpression):
            evaluate(text)

    def test_a_schema_says_the_first_place_that_does_not_fit(self) -> None:
        schema = {"type": "object", "properties": {"n": {"type": "integer", "minimum": 1}, "s": {"enum": ["a"]}},
                  "required": ["n"], "additionalProperties": False}  # fmt: skip
        cases: list[tuple[Any, str]] = [
            ({"n": 1, "s": "a"}, ""),
            ([], "'x' must be of type object"),
            ({}, "'x.n' is missing"),
            ({"n": True}, "'x.n' must be of type integer"),
            ({"n": 0}, "'x.n' must have at least 1"),
            ({"n": 1, "s": "b"}, "'x.s' must be one of 'a'"),
            ({"n": 1, "t": 2}, "'x.t' is not known"),
        ]
        for value, why in cases:
            assert misfit(schema, value, "x").startswith(why) and bool(misfit(schema, value, "x")) is bool(why)
        either = {"anyOf": [{"type": "string"}, {"type": "array", "items": {"type": "number"}}]}
        assert [bool(misfit(either, value, "x")) for value in ("a", [1.5], ["a"], None)] == [
            False,
            False,
            True,
            True,
        ]
