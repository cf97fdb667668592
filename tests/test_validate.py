"""`aenv validate`: a sound environment passes, and each thing that can be wrong with one is found."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from aenv.base.errors import NotFound
from aenv.rollouts import cheats
from aenv.rollouts.report import Report
from aenv.rollouts.task import Task, TaskSelection
from aenv.rollouts.task_instances import InstanceSource
from aenv.rollouts.validation import validate
from tests.command_line import aenv, environ, serving
from tests.gateways import make_project
from tests.native import traces
from tests.task_environments import BEGIN, DICE, GOLD, SHELL, SUMS, changed

pytestmark = pytest.mark.slow

RETURN = "    return float(sheet.answer =="
LEAK = '''
@register_tool
def hint(context: Context) -> int:
    """A hint."""
    return 2 * int(context.variables["N"])


@register_reset
'''
CHEATS = '''
@register_function
def list_cheats(context: Context) -> list:
    """Known ways to cheat."""
    if context.variables.get("AENV_VALIDATION") != "1":
        raise ToolError("only in validation")
    steps = [{"tool": "submit", "arguments": {"answer": ANSWER}}, {"function": "get_task", "arguments": {}}]
    return [{"name": "guess", "kind": "KIND", "steps": steps}]
'''
EXCEPTIONS = '''
@register_function
def known_exceptions() -> dict:
    """What deviates."""
    return DECLARED
'''


def with_cheats(answer: str, kind: str = "spoof-output") -> str:
    return SUMS + changed(CHEATS, ("ANSWER", answer), ("KIND", kind))


def with_exceptions(declared: object, *changes: tuple[str, str]) -> str:
    return changed(SUMS, *changes) + changed(EXCEPTIONS, ("DECLARED", repr(declared)))


GOLD_OF_SIX = ("    submit(right, sheet)", "    submit(0 if right == 6 else right, sheet)")
FREE_TWO = (RETURN, '    if context.variables.get("ID") == "two":\n        return 1.0\n' + RETURN)
WHY = "the reference is wrong"

DOCUMENTED = Path(__file__).parent.parent / "docs" / "src" / "sums_env.py"
UNREADY = '    raise NotJudged("not_ready", "no abacus; buy one")\n'
IMPORTED = ("Depends, ToolError", "Depends, NotJudged, ToolError")
PROJECTS = {
    "sums": SUMS,
    "unready": changed(
        with_cheats("0"), IMPORTED, ("    submit(right, sheet)", UNREADY), (RETURN, UNREADY + RETURN)
    ),
    "invalid-gold": changed(
        SUMS,
        IMPORTED,
        (RETURN, '    if sheet.answer:\n        raise NotJudged("invalid", "no evidence")\n' + RETURN),
    ),
    "invalid-empty": changed(
        SUMS,
        IMPORTED,
        (RETURN, '    if not sheet.answer:\n        raise NotJudged("invalid", "nothing was done")\n' + RETURN),
    ),
    "documented": DOCUMENTED.read_text(),
    "undocumented": changed(SUMS, ('    """Give the answer."""\n', "")),
    "no-number": changed(SUMS, (RETURN, '    return "good"\n' + RETURN)),
    "too-high": changed(SUMS, (RETURN, "    return 7.0\n" + RETURN)),
    "unsealed": changed(SUMS, ('context.variables.get("AENV_VALIDATION") != "1"', "False")),
    "unhealthy": SUMS
    + "\nfrom aenv import register_health\n\n\n@register_health\ndef well() -> bool:\n    return False\n",
    "random-gold": changed(SUMS, ('"steps": 1,', '"steps": __import__("random").random(),')),
    "random-reset": changed(SUMS, ('return "begin"', 'return __import__("secrets").token_hex(8)')),
    "sticky-reset": changed(
        SUMS,
        (
            "    sheet.answer = None\n    return",
            "    sheet.n = getattr(sheet, 'n', 0) + 1\n    return str(sheet.n) +",
        ),
    ),
    "keeping-reset": changed(SUMS, ("    sheet.answer = None\n    return", "    return")),
    "wrong-gold": changed(SUMS, GOLD_OF_SIX),
    "free": changed(SUMS, FREE_TWO),
    "known": with_exceptions({"gold": {"six": WHY}, "empty": {"two": "nothing is to do"}}, GOLD_OF_SIX, FREE_TWO),
    "no-exception": with_exceptions({"gold": {"six": WHY}, "empty": {"two": WHY}}),
    "unknown-exception": with_exceptions({"gold": {"seven": WHY}}),
    "bad-exceptions": with_exceptions({"gold": ["six"]}),
    "leaks": changed(SUMS, ("@register_reset\n", LEAK), ('{"steps": 1,', '{"answer": right,')),
    "told": changed(SUMS, ('"instruction":', '"gold_actions": [], "instruction":')),
    "other-task": changed(SUMS, ('{"id": context.variables["ID"]', '{"id": "another"')),
    "any-split": changed(SUMS, ('if split not in ("", "train", "test")', "if False")),
    "twice": changed(SUMS, ('"six", "3"', '"two", "3"')),
    "guarded": with_cheats("0"),
    "cheated": with_cheats("2"),
    "bad-cheats": with_cheats("2", "magic"),
    "no-tasks": changed(DICE, ("random.random()", "4.0")),
    "random-tool": DICE,
    "world-tool": changed(DICE, ("@register_tool", '@register_tool(annotations={"openWorldHint": True})')),
    "open-shell": SHELL + BEGIN + GOLD,
    "shell": SHELL + BEGIN,
    "exit-code": changed(
        SHELL,
        ("    return done.stdout", "    bash.code = done.returncode\n    return done.stdout"),
        (
            "    if not os.path.exists(verdict()):",
            "    return float(getattr(bash, 'code', 1) == 0)\n    if False:",
        ),
    ),
}


@pytest.fixture(scope="module")
def url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A gateway that isolates, with all environments of this file."""
    folder = tmp_path_factory.mktemp("validate")
    projects = [make_project(folder, name, code=code) for name, code in PROJECTS.items()]
    options = ("--port", "0", "--data-port", "0", "--engine", "native", "--home", folder / "home")
    # Nobody reads what it logs, and a pipe that is full would stop it.
    with serving("serve", *projects, *options, "--log-level", "WARNING") as server:
        *_, line = server.until("AENV_SYSTEM_URL", on="stderr")
        yield line.partition("=")[2]
    assert traces(folder / "home") == []


