"""`aenv data prepare`, and the self-check as `aenv eval` and `aenv validate` show it."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.command_line import aenv, environ, serving
from tests.gateways import make_project
from tests.task_environments import SUMS, changed
from tests.test_self_check import project

pytestmark = pytest.mark.slow  # commands, each with gateways and instances

RETURN = "    return float(sheet.answer =="
FREE_TWO = changed(SUMS, (RETURN, '    if context.variables.get("ID") == "two":\n        return 1.0\n' + RETURN))
CHEATS = '''
@register_function
def list_cheats(context: Context) -> list:
    """Known ways to cheat."""
    if context.variables.get("AENV_VALIDATION") != "1":
        raise ToolError("only in validation")
    return [{"name": "guess", "kind": "spoof-output", "steps": [{"tool": "submit", "arguments": {"answer": 0}}]}]
'''
EXCEPTIONS = '''
@register_function
def known_exceptions() -> dict:
    """What deviates."""
    return {"gold": {}, "empty": {"two": "nothing is to do"}}
'''


@pytest.fixture(scope="module")
def url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    folder = tmp_path_factory.mktemp("prepare")
    projects = [
        project(folder, "sums", SUMS),
        project(folder, "free", FREE_TWO + CHEATS),
        project(folder, "known", FREE_TWO + EXCEPTIONS),
        make_project(folder, "unchecked", code=SUMS),
    ]
    options = ("--port", "0", "--data-port", "0", "--engine", "process", "--home", folder / "home")
    with serving("serve", *projects, *options, "--log-level", "WARNING") as server:
        *_, line = server.until("AENV_SYSTEM_URL", on="stderr")
        yield line.partition("=")[2]


def lines(text: str) -> list[dict[str, Any]]:
    return sorted((json.loads(line) for line in text.splitlines()), key=lambda row: str(row["task"]))


def prepare(url: str, *words: object) -> Any:
    return aenv("data", "prepare", *words, env=environ(AENV_SYSTEM_URL=url))


class TestPrepare:
    def test_every_task_that_is_chosen_is_checked(self, url: str) -> None:
        done = prepare(url, "sums", "--json")
        assert done.returncode == 0, done.stderr
        assert [(row["task"], row["self_check"], row["reason"]) for row in lines(done.stdout)] == [
            ("six", "held", ""),
            ("two", "held", ""),
        ]
        assert "2 tasks: 2 held" in done.stderr
        assert prepare(url, "sums@1.0.0", "--tasks", "six").stdout == "1 tasks: 1 held\n"

    def test_a_task_that_cannot_be_trusted_makes_the_exit_code_1(self, url: str) -> None:
        done = prepare(url, "free")
        assert done.returncode == 1
        assert done.stdout.splitlines()[0] in ("2 tasks: 1 held, 1 failed", "2 tasks: 1 failed, 1 held")
        assert "  failed two: the self-check of this task failed: doing nothing gets" in done.stdout

    def test_an_environment_without_a_self_check_says_so(self, url: str) -> None:
        done = prepare(url, "unchecked")
        assert (done.returncode, done.stdout) == (1, "")
        assert "'unchecked' has no self-check" in done.stderr

    def test_a_folder_is_refused(self, url: str) -> None:
        done = prepare(url, "./sums")
        assert done.returncode == 2
        assert "is a folder" in done.stderr


def evaluated(url: str, folder: Path, *words: object) -> tuple[int, list[dict[str, Any]]]:
    done = aenv("eval", *words, "--agent", "nop", "--json", "--system-url", url, "--out", folder / "x")
    return done.returncode, lines(done.stdout)


class TestEval:
    def test_results_say_how_the_self_check_stands(self, url: str, tmp_path: Path) -> None:
        code, (six, two) = evaluated(url, tmp_path, "free")
        assert (code, six["outcome"], six["self_check"]) == (0, "reward", "held")
        assert (two["outcome"], two["reward"], two["self_check"]) == ("invalid", None, "failed")
        assert "doing nothing gets the full reward" in two["error"]

    def test_a_known_exception_is_a_number_with_its_reason(self, url: str, tmp_path: Path) -> None:
        _, (six, two) = evaluated(url, tmp_path, "known")
        assert (six["self_check"], "known" in six) == ("held", False)
        assert (two["reward"], two["self_check"], two["known"]) == (1.0, "known", "nothing is to do")

    def test_results_without_the_self_check_are_marked(self, url: str, tmp_path: Path) -> None:
        _, (_, two) = evaluated(url, tmp_path, "free", "--no-self-check")
        assert (two["reward"], two["self_check"]) == (1.0, "skipped")

    def test_an_environment_without_one_says_nothing(self, url: str, tmp_path: Path) -> None:
        _, rows = evaluated(url, tmp_path, "unchecked")
        assert not any("self_check" in row for row in rows)


def findings(url: str, *words: object) -> tuple[int, dict[str, str]]:
    done = aenv("validate", *words, "--json", "--system-url", url)
    found = json.loads(done.stdout)["findings"]
    return done.returncode, {f"{one['check']} {one['subject']}": one["status"] for one in found}


class TestValidate:
    @pytest.mark.slow
    def test_the_self_check_is_a_check_of_its_own(self, url: str) -> None:
        code, found = findings(url, "sums")
        assert code == 0
        assert {name: found[name] for name in found if name.startswith("self-check")} == {
            "self-check six": "ok",
            "self-check two": "ok",
        }

    @pytest.mark.slow
    def test_a_task_that_fails_it_has_no_other_verdict_and_no_cheat_is_held_there(self, url: str) -> None:
        code, found = findings(url, "free")
        assert code == 1
        assert found["self-check two"] == "failed"
        assert (found["empty six"], found["gold six"]) == ("ok", "ok")
        assert "empty two" not in found
        assert "gold two" not in found
        assert found["cheats spoof-output: guess (two)"] == "not tried"
        assert found["cheats spoof-output: guess (six)"] == "held"

    @pytest.mark.slow
    def test_without_it_the_environment_is_judged_as_it_is(self, url: str) -> None:
        code, found = findings(url, "free", "--no-self-check")
        assert code == 1
        assert (found["empty two"], found["self-check two"]) == ("failed", "not applicable")
