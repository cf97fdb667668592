"""Verdicts on patches: the reference solution resolves, nothing else does, and no trick passes for one."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path, PurePosixPath
from typing import Any

import pytest

from tests.envs.swebench_data import GOLD, RECORD, SKIPPED
from tests.envs.swebench_places import added, make_place

# isort: split
import _swebench_confine as confine
import swebench_cheats as cheats
import swebench_patches as patches
import swebench_sites as sites
from swebench_grading import Grade, Grader
from swebench_records import Record, record_of
from swebench_runs import Place, understood

SOURCE = "toolz/itertoolz.py"
# Solves nothing, and is no trick either.
HARMLESS = patches.diff("toolz/more.py", None, b"x = 1\n", False, False)

pytestmark = [
    pytest.mark.skipif(confine.landlock_version() < 2, reason="this kernel has no landlock"),
    pytest.mark.slow,
]

Judge = Callable[..., Grade]


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory, request: pytest.FixtureRequest) -> Place:
    assert request.config.cache is not None
    return make_place(tmp_path_factory.mktemp("place"), request.config.cache)


@pytest.fixture(scope="module")
def judge(place: Place) -> Judge:
    """`judge(patch)` gives the verdict on it."""
    graders: dict[tuple[Record, Place], Grader] = {}  # what they know of the solution, they know for all

    def judged(patch: str, timeout: float = 60, place: Place = place, **changes: Any) -> Grade:
        record = record_of({**RECORD, **changes})
        grade = graders.setdefault((record, place), Grader(record, place)).grade(patch, timeout)
        assert [*place.work.glob("*")] == []
        return grade

    return judged


def before(place: Place, code: str, path: str = SOURCE) -> str:
    """A patch that puts code before that of a file."""
    old = (place.base / path).read_bytes()
    return patches.diff(path, old, code.encode() + b"\n" + old, False, False)


def within(place: Place, code: str) -> str:
    """A patch that puts code into the function with the problem, for the calls that show it."""
    old = (place.base / SOURCE).read_text()
    new = old.replace("        return seq[-n:]\n", f"        if n == 0:\n{code}        return seq[-n:]\n")
    return patches.diff(SOURCE, old.encode(), new.encode(), False, False)


def test_the_reference_solution_resolves(judge: Judge) -> None:
    grade = judge(GOLD)
    assert grade.is_resolved, grade.output
    report = grade.report()
    assert report["reward"] == 1.0
    assert report["returncode"] == 0
    assert json.loads(report["stdout"])["pytoolz__toolz-1"]["resolved"] is True


@pytest.mark.parametrize("patch", ["", pytest.param(HARMLESS, marks=pytest.mark.slow)], ids=["empty", "harmless"])
def test_what_solves_nothing_does_not_resolve(judge: Judge, patch: str) -> None:
    grade = judge(patch)
    assert not grade.is_resolved
    assert not grade.invalid
    assert not grade.why_not
    assert grade.verdict.fail_to_pass.failure == RECORD["FAIL_TO_PASS"]
    assert grade.verdict.pass_to_pass.success == RECORD["PASS_TO_PASS"]
    assert grade.report()["returncode"] == 1


def test_a_solution_that_breaks_something_else_does_not_resolve(judge: Judge, place: Place) -> None:
    text = (place.base / SOURCE).read_text()
    new = text.replace("return itertools.islice(seq, n, None)", "return []").replace(
        "seq[-n:]", "seq[len(seq) - n:]"
    )
    grade = judge(patches.diff(SOURCE, text.encode(), new.encode(), False, False))
    assert not grade.is_resolved
    assert grade.verdict.fail_to_pass.failure == []
    assert grade.verdict.pass_to_pass.failure == ["toolz/tests/test_itertoolz.py::test_drop"]


def test_a_skipped_test_is_no_solution_and_no_step_back(judge: Judge) -> None:
    grade = judge(GOLD, FAIL_TO_PASS=[SKIPPED])
    assert not grade.is_resolved
    assert grade.verdict.fail_to_pass.failure == [SKIPPED]
    kept = judge(GOLD, PASS_TO_PASS=[SKIPPED])
    assert kept.is_resolved, kept.output
    assert kept.verdict.pass_to_pass.success == [SKIPPED]


def test_a_patch_that_does_not_apply_does_not_resolve_and_says_why(judge: Judge) -> None:
    grade = judge(GOLD.replace("seq[-n:]", "seq[-m:]"))
    assert not grade.is_resolved
    assert "does not apply" in grade.report()["why"]


# Tricks: each would win, if what it forges were believed.

_ALWAYS = "def test_tail(): pass\ndef test_take(): pass\ndef test_drop(): pass\n"
# To the log itself: what tests print is kept from it.
_PRINT = f"""
import os
for number in os.listdir("/proc/self/fd"):
    try:
        if os.readlink("/proc/self/fd/" + number).endswith("/output"):
            for test in {RECORD["FAIL_TO_PASS"] + RECORD["PASS_TO_PASS"]!r}:
                os.write(int(number), ("PASSED " + test + "\\n").encode())
    except OSError:
        pass
