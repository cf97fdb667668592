"""gsm-tools: problems from a seed, a calculator that is only that, and rewards without doubt."""

from __future__ import annotations

import hashlib
import json
import subprocess
import sys
from fractions import Fraction
from pathlib import Path
from typing import Any

import pytest

from aenv import Context, ToolError
from aenv.inside.zygote.purity import is_same_for_all
from tests.envs.shells import ENVIRONMENTS, example, module, native_gateway, post, result_of

gsm = module("gsm_tools", "gsm_tools")
arithmetic = module("gsm_tools", "gsm_tools_arithmetic")
problems = module("gsm_tools", "gsm_tools_problems")

TASKS = [(level, seed) for level in range(1, 6) for seed in range(200)]
# Of the texts and answers of TASKS: who changes a problem changes what results mean, and says so here.
DIGEST = "c85706a84b5ac203"


def context(**variables: str) -> Context:
    return Context(variables=variables)


def episode(**variables: str) -> Any:
    return gsm.begin(context(**variables))


def digest() -> str:
    told = (f"{one.text} {one.answer}\n" for one in (problems.problem(level, seed) for level, seed in TASKS))
    return hashlib.sha256("".join(told).encode()).hexdigest()[:16]


class TestProblems:
    def test_problems_are_those_that_they_have_always_been(self) -> None:
        assert digest() == DIGEST
        told = problems.problem(2, 0)
        assert told.text == (
            "A teacup costs 4 euros. Uma buys 8 teacups and pays with 50 euros. How many euros does Uma get back?"
        )
        assert (told.steps, told.answer) == (("8 * 4", "50 - 32"), 18)

    def test_another_process_makes_the_same_problems(self) -> None:
        code = "from gsm_tools_problems import problem; print([problem(n, 7).text for n in range(1, 6)])"
        folder = ENVIRONMENTS / "gsm_tools" / "src"
        for seed in ("1", "2"):
            done = subprocess.run(
                [sys.executable, "-c", code],
                env={"PYTHONPATH": str(folder), "PYTHONHASHSEED": seed},
                capture_output=True,
                text=True,
                check=True,
            )
            assert done.stdout.strip() == str([problems.problem(n, 7).text for n in range(1, 6)])

    def test_problems_of_one_level_hardly_ever_repeat(self) -> None:
        for level in range(1, 6):
            texts = {problems.problem(level, seed).text for seed in range(200)}
            assert len(texts) >= 195

    def test_no_template_is_left_out_and_no_place_is_left_empty(self) -> None:
        texts = [problems.problem(level, seed).text for level, seed in TASKS]
        assert not [text for text in texts if "{" in text or "}" in text or not text.endswith("?")]
        stories = module("gsm_tools", "gsm_tools_stories").STORIES
        for story in stories:
            assert any(text.endswith(story["question"].split("{name}")[-1]) for text in texts)
        for words in ("discount", "cubic metres", "syrup", "insurance", "towards each other", "tip", "halves it"):
            assert any(words in text for text in texts), words

    def test_every_answer_is_a_number_that_its_steps_lead_to_and_its_text_allows(self) -> None:
        for level, seed in TASKS:
            one = problems.problem(level, seed)
            assert one.answer >= 0 and len(one.steps) >= min(level, 3), one
            assert one.answer.denominator == 1 or "exactly" in one.text, one
            values = [arithmetic.evaluate(step) for step in one.steps]
            for number, (step, value) in enumerate(zip(one.steps[:-1], values, strict=False)):
                later = one.steps[number + 1 :]
                assert any(arithmetic.spelled(value) in other or step in other for other in later), one

    def test_higher_levels_take_more_steps(self) -> None:
        means = [sum(len(problems.problem(level, seed).steps) for seed in range(200)) for level in range(1, 6)]
        assert means == sorted(means) and means[0] == 200 and means[-1] >= 800


