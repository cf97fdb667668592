"""The judge of version-1 tests: runs in the sidecar, by this instance's own Python, and says what came of it.

It is sent there as text, so it uses the standard library alone, and pytest, which is one of the requirements of a
task of a data folder. For tasks of our own, which need no network, tests that are plain functions and methods are
run without it where this Python has none.
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


def main(folder: str, workdir: str = "/", runs: bool = True) -> dict[str, Any]:
    """`tests`: the outcome by name; `missing`: modules that the tests import and this Python has not.

    `stamps`: what the folder's files were before, `changed`: those that were others afterwards. Without `runs` the
    stamps alone.
    """
    stamps = _stamps(folder)
    if not runs:
        return {"stamps": stamps}
    files = sorted(
        os.path.join(place, name)
        for place, _, names in os.walk(folder)
        for name in names
        if name.startswith("test_") and name.endswith(".py")
    )
    sys.dont_write_bytecode = True
    # Nothing in the folder where the tests run may stand for a module of ours; what the image names comes last.
    sys.path[:] = [*filter(None, sys.path), *filter(None, os.environ.get("PYTHONPATH", "").split(":"))]
    with contextlib.suppress(OSError):
        os.chdir(workdir)
    pytest = importlib.util.find_spec("pytest")
    trees = [_parsed(file) for file in files]
    missing = {name for tree in trees for name in _missing(tree, folder)}
    if pytest is None and (os.path.exists(f"{folder}/conftest.py") or not all(map(_is_plain, trees))):
        missing.add("pytest")
    if missing:
        place = os.path.dirname(os.path.dirname(pytest.origin)) if pytest and pytest.origin else ""
        return {"missing": sorted(missing), "pytest": place}
    said = _with_pytest(folder, files) if pytest else _plainly(folder, files)
    after = _stamps(folder)
    changed = sorted(path for path, stamp in stamps.items() if after.get(path) != stamp)
    return {**said, "missing": [], "stamps": stamps, "changed": changed}


def _stamps(folder: str) -> dict[str, list[int]]:
    """Of everything below but folders: kind and mode, names, number, and last change, which no code can set."""
    found = {}
    for place, _, names in os.walk(folder):
        for name in names:
            facts = os.lstat(os.path.join(place, name))
            path = os.path.relpath(os.path.join(place, name), folder)
            found[path] = [facts.st_mode, facts.st_nlink, facts.st_ino, facts.st_ctime_ns]
    return found


def _parsed(file: str) -> ast.Module:
    with open(file, "rb") as text:
        return ast.parse(text.read(), file)


def _missing(tree: ast.Module, folder: str) -> set[str]:
    """The modules that it cannot do without: those imported at its top."""
    names: set[str] = set()
    for node in tree.body:
        if isinstance(node, ast.Import):
            names |= {alias.name.partition(".")[0] for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            names.add(node.module.partition(".")[0])
    beside = {name.removesuffix(".py") for name in os.listdir(folder)}
    return {name for name in names - beside if importlib.util.find_spec(name) is None}


def _is_plain(tree: ast.Module) -> bool:
    """Whether calling its functions is all there is to do: no fixtures, set-ups, coroutines."""
    for node in ast.walk(tree):
        if isinstance(node, ast.ClassDef) and node.name.startswith("Test") and node.bases:
            return False
        if not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            continue
        if node.name.lower().startswith(("setup", "teardown", "set_up")):
            return False
        if node.name.startswith("test"):
            given = [argument.arg for argument in (*node.args.posonlyargs, *node.args.args, *node.args.kwonlyargs)]
            yields = any(isinstance(inner, ast.Yield | ast.YieldFrom) for inner in ast.walk(node))
            if isinstance(node, ast.AsyncFunctionDef) or yields or given not in ([], ["self"]):
                return False
    return True


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
    options += [
        word for name in _plugins(os.path.dirname(os.path.dirname(pytest.__file__))) for word in ("-p", name)
    ]
    os.environ["PYTEST_DISABLE_PLUGIN_AUTOLOAD"] = "1"
    with contextlib.redirect_stdout(io.StringIO()) as printed:
        code = pytest.main([*options, *files], plugins=[Listener()])
    return {"tests": found, "output": printed.getvalue(), "exit": int(code)}


def _plugins(folder: str) -> list[str]:
    """The plugins that the task's own scripts install; not those that lie beside aenv by chance."""
    if folder.startswith(sys.prefix):
        return []
    import importlib.metadata

    found = importlib.metadata.distributions(path=[folder])
    return sorted({entry.value for one in found for entry in one.entry_points if entry.group == "pytest11"})


def _plainly(folder: str, files: list[str]) -> dict[str, Any]:
    """Without pytest: every test function and method of plain tests."""
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
    return {"tests": found, "output": printed.getvalue(), "exit": int(failed or not found)}


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
        test()
    except BaseException:  # boundary: the task's tests
        return "failed", f"\n{traceback.format_exc()}"
    return "passed", ""