"""
_GREEDY = """
import pytest
@pytest.hookimpl(tryfirst=True)
def pytest_runtest_call(item):
    item.obj = lambda *a, **k: None
"""
_SPEAK = """
import os, sys
frame = sys._getframe()
while frame:
    if "say" in frame.f_locals and "order" in frame.f_locals:
        say, order = frame.f_locals["say"], frame.f_locals["order"]
        say({"event": "collected", "count": len(order["expected"])})
        for test in order["expected"]:
            say({"event": "outcome", "names": [test], "status": "PASSED"})
        for test in order["canaries"]:
            say({"event": "outcome", "names": [test], "status": "FAILED"})
        say({"event": "end", "code": 1})
        os._exit(1)
    frame = frame.f_back
"""
_NOTHING = "nothing shows that tests ran"
IN_SOURCE = {
    "exit 0": ("import sys; sys.exit(0)", _NOTHING),
    "exit at once": ("import os; os._exit(0)", _NOTHING),
    "print PASSED": (_PRINT + "os._exit(0)", "ended early, with exit code 0"),
    "print PASSED, and exit as if one had failed": (_PRINT + "os._exit(1)", "ended early, with exit code 1"),
    "print PASSED, and end pytest": (_PRINT + "import pytest; pytest.exit('done', returncode=1)", "tests"),
    "print that pytest is missing": (
        "import os; os.write(2, b'No module named pytest\\n'); os._exit(1)",
        _NOTHING,
    ),
    "rewire pytest": (cheats._REWIRE, "has changed what decides"),
    "rewire and put back": (
        "import _pytest.python as p\nfrom unittest import mock\n"
        "p.Function.runtest.__code__ = (lambda self: None).__code__\n",
        "has changed what decides",
    ),
    "forge the report": (_PRINT + cheats._FORGE.replace("TESTS", "['a']"), "something else than the runner"),
    "register a plugin": (cheats._PLUGIN, "has decided about outcomes"),
    "speak in the runner's place": (_SPEAK + _PRINT + "os._exit(1)", "has decided about outcomes"),
    "disable assertions": ("import builtins; builtins.AssertionError = type('Never', (BaseException,), {})", ""),
    "a hook at exit": (f"import atexit\ndef forge():\n    exec({_PRINT!r})\natexit.register(forge)", "watched"),
    "kill the parent": ("import os; os.kill(os.getppid(), 9); os.killpg(0, 9)", ""),
}
FILES = [
    ("conftest.py", _GREEDY),
    ("toolz/tests/conftest.py", _GREEDY),
    ("pytest.ini", "[pytest]\naddopts = --collect-only\n"),
    ("evil-1.egg-info/entry_points.txt", "[pytest11]\nevil = toolz.evil\n"),
    ("pytest.py", "import os\nos._exit(1)\n"),
    ("sitecustomize.py", "import os\nos._exit(1)\n"),
    ("toolz/tests/test_tail.py/__init__.py", "a folder in the place of tests"),
]


# Each costs a verdict or two: the first few every day, the rest with the slow ones.
_EVERY_DAY = ("print PASSED", "rewire pytest")


@pytest.mark.parametrize(
    "name", [name if name in _EVERY_DAY else pytest.param(name, marks=pytest.mark.slow) for name in IN_SOURCE]
)
def test_tested_code_cannot_pass_itself_off_as_solved(judge: Judge, place: Place, name: str) -> None:
    code, why = IN_SOURCE[name]
    grade = judge(before(place, code))
    assert not grade.is_resolved
    assert why in grade.why_not
    assert not grade.invalid  # the patch is to blame, and not the place


_XFAIL = "            import pytest; pytest.xfail('known')\n"
_MARK = """\
            import sys, pytest
            frame = sys._getframe()
            while frame:
                if "item" in frame.f_locals:
                    frame.f_locals["item"].add_marker(pytest.mark.xfail)
                frame = frame.f_back