class TestCalculator:
    @pytest.mark.parametrize(
        ("expression", "value"),
        [
            ("1 + 2 * 3", "7"),
            ("0.1 + 0.2", "0.3"),
            ("1 / 3", "1/3"),
            ("-7 // 2", "-4"),
            ("2 ** -2", "0.25"),
            ("(1,250.50 − 50.5) ÷ 4 × 2", "600"),
            ("round(2.345, 2)", "2.34"),
            ("ceil(7 / 2) + floor(7 / 2) + abs(-1) + min(3, 2) + max(4, 5)", "15"),
            ("10 % 4", "2"),
            ("-0.05", "-0.05"),
            ("max(1, 200)", "200"),
        ],
    )
    def test_it_is_exact(self, expression: str, value: str) -> None:
        assert gsm.calculate(episode(), expression) == value

    @pytest.mark.parametrize(
        "expression",
        [
            "__import__('os')",
            "answer",
            "().__class__",
            "(1).real",
            "[1][0]",
            "'a' * 9",
            "lambda: 1",
            "True",
            "1 if 1 else 2",
            "1 < 2",
            "1 @ 2",
            "1e999999999",
            "0x10",
            "1_000",
            "9**9**9**9",
            "(10**999)**999",
            "2**0.5",
            "1/0",
            "0**-1",
            "1 % 0",
            "",
            "1 +",
            "1 + " * 400,
            "(" * 300 + "1" + ")" * 300,
            "-" * 490 + "1",
            "10**900*10**900",
            "abs(1, 2)",
            "print(1)",
            "max()",
            "round(1, 10**9)",
            "max(1, key=2)",
            "\0",
            "１+１",
        ],
    )
    def test_whatever_is_no_arithmetic_is_refused_or_harmless(self, expression: str) -> None:
        try:
            said = gsm.calculate(episode(), expression)
        except ToolError:
            return
        assert said in ("1", "-1", "2")  # only what is a plain number after all

    def test_what_is_refused_is_named(self) -> None:
        with pytest.raises(ToolError, match="there is no 'answer' here"):
            gsm.calculate(episode(), "answer + 1")
        with pytest.raises(ToolError, match="divides by zero"):
            gsm.calculate(episode(), "1 / 0")
        with pytest.raises(ToolError, match="too large"):
            gsm.calculate(episode(), "999 ** 999 ** 1 * 999 ** 999 ** 1 * 999 ** 999")


class TestReward:
    @pytest.mark.parametrize("answer", ["18", " 18.0 ", "$18", "36/2", 18, 18.0, "18.", "+18"])
    def test_the_right_number_in_any_form_is_rewarded(self, answer: Any) -> None:
        one = episode(GSM_TASK_ID="2-0")
        gsm.submit_answer(one, answer)
        assert gsm.reward(one) == {"reward": 1.0, "task": "2-0", "answered": True, "calculations": 0}

    @pytest.mark.parametrize("answer", ["18.0000001", "17", 18.000001, "-18", "0"])
    def test_any_other_number_is_not(self, answer: Any) -> None:
        one = episode(GSM_TASK_ID="2-0")
        gsm.submit_answer(one, answer)
        assert gsm.reward(one)["reward"] == 0.0

    @pytest.mark.parametrize(
        "answer", ["eighteen", "", "nan", "inf", float("nan"), "18 euros", "1/0", "1e1", "１８"]
    )
    def test_what_is_no_number_is_refused_and_not_counted(self, answer: Any) -> None:
        one = episode(GSM_TASK_ID="2-0")
        with pytest.raises(ToolError):
            gsm.submit_answer(one, answer)
        assert gsm.reward(one) == {"reward": 0.0, "task": "2-0", "answered": False, "calculations": 0}

    def test_the_last_answer_counts_and_nothing_tells_whether_it_is_right(self) -> None:
        one = episode(GSM_TASK_ID="2-0")
        assert gsm.submit_answer(one, "18") == "noted: 18"
        assert gsm.submit_answer(one, "19") == "noted: 19"
        assert gsm.reward(one)["reward"] == 0.0

    def test_thousands_may_be_grouped(self) -> None:
        assert arithmetic.number_of("1,250,000.5") == Fraction(2500001, 2)
        with pytest.raises(arithmetic.NotExact):
            arithmetic.number_of("1,25")


