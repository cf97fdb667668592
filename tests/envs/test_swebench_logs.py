"""Logs of test runs as SWE-bench writes them; what is expected was checked against PyPI's swebench 5.0.2.

With AENV_TEST_SWEBENCH=1 it is checked again, with a swebench that is installed for it (361 MB).
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import NamedTuple

import pytest

from tests.envs import swebench_data  # noqa: F401  makes the environment's modules importable

# isort: split
from swebench_logs import grade_log
from swebench_verdict import verdict

START, END = ">>>>> Start Test Output\n", "\n>>>>> End Test Output\n"


class Case(NamedTuple):
    """A log of a repository, the expected tests, and the verdict: success and failure of each list, or None."""

    name: str
    repo: str
    log: str
    f2p: list[str]
    p2p: list[str]
    resolved: bool
    f2p_failure: list[str]
    p2p_failure: list[str]
    is_valid: bool = True


PYTEST = (
    START
    + "PASSED t.py::a\nPASSED t.py::b[x y]\nFAILED t.py::c - assert 1 - 2\nERROR t.py::d\nXFAIL t.py::e"
    + END
)
CASES = [
    Case("all pass", "pallets/flask", PYTEST, ["t.py::a"], ["t.py::b[x", "t.py::e"], True, [], []),
    Case("one fails", "pallets/flask", PYTEST, ["t.py::a", "t.py::c"], [], False, ["t.py::c"], []),
    Case("an error breaks", "pallets/flask", PYTEST, ["t.py::a"], ["t.py::d"], False, [], ["t.py::d"]),
    Case("one is missing", "pallets/flask", PYTEST, ["t.py::zz"], [], False, ["t.py::zz"], []),
    Case(
        "a skipped test resolves nothing, and breaks nothing",
        "sphinx-doc/sphinx",
        f"{START}SKIPPED t.py::a\nSKIPPED [3] t.py:9: why\nPASSED t.py::b{END}",
        ["t.py::a"],
        ["t.py::a", "t.py::b"],
        False,
        ["t.py::a"],
        [],
    ),
    Case(
        "names that were cut",
        "astropy/astropy",
        f"{START}PASSED t.py::f[log(photon s)]\nPASSED t.py::f[log(photon t)]\nPASSED t.py::g[a 1]\n"
        f"FAILED t.py::g[a 2] - no{END}",
        ["t.py::f[log(photon"],
        ["t.py::g[a"],
        False,
        [],
        ["t.py::g[a"],
    ),
    Case(
        "statuses that come last, and colours",
        "scikit-learn/scikit-learn",
        f"{START}t.py::a PASSED\n\x1b[32mPASSED\x1b[0m t.py::b\x1b[0m\nFAILED t.py::c - x - y{END}",
        ["t.py::a", "t.py::b"],
        ["t.py::c"],
        False,
        [],
        ["t.py::c"],
    ),
    Case(
        "parameters that are paths",
        "psf/requests",
        f"{START}PASSED t.py::a[/home/me/x.txt]\nPASSED t.py::b[//h/x]\nPASSED t.py::c[*/x]{END}",
        ["t.py::a[/x.txt]"],
        ["t.py::b[//h/x]", "t.py::c[*/x]", "t.py::a[/home/me/x.txt]"],
        False,
        [],
        ["t.py::a[/home/me/x.txt]"],
    ),
    Case(
        "buttons by their numbers",
        "matplotlib/matplotlib",
        f"{START}PASSED t.py::a[MouseButton.LEFT-x]\nFAILED t.py::b[MouseButton.RIGHT] - no{END}",
        ["t.py::a[1-x]"],
        ["t.py::b[3]"],
        False,
        [],
        ["t.py::b[3]"],
    ),
    Case(
        "seaborn's two forms",
        "mwaskom/seaborn",
        f"{START}t.py::a PASSED  [ 10%]\nPASSED t.py::b\nFAILED t.py::c - no\nt.py::d FAILED [ 20%]{END}",
        ["t.py::a", "t.py::b"],
        ["t.py::c", "t.py::d"],
        False,
        [],
        ["t.py::c", "t.py::d"],
    ),
    Case(
        "Django's lines",
        "django/django",
        f"{START}test_a (m.C) ... ok\ntest_b (m.C)\nWhat it does. ... ok\ntest_c (m.C) ... FAIL\n"
        "test_d (m.C) ... ERROR\ntest_e (m.C) ... skipped 'why'\ntest_f (m.C) ... printed\nmore\nok\n"
        f"FAIL: test_c (m.C)\ntest_g (m.C) ... Internal Server Error: /x/\nok{END}",
        ["test_a (m.C)", "What it does.", "test_f (m.C)", "test_g (m.C)"],
        ["test_c (m.C)", "test_d (m.C)", "test_e (m.C)"],
        False,
        [],
        ["test_c (m.C)", "test_d (m.C)"],
    ),
    Case(
        "sympy's lines",
        "sympy/sympy",
        f"{START}test_a ok\ntest_b F\ntest_c E\ntest_d s\n____ sympy/x/tests/test_y.py:test_b ____{END}",
        ["test_a"],
        ["test_b", "test_c", "test_d", "sympy/x/tests/test_y.py:test_b"],
        False,
        [],
        ["test_b", "test_c", "test_d", "sympy/x/tests/test_y.py:test_b"],
    ),
    Case(
        "lines that say PASSED, and an exit code that does not",
        "pallets/flask",
        f"{START}PASSED t.py::a{END}>>>>> Test Exit Code: 1\n",
        ["t.py::a"],
        [],
        False,
        ["t.py::a"],
        [],
        is_valid=False,
    ),
    Case(
        "exit code 0",
        "pallets/flask",
        f"{START}PASSED t.py::a{END}>>>>> Test Exit Code: 0\n",
        ["t.py::a"],
        [],
        True,
        [],
        [],
    ),
    Case(
        "nothing ran",
        "pallets/flask",
        f"{START}no module named x{END}",
        ["a"],
        [],
        False,
        ["a"],
        [],
        is_valid=False,
    ),
    Case(
        "too long",
        "pallets/flask",
        f"{PYTEST}>>>>> Tests Timed Out\n",
        ["t.py::a"],
        [],
        False,
        ["t.py::a"],
        [],
        is_valid=False,
    ),
    Case(
        "cut short",
        "pallets/flask",
        f"{START}PASSED t.py::a\n",
        ["t.py::a"],
        [],
        False,
        ["t.py::a"],
        [],
        is_valid=False,
    ),
]
JUDGE = """
import json, sys, tempfile
from swebench.harness.grading import get_eval_report
from swebench.harness.log_parsers.python import MAP_REPO_TO_PARSER_PY
from swebench.harness.log_parsers import PARSER_REGISTRY
from swebench.types import TestSpec
for case in json.load(sys.stdin):
    PARSER_REGISTRY["ours"] = MAP_REPO_TO_PARSER_PY[case["repo"]]
    spec = TestSpec("i", "", [], case["repo"], "", case["f2p"], case["p2p"], "ours", "pass_and_fail")
    with tempfile.NamedTemporaryFile("w") as log:
        log.write(case["log"]); log.flush()
        report = get_eval_report(spec, {"instance_id": "i", "model_patch": "x"}, log.name, True)["i"]
    tests = report.get("tests_status", {})
    failures = [tests.get(name, {}).get("failure") for name in ("FAIL_TO_PASS", "PASS_TO_PASS")]
    print(json.dumps([report["resolved"], *failures]))