async def report_on(url: str, name: str, wanted: TaskSelection | None = None) -> Report:
    place = InstanceSource(f"{name}@1.0.0", url, limit=60.0)
    return await validate(place, wanted or TaskSelection(), 2)


def bad(report: Report) -> dict[str, str]:
    """What was found to be bad: "check subject" and why."""
    return {f"{one.check} {one.subject}": one.detail for one in report.findings if one.is_bad}


async def test_a_sound_environment_is_valid_in_every_respect(url: str) -> None:
    report = await report_on(url, "sums")
    assert bad(report) == {}
    statuses = {(one.check, one.status) for one in report.findings}
    checks = ("names", "schemas", "docs", "health", "tasks", "sealed", "empty", "gold", "reward", "determinism")
    assert statuses == {*((check, "ok") for check in (*checks, "reset")), ("cheats", "not applicable")}
    assert [one.subject for one in report.findings if one.check == "gold"] == ["six", "two"]
    assert report.tasks == 2
    assert "isolated" in report.text()
    assert report.text().endswith("\nvalid")


async def test_the_environment_of_the_documentation_is_valid(url: str) -> None:
    report = await report_on(url, "documented")
    assert bad(report) == {}
    assert {one.status for one in report.findings if one.check == "cheats"} == {"held", "not applicable"}


async def test_a_selection_of_tasks_is_all_that_is_played(url: str) -> None:
    report = await report_on(url, "sums", TaskSelection(split="test"))
    assert [one.subject for one in report.findings if one.check == "gold"] == ["six"]
    with pytest.raises(NotFound, match="no task 'sx'; there are 'six'"):
        await report_on(url, "sums", TaskSelection(tasks=["sx"]))