class TestTasks:
    def test_tasks_name_their_variables_and_splits_do_not_meet(self) -> None:
        tasks = gsm.list_tasks(context(GSM_COUNT="10", GSM_SEED="5"))
        train, test = gsm.list_tasks(context(GSM_COUNT="10", GSM_SEED="5"), "train"), tasks[10:]
        assert tasks[:10] == train and len(test) == 10
        assert train[0] == {"id": "1-5", "variables": {"GSM_TASK_ID": "1-5"}, "split": "train"}
        assert {task["id"][0] for task in train} == set("12345")
        assert not {task["id"] for task in train} & {task["id"] for task in test}
        assert {one["id"][0] for one in gsm.list_tasks(context(GSM_DIFFICULTY="4"))} == {"4"}
        with pytest.raises(ToolError, match="no split 'dev'; there are train, test"):
            gsm.list_tasks(context(), "dev")

    def test_splits_never_meet(self) -> None:
        last = str(5 * 10**11 - 20)
        train, test = (gsm.list_tasks(context(GSM_SEED=last), split) for split in gsm.SPLITS)
        assert train[-1]["id"].endswith(f"-{5 * 10**11 - 1}") and test[-1]["id"].endswith(f"-{10**12 - 1}")
        with pytest.raises(ToolError, match=f"GSM_SEED is a number from 0 to {last} where tasks are listed"):
            gsm.list_tasks(context(GSM_SEED=str(5 * 10**11)))

    def test_the_gold_of_every_task_is_rewarded_and_doing_nothing_never_is(self) -> None:
        trusted = context(AENV_VALIDATION="1")
        for level, seed in TASKS:
            one = gsm.Episode(problems.problem(level, seed))
            assert gsm.reward(one)["reward"] == 0.0
            gsm.play_gold(trusted, one)
            assert gsm.reward(one)["reward"] == 1.0, one.task

    def test_no_cheat_is_rewarded(self) -> None:
        cheats = gsm.list_cheats(context(AENV_VALIDATION="1"))
        assert {cheat["kind"] for cheat in cheats} == {"exit-early", "read-answer", "spoof-output", "fill-disk"}
        for level, seed in TASKS[::20]:
            for cheat in cheats:
                one = gsm.Episode(problems.problem(level, seed))
                for step in cheat["steps"]:
                    try:
                        getattr(gsm, step["tool"])(one, **step["arguments"])
                    except ToolError:
                        continue
                assert gsm.reward(one)["reward"] == 0.0, cheat["name"]

    def test_gold_and_cheats_are_for_validation_only(self) -> None:
        with pytest.raises(ToolError, match="create the instance with AENV_VALIDATION=1"):
            gsm.play_gold(context(), episode())
        with pytest.raises(ToolError, match="create the instance with AENV_VALIDATION=1"):
            gsm.list_cheats(context(AENV_VALIDATION="yes"))

    def test_a_task_tells_its_text_and_not_its_answer(self) -> None:
        one = episode(GSM_TASK_ID="5-0")
        told = gsm.get_task(one)
        assert told["id"] == "5-0" and told["instruction"] == one.task.text == gsm.read_problem(one)
        assert set(told) == {"id", "instruction", "system", "max_steps"}
        assert "23.6" not in str(told)

    @pytest.mark.parametrize(
        ("variables", "words"),
        [
            ({"GSM_TASK_ID": "6-1"}, "GSM_TASK_ID is '<difficulty>-<seed>'"),
            ({"GSM_TASK_ID": "3"}, "GSM_TASK_ID"),
            ({"GSM_TASK_ID": "3-01"}, "GSM_TASK_ID"),
            ({"GSM_DIFFICULTY": "0"}, "'GSM_DIFFICULTY' is a number from 1 to 5"),
            ({"GSM_DIFFICULTY": "hard"}, "GSM_DIFFICULTY is a whole number"),
            ({"GSM_SEED": "-1"}, "'GSM_SEED' is a number from 0"),
            ({"GSM_SEED": "١"}, "GSM_SEED is a whole number"),
        ],
    )
    def test_bad_variables_are_named_with_what_they_should_be(self, variables: dict[str, str], words: str) -> None:
        with pytest.raises(ToolError, match=words):
            episode(**variables)

    def test_reset_begins_the_problem_of_a_seed_or_the_same_again(self) -> None:
        one = episode(GSM_TASK_ID="2-0")
        gsm.submit_answer(one, 18)
        assert gsm.reset(context(), one)["id"] == "2-0" and gsm.reward(one)["reward"] == 0.0
        assert gsm.reset(context(), one, 9)["id"] == "2-9"
        assert gsm.reset(context(), one, 9, 5) == gsm.get_task(gsm.Episode(problems.problem(5, 9)))
        with pytest.raises(ToolError, match="'difficulty' is a number from 1 to 5"):
            gsm.reset(context(), one, 1, 6)