"""


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_a_log_is_judged_as_the_benchmark_judges_it(case: Case) -> None:
    grade = grade_log(case.log, case.repo, case.f2p, case.p2p)
    assert bool(grade.invalid) != case.is_valid
    assert grade.is_resolved == case.resolved
    assert grade.verdict.fail_to_pass.failure == case.f2p_failure
    assert grade.verdict.pass_to_pass.failure == case.p2p_failure


def test_a_verdict_on_no_tests_resolves_nothing() -> None:
    assert not verdict({"a": "PASSED"}, [], []).is_resolved


@pytest.mark.slow  # installs the benchmark's own package
@pytest.mark.timeout(600)
@pytest.mark.skipif(
    os.environ.get("AENV_TEST_SWEBENCH") != "1", reason="installs 361 MB; set AENV_TEST_SWEBENCH=1"
)
def test_the_benchmarks_own_grader_says_the_same(tmp_path: Path) -> None:
    python = tmp_path / "venv" / "bin" / "python"
    uv = str(Path(sys.executable).parent / "uv")
    subprocess.run([uv, "venv", "--quiet", "--python", sys.executable, str(tmp_path / "venv")], check=True)
    subprocess.run([uv, "pip", "install", "--quiet", "--python", str(python), "swebench==5.0.2"], check=True)
    asked = json.dumps([case._asdict() for case in CASES])
    done = subprocess.run([python, "-c", JUDGE], input=asked, capture_output=True, text=True, check=True)
    theirs = [json.loads(line) for line in done.stdout.splitlines()]
    ours = [
        [case.resolved, *((case.f2p_failure, case.p2p_failure) if case.is_valid else (None, None))]
        for case in CASES
    ]
    assert [*zip((case.name for case in CASES), theirs, strict=True)] == [
        *zip((case.name for case in CASES), ours, strict=True)
    ]