@pytest.mark.parametrize(
    ("name", "subject", "why"),
    [
        pytest.param("undocumented", "docs tool submit", "no description", marks=pytest.mark.slow),
        pytest.param("no-number", "reward two", "not a number: 'good'", marks=pytest.mark.slow),
        pytest.param("too-high", "reward six", "7 is outside 0..1", marks=pytest.mark.slow),
        ("unsealed", "sealed play_gold", "without AENV_VALIDATION=1"),
        pytest.param("unhealthy", "health environment", "error", marks=pytest.mark.slow),
        ("random-gold", "determinism gold episode", "it said steps: '0."),
        pytest.param("random-reset", "reset environment", "and then", marks=pytest.mark.slow),
        ("sticky-reset", "reset environment", "'2begin' and then '3begin'"),
        ("keeping-reset", "reset environment", "after a reset the reward is still 1"),
        ("wrong-gold", "gold six", "the reward is 0"),
        ("free", "empty two", "the reward is 1"),
        ("no-exception", "gold six", "declared as an exception, and is none: the reward is 1"),
        ("no-exception", "empty two", "declared as an exception, and is none: the reward is 0"),
        pytest.param("unknown-exception", "tasks known_exceptions", "no task 'seven'", marks=pytest.mark.slow),
        pytest.param(
            "bad-exceptions", "tasks known_exceptions", "must be an object of task ids", marks=pytest.mark.slow
        ),
        ("leaks", "cheats read-answer: call hint (two)", "it tells the answer '2'"),
        pytest.param("told", "tasks six", "get_task gives away 'gold_actions'", marks=pytest.mark.slow),
        pytest.param("other-task", "tasks six", "its id is 'another'", marks=pytest.mark.slow),
        ("any-split", "tasks list_tasks", "an unknown split must be an error"),
        pytest.param("twice", "tasks list_tasks", "names the task 'two' twice", marks=pytest.mark.slow),
        ("cheated", "cheats spoof-output: guess (two)", "the reward is 1 afterwards"),
        pytest.param(
            "bad-cheats",
            "cheats list_cheats (two)",
            "kind is 'magic'; use one of edit-tests",
            marks=pytest.mark.slow,
        ),
        ("exit-code", "cheats exit-early: exit with success (only)", "the reward is 1 afterwards"),
        ("random-tool", "determinism scripted episode", "and then"),
        ("invalid-gold", "gold six", "the reward is invalid (no evidence)"),
    ],
)
# Slow are those whose rule is also tested below, without an instance, and rare ones.
async def test_a_fault_is_found(url: str, name: str, subject: str, why: str) -> None:
    report = await report_on(url, name)
    found = bad(report)
    assert why in found.get(subject, ""), found
    assert not report.passed
    assert subject in report.text()


async def test_declared_exceptions_that_deviate_are_known_and_not_bad(url: str) -> None:
    report = await report_on(url, "known")
    assert bad(report) == {}
    known = {f"{one.check} {one.subject}": one.detail for one in report.findings if one.status == "known"}
    assert known == {"gold six": f"the reward is 0: {WHY}", "empty two": "the reward is 1: nothing is to do"}
    assert WHY in report.text(verbose=True)
    assert WHY not in report.text()


async def test_an_attempt_that_gets_nothing_is_held_with_evidence(url: str) -> None:
    report = await report_on(url, "guarded")
    assert bad(report) == {}
    held = [one for one in report.findings if one.status == "held"]
    assert [one.subject for one in held] == [f"spoof-output: guess ({id})" for id in ("six", "two")]
    assert held[0].detail.startswith("the reward is 0 after 2 steps; it said ")


async def test_what_is_not_ready_is_not_tried_and_the_environment_is_not_valid(url: str) -> None:
    report = await report_on(url, "unready")
    assert bad(report) == {}
    untried = {one.subject for one in report.findings if one.status == "not tried"}
    assert untried == {
        "six",
        "two",
        "gold episode",
        "environment",
        *(f"spoof-output: guess ({id})" for id in ("six", "two")),
    }
    assert not any(one.status == "held" for one in report.findings)
    assert not report.passed
    assert report.text().endswith(
        "not validated: nothing could be tried of empty, gold, determinism, reset, cheats"
    )
    assert aenv("validate", "unready", "--system-url", url).returncode == 1


async def test_doing_nothing_may_be_invalid_which_is_no_reward(url: str) -> None:
    report = await report_on(url, "invalid-empty")
    assert bad(report) == {}
    empty = {one.subject: one.detail for one in report.findings if one.check == "empty"}
    assert empty == dict.fromkeys(("six", "two"), "the reward is invalid (nothing was done)")


async def test_an_environment_without_tasks_says_so_and_has_its_contract_checked(url: str) -> None:
    report = await report_on(url, "no-tasks")
    assert report.passed
    assert "no tasks" in report.text()
    assert {one.check for one in report.findings} >= {"names", "docs", "schemas", "health", "determinism", "reset"}


async def test_a_tool_of_the_open_world_need_not_be_deterministic(url: str) -> None:
    assert bad(await report_on(url, "world-tool")) == {}


async def test_a_verifier_that_the_shell_can_overwrite_is_broken(url: str) -> None:
    found = bad(await report_on(url, "open-shell"))
    names = {name.removeprefix("cheats ").partition(":")[0] for name in found}
    # The test is made at the first reward, so there is nothing to edit before: reading is what is open.
    assert names == {"read-answer"}
    assert (
        "/environment/src/environment.py can be read"
        in found["cheats read-answer: look for the answer in files and variables (only)"]
    )


async def test_every_generic_attempt_is_made_through_a_shell(url: str) -> None:
    report = await report_on(url, "shell")
    kinds = {one.subject.partition(":")[0]: one.status for one in report.findings if one.check == "cheats"}
    assert kinds == dict.fromkeys(cheats.KINDS, "held")