class TestGivenProblems:
    GIVEN = json.dumps({"text": "Ada has 3 boxes of 4 kites, and 5 more. How many?", "steps": ["3 * 4", "12 + 5"]})

    def test_a_problem_of_the_caller_is_played_like_one_from_a_seed(self) -> None:
        one = episode(GSM_PROBLEM=self.GIVEN, GSM_TASK_ID="2-0")
        told = gsm.get_task(one)
        assert told["id"].startswith("given-") and told["instruction"] == gsm.read_problem(one)
        assert "17" not in str(told) and "12" not in str(told)
        assert gsm.reward(one)["reward"] == 0.0
        assert gsm.play_gold(context(AENV_VALIDATION="1"), one) == {"steps": 3}
        assert gsm.reward(one)["reward"] == 1.0
        assert gsm.reset(context(), one)["id"] == told["id"] and gsm.reward(one)["reward"] == 0.0
        assert gsm.reset(context(), one, 9)["id"] == "2-9"

    def test_the_form_of_a_problem_is_sealed_and_gives_the_same_problem_again(self) -> None:
        one = episode(GSM_TASK_ID="3-5")
        with pytest.raises(ToolError, match="task_form is for validation"):
            gsm.task_form(context(), one)
        form = gsm.task_form(context(AENV_VALIDATION="1"), one)
        again = episode(**{form["variable"]: json.dumps(form["task"])})
        assert (again.task.text, again.task.steps) == (one.task.text, one.task.steps)
        assert {*form["task"]} == {*form["schema"]["properties"]} and form["expressions"] in form["task"]

    @pytest.mark.parametrize(
        ("value", "words"),
        [
            ("{", "GSM_PROBLEM is not JSON"),
            ("[1]", "an object with 'text' and 'steps'"),
            ('{"text": "a", "steps": ["1"], "x": 1}', "an object with 'text' and 'steps'"),
            ('{"text": " ", "steps": ["1"]}', "'text' is a text of up to"),
            ('{"text": "a", "steps": []}', "'steps' is a list of 1 to"),
            ('{"text": "a", "steps": [1]}', "step 1 is not a text"),
            ('{"text": "a", "steps": ["1", "two"]}', "step 2: there is no 'two' here"),
        ],
    )
    def test_what_is_not_a_problem_is_named(self, value: str, words: str) -> None:
        with pytest.raises(ToolError, match=words):
            episode(GSM_PROBLEM=value)


def test_it_is_loaded_once_for_all_instances() -> None:
    assert is_same_for_all(str(ENVIRONMENTS / "gsm_tools" / "src"))


@pytest.mark.slow
async def test_instances_have_the_problems_of_their_variables(tmp_path: Path) -> None:
    async with native_gateway(tmp_path / "home", "gsm_tools") as gateway:

        async def create(**variables: str) -> str:
            made = await gateway.create("gsm-tools@1.0.0", environment_variables=variables)
            id: str = made["id"]
            return id

        first = await create(GSM_COUNT="2")
        tasks = await post(gateway, first, "/functions/list_tasks", split="test")
        assert len(tasks) == 2
        second = await create(**tasks[1]["variables"], AENV_VALIDATION="1")
        assert (await post(gateway, second, "/functions/get_task"))["id"] == tasks[1]["id"]
        assert (await post(gateway, second, "/task/reward"))["reward"] == 0.0
        await post(gateway, second, "/functions/play_gold")
        assert (await post(gateway, second, "/task/reward"))["reward"] == 1.0
        assert (await post(gateway, second, "/task/reset", seed=3))["id"] == f"{tasks[1]['id'][0]}-3"
        assert (await result_of(gateway, first, "submit_answer", answer=12.5))["content"][0][
            "text"
        ] == "noted: 12.5"
        said = await result_of(gateway, first, "calculate", expression="__import__('os')")
        assert said["is_error"]
        assert (await example(gateway, "gsm_tools")).endswith("5 of 5\n")
        bad = await create(GSM_TASK_ID="x")
        said = await result_of(gateway, bad, "read_problem")
        assert said["is_error"] and "GSM_TASK_ID" in said["content"][0]["text"]
