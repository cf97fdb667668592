"""Runs of tests: by the repository's own runner, in a process that holds nothing of ours; controls only refuse."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from tests.envs.swebench_places import SOLUTION, added, make_place, small, with_pytest

# isort: split
import _swebench_confine as confine
import swebench_patches as patches
from swebench_grading import Grader
from swebench_runs import Place

pytestmark = [
    pytest.mark.skipif(confine.landlock_version() < 2, reason="this kernel has no landlock"),
    pytest.mark.slow,
]


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory, request: pytest.FixtureRequest) -> Place:
    assert request.config.cache is not None
    return make_place(tmp_path_factory.mktemp("place"), request.config.cache)


# As sympy's own prints it.
BIN_TEST = """\
import importlib, sys, traceback

failures = 0
for file in (word for word in sys.argv[1:] if word[0] != "-"):
    sys.path.insert(0, "")
    module = importlib.import_module(file[:-3].replace("/", "."))
    for name, test in list(vars(module).items()):
        if name.startswith("test_"):
            said = "ok"
            try:
                test()
            except AssertionError:
                said, failures = "F", failures + 1
            except Exception as error:
                said = "s" if type(error).__name__ == "Skipped" else "E"
            print(name, said)
sys.exit(bool(failures))
"""
SYMPY = {
    "bin/test": BIN_TEST,
    "pkg/__init__.py": "",
    "pkg/core.py": "def double(n):\n    return n\n",
    "pkg/tests/__init__.py": "",
}
SYMPY_TESTS = """\
class Skipped(Exception):
    pass

from pkg.core import double

def test_double():
    assert double(2) == 4

def test_zero():
    assert double(0) == 0

def test_skip():
    raise Skipped

def test_other():
    assert False
"""
RUNTESTS = """\
import sys
import unittest

names = [word for word in sys.argv[1:] if word[0] != "-" and word not in ("1", "2")]
suite = unittest.defaultTestLoader.loadTestsFromNames(names)
sys.exit(not unittest.TextTestRunner(verbosity=2).run(suite).wasSuccessful())
"""
DJANGO_TESTS = """\
import unittest

from pkg.core import double


class Doubles(unittest.TestCase):
    def test_double(self):
        self.assertEqual(double(2), 4)

    def test_described(self):
        \"\"\"Zero stays.\"\"\"
        self.assertEqual(double(0), 0)

    def test_parts(self):
        for n in (0, 3):
            with self.subTest(n=n):
                self.assertEqual(double(n), 2 * n)
"""


def test_sympys_tests_are_functions_by_their_bare_names(place: Place, tmp_path: Path) -> None:
    grader = small(
        place,
        tmp_path,
        SYMPY,
        repo="sympy/sympy",
        test_patch=added("pkg/tests/test_core.py", SYMPY_TESTS),
        FAIL_TO_PASS=["test_double"],
        PASS_TO_PASS=["test_zero"],
    )
    assert grader.grade(SOLUTION, 60).is_resolved
    empty = grader.grade("", 60)
    assert empty.verdict.fail_to_pass.failure == ["test_double"]
    assert empty.verdict.pass_to_pass.failure == []
    forged = "import os; print('test_double ok'); print('test_zero ok', flush=True); os._exit(1)"
    exits = SOLUTION.replace("+1,2", "+1,3").replace("2 * n", f"n\n+{forged}")
    assert "ended early" in grader.grade(exits, 60).why_not


def test_tests_of_the_same_name_in_two_files_both_count(place: Place, tmp_path: Path) -> None:
    files = ("pkg/tests/test_core.py", "pkg/tests/test_more.py")
    grader = small(
        place,
        tmp_path,
        SYMPY,
        repo="sympy/sympy",
        test_patch="".join(added(file, SYMPY_TESTS) for file in files),
        FAIL_TO_PASS=["test_double"],
        PASS_TO_PASS=["test_zero"],
    )
    grade = grader.grade(SOLUTION, 60)
    assert grade.is_resolved, grade.why_not


@pytest.mark.slow  # three verdicts
def test_djangos_tests_go_by_method_and_class_or_by_their_description(place: Place, tmp_path: Path) -> None:
    grader = small(
        place,
        tmp_path,
        {"pkg/__init__.py": "", "pkg/core.py": SYMPY["pkg/core.py"], "tests/runtests.py": RUNTESTS},
        repo="django/django",
        test_patch=added("tests/test_core.py", DJANGO_TESTS),
        FAIL_TO_PASS=["test_double (test_core.Doubles)", "test_parts (test_core.Doubles.test_parts)"],
        PASS_TO_PASS=["Zero stays."],
    )
    grade = grader.grade(SOLUTION, 60)
    assert grade.is_resolved, (grade.why_not, grade.output)
    empty = grader.grade("", 60)
    assert len(empty.verdict.fail_to_pass.failure) == 2
    assert empty.verdict.pass_to_pass.success == ["Zero stays."]
    rewire = "import unittest; unittest.TestCase.run = lambda self, result: result.addSuccess(self)"
    rewired = SOLUTION.replace("+1,2", "+1,3").replace("2 * n", f"n\n+{rewire}")
    assert "has changed what decides" in grader.grade(rewired, 60).why_not


def test_what_a_log_shows_and_is_no_test_is_not_asked_of_a_control(place: Place, tmp_path: Path) -> None:
    tests = "from pkg.core import double\n\n\ndef test_double():\n    print('PASSED [100%]---')\n"
    grader = small(
        place,
        tmp_path,
        {"pkg/__init__.py": "", "pkg/core.py": SYMPY["pkg/core.py"]},
        test_patch=added("test_core.py", f"{tests}    assert double(2) == 4\n"),
        FAIL_TO_PASS=["test_core.py::test_double"],
        PASS_TO_PASS=["[100%]---"],
    )
    grade = grader.grade(SOLUTION, 60)
    assert grade.is_resolved, (grade.why_not, grade.invalid, grade.output)
    assert not grader.grade("", 60).is_resolved


def test_a_runner_of_the_repositorys_own_that_lacks_packages_is_not_ready_here(
    place: Place, tmp_path: Path
) -> None:
    # As pytest's own records are: the tree has it, and not what it needs.
    grader = small(
        replace(place, missing="pluggy"),
        tmp_path,
        {"pytest.py": "import absent\n", "pkg/core.py": SYMPY["pkg/core.py"]},
        test_patch=added("test_core.py", "def test_double():\n    assert 0\n"),
        FAIL_TO_PASS=["test_core.py::test_double"],
        PASS_TO_PASS=[],
    )
    grade = grader.grade(SOLUTION, 60)
    assert not grade.invalid
    assert "no test could run, and packages are missing: pluggy; run 'aenv data prepare" in grade.not_ready


# The process that decides holds nothing of ours

LOADED = """\
import sys


