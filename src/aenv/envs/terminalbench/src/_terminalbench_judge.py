"""The judge of version-1 tests: runs in the second part, by this instance's own Python, and says what came of it.

It is sent there as text, so it uses the standard library alone; pytest where this Python has it. Without pytest,
tests that are plain functions and methods are run all the same.
"""

from __future__ import annotations

import ast
import contextlib
import importlib.util
import inspect
import io
import os
import sys
import traceback
from typing import Any


def main(folder: str) -> dict[str, Any]:
    """`tests`: the outcome by name; `missing`: modules that the tests import and this Python has not."""
    files = sorted(
        os.path.join(place, name)
        for place, _, names in os.walk(folder)
        for name in names
        if name.startswith("test_") and name.endswith(".py")
    )
    sys.dont_write_bytecode = True
    missing = sorted({name for file in files for name in _missing(file, folder)})
    has_pytest = importlib.util.find_spec("pytest") is not None
    if missing == ["pytest"] or (missing and has_pytest):
        return {"tests": {}, "missing": missing, "output": "", "exit": -1}
    if has_pytest:
        return _with_pytest(folder, files)
    return _plainly(folder, files)


def _missing(file: str, folder: str) -> set[str]:
    """The modules that it cannot do without: those imported at its top."""
    with open(file, "rb") as text:
        tree = ast.parse(text.read(), file)
    names: set[str] = set()
    for node in tree.body:
        if isinstance(node, ast.Import):
            names |= {alias.name.partition(".")[0] for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            names.add(node.module.partition(".")[0])
    beside = {name.removesuffix(".py") for name in os.listdir(folder)}
    return {name for name in names - beside if importlib.util.find_spec(name) is None}


def _with_pytest(folder: str, files: list[str]) -> dict[str, Any]:
    import pytest

    found: dict[str, str] = {}

    class Listener:
        def pytest_runtest_logreport(self, report: Any) -> None:
            if report.when == "call" or report.outcome != "passed":
                failed = found.get(report.nodeid) == "failed" or report.outcome == "failed"
                expected = hasattr(report, "wasxfail") and not failed
                found[report.nodeid] = "failed" if failed else "xfailed" if expected else report.outcome

        def pytest_collectreport(self, report: Any) -> None:
            if report.failed:
                found[report.nodeid or folder] = "failed"

    options = [f"--rootdir={folder}", f"--confcutdir={folder}", "-c", os.devnull, "-rA", "--color=no"]
    options += ["-p", "no:cacheprovider", "-p", "no:randomly", "-p", "no:xdist"]
    os.environ["PYTEST_DISABLE_PLUGIN_AUTOLOAD"] = "1"
    with contextlib.redirect_stdout(io.StringIO()) as printed:
        code = pytest.main([*options, *files], plugins=[Listener()])
    return {"tests": found, "missing": [], "output": printed.getvalue(), "exit": int(code)}


def _plainly(folder: str, files: list[str]) -> dict[str, Any]:
    """Without pytest: every test function and method, which must need nothing from a fixture."""
    sys.path.insert(0, folder)
    found: dict[str, str] = {}
    with contextlib.redirect_stdout(io.StringIO()) as printed:
        for file in files:
            name = os.path.basename(file)
            try:
                spec = importlib.util.spec_from_file_location(name.removesuffix(".py"), file)
                assert spec
                assert spec.loader
                module = importlib.util.module_from_spec(spec)
                spec.loader.exec_module(module)
            except BaseException:  # boundary: the task's tests
                found[name] = "failed"
                print(f"ERROR {name}\n{traceback.format_exc()}")
                continue
            for label, test in _tests(module):
                outcome, text = _outcome(test)
                found[f"{name}::{label}"] = outcome
                print(f"{outcome.upper()} {name}::{label}{text}")
    failed = any(outcome == "failed" for outcome in found.values())
    return {"tests": found, "missing": [], "output": printed.getvalue(), "exit": int(failed or not found)}


def _tests(module: Any) -> list[tuple[str, Any]]:
    found = [
        (name, one) for name, one in vars(module).items() if name.startswith("test") and inspect.isfunction(one)
    ]
    for name, one in vars(module).items():
        if name.startswith("Test") and inspect.isclass(one):
            found += [
                (f"{name}::{inner}", getattr(one(), inner)) for inner in vars(one) if inner.startswith("test")
            ]
    return found


def _outcome(test: Any) -> tuple[str, str]:
    try:
        if inspect.signature(test).parameters:
            return "failed", "\nneeds a fixture: install pytest beside aenv"
        test()
    except BaseException:  # boundary: the task's tests
        return "failed", f"\n{traceback.format_exc()}"
    return "passed", ""