async def test_a_test_that_the_shell_can_edit_is_broken(url: str) -> None:
    from aenv.rollouts.task_instances import TaskInstances

    place = InstanceSource("shell@1.0.0", url, limit=60.0)
    shell = cheats.Shell("bash", "command")
    edit = next(cheat for cheat in cheats.generic(shell, "") if cheat.kind == "edit-tests")
    begun = cheats.Cheat(edit.name, edit.kind, [{"tool": "begin"}, *edit.steps])
    async with TaskInstances(place) as instances:
        found = await cheats.attempt(instances, Task("only"), begun)
    assert found.status == "broken"
    assert found.detail.startswith("the reward is 1 afterwards")


class TestCommand:
    @pytest.fixture
    def good(self, tmp_path: Path) -> Path:
        return make_project(tmp_path, "sums", code=SUMS)

    def test_a_folder_is_validated_without_a_gateway(self, good: Path) -> None:
        done = aenv("validate", good, "--tasks", "six,two", "--json")
        assert done.returncode == 0, done.stderr
        report = json.loads(done.stdout)
        assert (report["passed"], report["tasks"], report["environment"]) == (True, 2, "sums@1.0.0")
        assert len(report["digest"]) == 64
        assert report["isolation"] == "native engine, isolated"

    @pytest.mark.timeout(180)
    def test_a_folder_finds_pulled_data_and_leaves_its_root_for_the_next_time(self, tmp_path: Path) -> None:
        files = 'os.listdir(os.environ["WORDS_DATA_DIR"])'
        code = changed(
            SUMS, ("from typing", "import os\nfrom typing"), ('("six", "3", "test")', f"({files}[0], '3', 'test')")
        )
        project = make_project(tmp_path, "words", code=code)
        config = json.loads((project / "config.json").read_text())
        data = {"name": "words", "variable": "WORDS_DATA_DIR"}
        (project / "config.json").write_text(json.dumps({**config, "data": data}))
        (project / "Dockerfile").write_text("FROM python:3.12-slim\nRUN echo made > /made\n")
        pulled = tmp_path / "home" / "data" / "words"
        pulled.mkdir(parents=True)
        (pulled / "pulled").touch()
        words = ("eval", project, "--agent", "oracle", "--tasks", "pulled", "--json")
        done = aenv(*words, env=environ(AENV_HOME=str(tmp_path / "home")))
        assert done.returncode == 0, done.stderr
        assert [json.loads(line)["task"] for line in done.stdout.splitlines()] == ["pulled"]
        made = (tmp_path / "home" / "roots" / "steps").glob("*/root/made")
        assert [file.read_text() for file in made] == ["made\n"]
        assert (pulled / "pulled").exists()

    def test_a_fault_makes_the_exit_code_1(self, url: str) -> None:
        done = aenv("validate", "free@1.0.0", "--system-url", url, "--limit", "1")
        assert done.returncode == 1
        assert "failed          empty two: the reward is 1" in done.stdout
        assert done.stdout.splitlines()[-1].startswith("not valid: 1 of ")
        assert done.stderr == ""

    def test_a_wrong_config_exits_with_3_and_an_unknown_name_with_1(self, tmp_path: Path, url: str) -> None:
        (tmp_path / "config.json").write_text("{")
        assert aenv("validate", tmp_path).returncode == 3
        done = aenv("validate", "nobody@1.0.0", "--system-url", url)
        assert done.returncode == 1
        assert done.stderr.startswith("aenv: ")
        assert "nobody" in done.stderr

    def test_variables_reach_the_instances(self, url: str) -> None:
        done = aenv("validate", "no-tasks", "--variable", "broken", env=environ(AENV_SYSTEM_URL=url))
        assert done.returncode == 2
        done = aenv("validate", "no-tasks", "--variable", "A=b", env=environ(AENV_SYSTEM_URL=url))
        assert done.returncode == 0


@pytest.mark.timeout(180)
def test_a_new_project_of_the_benchmark_template_is_valid_and_can_be_evaluated(tmp_path: Path) -> None:
    assert aenv("init", "fresh", "--template", "benchmark", cwd=tmp_path).returncode == 0
    # The process engine does not build the Dockerfile, which asks a package index.
    options = ("--port", "0", "--data-port", "0", "--engine", "process", "--home", tmp_path / "home")
    with serving("serve", tmp_path / "fresh", *options, "--log-level", "WARNING") as server:
        *_, line = server.until("AENV_SYSTEM_URL", on="stderr")
        words = ("fresh@1.0.0", "--system-url", line.partition("=")[2])
        valid = aenv("validate", *words)
        assert valid.returncode == 0, valid.stdout + valid.stderr
        for agent, passed in (("oracle", True), ("nop", False)):
            done = aenv("eval", *words, "--agent", agent, "--json", "--out", tmp_path / agent)
            assert done.returncode == 0, done.stderr
            assert [json.loads(line)["passed"] for line in done.stdout.splitlines()] == [passed] * 4