def is_ready(module):
    return module in sys.modules
"""
LOADED_GOLD = patches.diff(
    "pkg/core.py",
    LOADED.encode(),
    b"import importlib\n\n\ndef is_ready(module):\n    return bool(importlib.import_module(module))\n",
    False,
    False,
)


@pytest.fixture(scope="module")
def lean(place: Place, tmp_path_factory: pytest.TempPathFactory, request: pytest.FixtureRequest) -> Place:
    """With a pytest that does not import unittest by itself."""
    assert request.config.cache is not None
    return with_pytest("7.1.2", place, tmp_path_factory.mktemp("lean"), request.config.cache)


def loaded(lean: Place, tmp_path: Path, condition: str) -> Grader:
    """A repository whose test fails on its base, unless something has been imported before."""
    tests = f"import sys\n\nfrom pkg.core import is_ready\n\n\ndef test_ready():\n    assert {condition}\n"
    return small(
        lean,
        tmp_path,
        {"pkg/__init__.py": "", "pkg/core.py": LOADED},
        patch=LOADED_GOLD,
        test_patch=added("test_core.py", tests),
        FAIL_TO_PASS=["test_core.py::test_ready"],
        PASS_TO_PASS=[],
    )


@pytest.mark.parametrize("module", ["unittest.case", "_swebench_runner", "json.tool"])
def test_a_test_that_depends_on_what_is_loaded_fails_on_the_base(lean: Place, tmp_path: Path, module: str) -> None:
    grade = loaded(lean, tmp_path, f"is_ready({module!r})").grade("", 60)
    assert not grade.is_resolved
    assert grade.verdict.fail_to_pass.failure == ["test_core.py::test_ready"]


def test_a_control_loads_no_unittest_before_the_tests(lean: Place, tmp_path: Path) -> None:
    early = "('unittest.case' in sys.modules) is False and is_ready('json.tool')"
    grade = loaded(lean, tmp_path, early).grade(LOADED_GOLD, 60)
    assert grade.is_resolved, (grade.why_not, grade.invalid, grade.output)


def test_where_a_control_changes_the_outcome_of_the_solution_nothing_can_be_said(
    lean: Place, tmp_path: Path
) -> None:
    grader = loaded(lean, tmp_path, "'_swebench_runner' not in sys.modules and is_ready('json.tool')")
    other = LOADED_GOLD.replace("import importlib\n", "import importlib  # the same\n")
    assert other != LOADED_GOLD
    for patch in (LOADED_GOLD, other):
        report = grader.grade(patch, 60).report()
        assert report["resolved"] is False
        assert "the control refuses the reference solution as well" in report["invalid"]
    assert "invalid" not in grader.grade("", 60).report()


def test_a_patch_that_only_passes_while_it_is_not_watched_is_not_resolved(lean: Place, tmp_path: Path) -> None:
    grader = loaded(lean, tmp_path, "is_ready('json.tool')")
    shy = LOADED_GOLD.replace(
        "bool(importlib", "'_swebench_runner' not in __import__('sys').modules and bool(importlib"
    )
    grade = grader.grade(shy, 60)
    assert not grade.is_resolved
    assert not grade.invalid
    assert "not when they are watched: test_core.py::test_ready" in grade.why_not