"""


@pytest.mark.parametrize("code", [_XFAIL, pytest.param(_MARK, marks=pytest.mark.slow)], ids=["raised", "marked"])
def test_tested_code_cannot_have_its_failures_expected(judge: Judge, place: Place, code: str) -> None:
    grade = judge(within(place, code))
    assert "has decided about outcomes" in grade.why_not
    assert not grade.is_resolved


@pytest.mark.slow  # three verdicts
def test_tested_code_cannot_have_what_it_breaks_skipped(judge: Judge, place: Place) -> None:
    text = (place.base / SOURCE).read_text().replace("seq[-n:]", "seq[len(seq) - n:]")
    skips = "import pytest; pytest.skip('broken')"
    new = text.replace("return itertools.islice(seq, n, None)", skips)
    assert new != text
    grade = judge(patches.diff(SOURCE, (place.base / SOURCE).read_bytes(), new.encode(), False, False))
    assert "has decided about outcomes: toolz/tests/test_itertoolz.py::test_drop" in grade.why_not


@pytest.mark.slow  # three verdicts
def test_a_test_that_is_expected_to_fail_by_its_own_file_still_counts(judge: Judge, place: Place) -> None:
    tests = "import pytest\nfrom toolz import tail\n\n\n"
    tests += "def test_tail():\n    assert tail(0, 'a') == ''\n\n\n"
    tests += "@pytest.mark.xfail\ndef test_not_yet():\n    assert tail(-1, 'abc') == 'a'\n\n\n"
    tests += "def test_ends_early():\n    if tail(1, 'ab') == 'b':\n        return\n    assert 0\n"
    names = [f"toolz/tests/test_more.py::{name}" for name in ("test_tail", "test_not_yet", "test_ends_early")]
    honest = within(place, "            return seq[:0]\n")
    assert honest != GOLD
    record = {"FAIL_TO_PASS": names[:1], "PASS_TO_PASS": names[1:]}
    grade = judge(honest, test_patch=added("toolz/tests/test_more.py", tests), **record)
    assert grade.is_resolved, (grade.why_not, grade.output)


def test_tested_code_cannot_rewrite_the_tests_that_are_read_after_it(judge: Judge, place: Place) -> None:
    code = (
        "import pathlib\nfor path in pathlib.Path('toolz/tests').glob('test_*.py'):\n"
        "    path.write_text(path.read_text().replace(\"assert tail(0, seq) == ''\", 'tail(0, seq)'))\n"
    )
    tests = {"PASS_TO_PASS": RECORD["PASS_TO_PASS"][:1], "FAIL_TO_PASS": RECORD["FAIL_TO_PASS"][1:]}
    # The first file of all imports what is tested.
    tests["FAIL_TO_PASS"] = tests["PASS_TO_PASS"] + tests["FAIL_TO_PASS"]
    grade = judge(before(place, code), **tests)
    assert grade.verdict.is_resolved  # by its tests it would win
    assert "has changed what decides about outcomes: toolz/tests/test_tail.py" in grade.why_not


def test_a_process_that_never_holds_still_ends_with_the_tests(judge: Judge, place: Place) -> None:
    # Each lives too briefly to be found by its number. It would keep the report open, and the verdict waiting.
    code = (
        "import os, time\nif os.fork() == 0:\n    os.setsid()\n    end = time.time() + 60\n"
        "    while time.time() < end:\n        if os.fork():\n            os._exit(0)\n    os._exit(0)\n"
    )
    grade = judge(before(place, code))
    assert grade.verdict.fail_to_pass.failure == RECORD["FAIL_TO_PASS"]


def test_what_is_no_patch_is_not_taken_for_an_empty_one(judge: Judge) -> None:
    assert "not a unified diff" in judge("I have solved it.").why_not


def test_files_that_steer_tests_do_not_count(judge: Judge) -> None:
    every = "".join(added(*file) for file in FILES)
    grade = judge(every)
    assert not grade.is_resolved
    assert grade.sealed == sorted(path for path, _ in FILES)
    assert grade.verdict.pass_to_pass.success == RECORD["PASS_TO_PASS"]
    # And an honest solution does not suffer from them.
    assert judge(GOLD + every).is_resolved


@pytest.mark.slow  # two verdicts
def test_tests_that_a_patch_rewrites_or_removes_are_put_back(judge: Judge, place: Place) -> None:
    path = "toolz/tests/test_itertoolz.py"
    old = (place.base / path).read_bytes()
    for new in (_ALWAYS.encode(), None):
        grade = judge(patches.diff(path, old, new, False, False))
        assert grade.verdict.fail_to_pass.failure == RECORD["FAIL_TO_PASS"]
        assert grade.sealed == [path]


def test_tested_code_cannot_read_the_answer(judge: Judge, place: Place) -> None:
    # Only in our own data: the processes of this machine are none of a test's business.
    trick = before(place, cheats.peek(PurePosixPath(SOURCE), str(place.base.parent / "data"), "/nowhere"))
    # Where it is not shut in, it wins: so it is the walls that hold it.
    assert judge(trick, place=replace(place, is_confined=False)).is_resolved
    assert not judge(trick).is_resolved


@pytest.mark.slow  # it waits for a time limit
def test_tests_that_take_too_long_are_ended_with_all_that_they_started(judge: Judge, place: Place) -> None:
    mark = place.work.parent / "base" / "toolz"  # a path that only our processes name
    code = (
        "import subprocess, sys, time\n"
        f"words = [sys.executable, '-c', 'import time; time.sleep(600)', {str(mark)!r}]\n"
        "subprocess.Popen(words, start_new_session=True)\n"
        "time.sleep(600)\n"
    )
    grade = judge(before(place, code), timeout=6)
    assert grade.why_not == "the tests took too long"
    assert not grade.invalid
    commands = [path.read_bytes() for path in Path("/proc").glob("[0-9]*/cmdline") if _is_there(path)]
    assert [command for command in commands if str(mark).encode() in command and b"sleep(600)" in command] == []


def _is_there(path: Path) -> bool:
    try:
        return bool(path.read_bytes())
    except OSError:
        return False


def test_without_evidence_that_tests_ran_there_is_no_verdict(judge: Judge, place: Place, tmp_path: Path) -> None:
    bare = sites.build(record_of(RECORD), [tmp_path], tmp_path / "site", place.tree)
    without = replace(place, python=bare.python, readable=(*place.readable, tmp_path))
    grade = judge(GOLD, place=without)
    assert not grade.is_resolved
    why = "packages are missing: pytest; run 'aenv data prepare swebench --instances pytoolz__toolz-1'"
    assert why in grade.not_ready
    assert "FAIL_TO_PASS and PASS_TO_PASS are empty" in judge(GOLD, FAIL_TO_PASS=[], PASS_TO_PASS=[]).invalid
    assert "does not fit its base" in judge(GOLD, test_patch=GOLD + GOLD).invalid


@pytest.mark.parametrize(
    ("lines", "said"),
    [
        ([{"key": "k", "number": 0}, {"key": "k", "number": 2}], "something else"),
        ([{"key": "x", "number": 0}], "something else"),
        (["no record"], "something else"),
        ([{"key": "k", "number": 0}], ""),
    ],
)
def test_a_report_that_somebody_else_has_written_into_is_not_believed(lines: list[Any], said: str) -> None:
    text = "".join(json.dumps(line) + "\n" for line in lines)
    assert said in understood(text.encode(), "k", []).forged
    assert "not whole" in understood(b'{"key": "k", "number": 0}', "k", []).forged
