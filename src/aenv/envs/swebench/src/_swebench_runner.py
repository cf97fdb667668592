"""Runs the tests of an instance in a process of its own, and says on a pipe how each ended: a control.

A control only refuses. The outcomes are those of a plain run, which nothing of this takes part in: modules that
are loaded before the tests change what some tests do. So nothing is imported here that pytest may never import.

It runs under the interpreter of the tested project, which may be as old as Python 3.5: hence the syntax. The
tested code is in the same process and cannot be shut out of it; but what it prints counts for nothing, what it
writes to the pipe lacks the key, ending the process leaves no last word, and code that decides about outcomes is
watched. Imported by the grader too, for the names of tests.

Not here: whether the outcomes resolve the instance (`swebench_verdict.py`).
"""

import json
import os
import re
import sys
from typing import Any

PASSED, FAILED, SKIPPED, ERROR, XFAIL, XPASS = "PASSED", "FAILED", "SKIPPED", "ERROR", "XFAIL", "XPASS"

# What decides about outcomes in pytest and unittest, as module, class or "", function.
_DECIDING = (
    ("_pytest.runner", "", "runtestprotocol"),
    ("_pytest.runner", "", "call_and_report"),
    ("_pytest.runner", "", "call_runtest_hook"),
    ("_pytest.runner", "", "pytest_runtest_call"),
    ("_pytest.runner", "", "pytest_runtest_makereport"),
    ("_pytest.runner", "CallInfo", "from_call"),
    ("_pytest.reports", "TestReport", "from_item_and_call"),
    ("_pytest.reports", "TestReport", "__init__"),
    ("_pytest.python", "", "pytest_pyfunc_call"),
    ("_pytest.python", "Function", "runtest"),
    ("_pytest.unittest", "TestCaseFunction", "runtest"),
    ("unittest.case", "TestCase", "run"),
    ("unittest.case", "TestCase", "__call__"),
    ("unittest.case", "TestCase", "fail"),
    ("unittest.case", "TestCase", "assertEqual"),
    ("unittest.case", "TestCase", "assertTrue"),
)


def names_of(name: str, repo: str = "") -> "list[str]":
    """The names that data sets have for a test of pytest's: logs cut them at blanks, and some change them."""
    if repo == "matplotlib/matplotlib":
        name = name.replace("MouseButton.LEFT", "1").replace("MouseButton.RIGHT", "3")
    words = name.split() or [""]
    found = [name, " ".join(words), words[0]]
    option = re.match(r"(.*?)\[(/[^/*][^*]*)\]$", words[0])
    if option:
        found.append(option.group(1) + "[/" + option.group(2).split("/")[-1] + "]")
    return list(dict.fromkeys(found))


def unittest_names(name: str) -> "list[str]":
    """A test's name as it is, as Python 3.11 has it, and as those before it do."""
    match = re.match(r"(\w+) \((.*)\)$", name)
    found = [name]
    if match:
        method, owner = match.groups()
        short = owner[: -len(method) - 1] if owner.endswith("." + method) else owner
        found += [method + " (" + short + ")", method + " (" + short + "." + method + ")"]
    return list(dict.fromkeys(found))


def is_cut(expected: str) -> bool:
    """Whether an expected name ends within its parameters."""
    return expected.count("[") > expected.count("]")


def is_wanted(names: "list[str]", expected: "set[str]", cuts: "tuple[str, ...]") -> bool:
    """Whether a test of these names is one of those expected; `cuts` are those of them that are cut."""
    return any(name in expected or name.startswith(cuts) for name in names)


def main() -> None:
    """Run what the order on stdin says; never returns."""
    order = _order()
    say = _channel(order.pop("pipe"), order.pop("key"))
    say({"event": "begin"})
    os.chdir(order["folder"])
    run = {"pytest": _pytest, "django": _django, "sympy": _sympy}[order["runner"]]
    code = run(order, say)
    say({"event": "end", "code": code})
    sys.stdout.flush()
    os._exit(code)  # what the tested code wants to do at exit could change it


def _order() -> "dict[str, Any]":
    """What is to be done; it cannot be read a second time."""
    pieces = []
    while True:
        piece = os.read(0, 1 << 20)
        if not piece:
            break
        pieces.append(piece)
    nothing = os.open(os.devnull, os.O_RDONLY)
    os.dup2(nothing, 0)
    os.close(nothing)
    return dict(json.loads(b"".join(pieces).decode()))


def _channel(pipe: int, key: str) -> Any:
    count = [0]

    def say(record: "dict[str, object]") -> None:
        record["key"], record["number"] = key, count[0]
        count[0] += 1
        # As bytes of one write: others have this pipe too, by inheritance.
        os.write(pipe, (json.dumps(record) + "\n").encode())

    os.set_inheritable(pipe, False)
    return say


def _watch(modules: "tuple[str, ...]") -> Any:
    """Gives what of the deciding code is not what it was: as it is now, or in its file where it is not loaded."""
    known, unloaded = [], []
    for module, owner, name in _DECIDING:
        if module.split(".")[0] not in modules:
            continue
        if module in sys.modules:
            place, found = _found(module, owner, name)
            if found is not None:
                known.append((place, name, found, _code(found)))
        elif module == "unittest.case":
            unloaded.append((module, owner, name))
    codes = _codes_of(os.path.join(os.path.dirname(os.__file__), "unittest", "case.py")) if unloaded else {}

    def changed() -> str:
        for place, name, found, code in known:
            now = vars(place).get(name)
            if now is not found or _code(now) is not code:
                return getattr(place, "__name__", "") + "." + name
        for module, owner, name in unloaded:
            expected = codes.get((owner, name))
            if module in sys.modules and expected and _code(_found(module, owner, name)[1]) not in expected:
                return owner + "." + name
        return ""

    return changed


def _found(module: str, owner: str, name: str) -> "tuple[Any, Any]":
    home = sys.modules[module]  # type: Any
    place = getattr(home, owner, None) if owner else home
    return place, vars(place).get(name) if place is not None else None


def _codes_of(file: str) -> "dict[tuple[str, str], list[Any]]":
    """The code of the methods in a file, by class and name, without loading it."""
    found = {}  # type: dict[tuple[str, str], list[Any]]
    if os.path.isfile(file):
        module = compile(_bytes(file), file, "exec", dont_inherit=True)
        for owner in (const for const in module.co_consts if hasattr(const, "co_name")):
            for inner in (const for const in owner.co_consts if hasattr(const, "co_name")):
                found.setdefault((owner.co_name, inner.co_name), []).append(inner)
    return found


def _rewritten(files: "list[str]") -> Any:
    """Gives whether a file of tests is no longer what it is now: tested code could change those that follow."""
    known = {}
    for file in files:
        if os.path.isfile(file):
            known[file] = _bytes(file)

    def changed(file: str) -> bool:
        return file in known and (not os.path.isfile(file) or _bytes(file) != known[file])

    return changed


def _bytes(file: str) -> bytes:
    with open(file, "rb") as data:
        return data.read()


def _code(function: Any) -> Any:
    inner = getattr(function, "__func__", function)
    return getattr(inner, "__code__", None)


def _pytest(order: "dict[str, Any]", say: Any) -> int:
    import pytest

    rewritten, watches = _rewritten(order["files"]), []  # type: Any, list[Any]
    sys.path.insert(0, order["folder"])  # as `python -m pytest` has it
    expected, repo, canaries = set(order["expected"]), order["repo"], order["canaries"]
    cuts = tuple(name for name in expected if is_cut(name))
    told = set()

    class Outcomes:
        def pytest_plugin_registered(self) -> None:
            # First called when pytest is loaded, and no code of the repository.
            if not watches:
                watches.append(_watch(("_pytest", "unittest")))

        @pytest.hookimpl(trylast=True)
        def pytest_collection_modifyitems(self, config: Any, items: "list[Any]") -> None:
            kept, last, left = [], [], []
            for item in items:
                if any(canary in item.nodeid for canary in canaries):
                    last.append(item)
                elif is_wanted(names_of(item.nodeid, repo), expected, cuts):
                    kept.append(item)
                else:
                    left.append(item)
            items[:] = kept + last
            if left:
                config.hook.pytest_deselected(items=left)
            say({"event": "collected", "count": len(kept)})

        def pytest_collectstart(self, collector: Any) -> None:
            if rewritten(collector.nodeid):
                say({"event": "changed", "what": collector.nodeid})

        @pytest.hookimpl(trylast=True)
        def pytest_runtest_logreport(self, report: Any) -> None:
            status = _status(report)
            if status:
                say({"event": "outcome", "names": names_of(report.nodeid, repo), "status": status})
            what = watches[0]()
            if what and what not in told:
                told.add(what)
                say({"event": "changed", "what": what})

    words = ["-p", "no:cacheprovider", "-rA", "--tb=short", "--maxfail=0", "--rootdir", order["folder"]]
    if _has("pytest_cov"):
        words.append("--no-cov")
    return int(pytest.main(words + order["files"], plugins=[Outcomes()]))


def _has(module: str) -> bool:
    import importlib.util

    return importlib.util.find_spec(module) is not None


def _status(report: Any) -> str:
    """How one phase of a test ended, where it says something: a setup or teardown that went well does not."""
    expected = hasattr(report, "wasxfail")
    if report.when != "call":
        if report.failed:
            return ERROR
        if report.skipped:
            return XFAIL if expected else SKIPPED
        return ""
    if report.skipped:
        return XFAIL if expected else SKIPPED
    if report.failed:
        return FAILED
    return XPASS if expected else PASSED


def _django(order: "dict[str, Any]", say: Any) -> int:
    """Django's own runner, with what it tells unittest's results told to us as well."""
    import runpy
    import unittest

    changed = _watch(("unittest",))
    statuses = {
        "addSuccess": PASSED,
        "addFailure": FAILED,
        "addError": ERROR,
        "addSkip": SKIPPED,
        "addExpectedFailure": XFAIL,
        "addUnexpectedSuccess": XPASS,
    }
    told = set()

    def tell(test: Any, status: str) -> None:
        described = test.shortDescription() if hasattr(test, "shortDescription") else None
        names = unittest_names(str(test)) + ([described] if described else [])
        say({"event": "outcome", "names": names, "status": status})
        what = changed()
        if what and what not in told:
            told.add(what)
            say({"event": "changed", "what": what})

    def telling(original: Any, status: str) -> Any:
        def add(self: Any, test: Any, *rest: Any) -> Any:
            tell(test, status)
            return original(self, test, *rest)

        return add

    for name, status in statuses.items():
        setattr(unittest.TestResult, name, telling(getattr(unittest.TestResult, name), status))
    sub = unittest.TestResult.addSubTest

    def add_sub(self: Any, test: Any, subtest: Any, error: Any) -> Any:
        if error is not None:
            tell(test, FAILED)
        return sub(self, test, subtest, error)

    setattr(unittest.TestResult, "addSubTest", add_sub)  # noqa: B010
    sys.path.insert(0, os.path.join(order["folder"], "tests"))
    settings = ["--verbosity", "2", "--settings=test_sqlite", "--parallel", "1"]
    sys.argv = ["tests/runtests.py"] + settings + order["files"]
    try:
        runpy.run_path("tests/runtests.py", run_name="__main__")
    except SystemExit as end:
        return end.code if isinstance(end.code, int) else int(bool(end.code))
    return 0


def _sympy(order: "dict[str, Any]", say: Any) -> int:
    """Functions whose names begin with "test_", called as sympy's own runner does."""
    import importlib
    import traceback

    sys.path.insert(0, order["folder"])
    wanted = set(order["expected"]) | set(order["canaries"])
    rewritten = _rewritten(order["files"])
    found, failures = [], 0
    for file in order["files"]:
        if rewritten(file):
            say({"event": "changed", "what": file})
        try:
            module = importlib.import_module(file[: -len(".py")].replace("/", "."))
        except BaseException:  # boundary: tested code, which may also ask to exit
            failures += 1
            traceback.print_exc()
            continue
        tests = [(file, name, test) for name, test in list(vars(module).items()) if callable(test)]
        found += [one for one in tests if one[1] in wanted]
    canaries = [one for one in found if one[1] in order["canaries"]]
    say({"event": "collected", "count": len(found) - len(canaries)})
    for file, name, test in [one for one in found if one not in canaries] + canaries:
        status = _called(test)
        failures += status in (FAILED, ERROR)
        # Two files may have tests of the same name: the data has one name for both.
        say({"event": "outcome", "names": [file + ":" + name, name], "status": status})
    return int(failures > 0)


def _called(test: Any) -> str:
    import traceback

    try:
        test()
    except AssertionError:
        traceback.print_exc()
        return FAILED
    except BaseException as error:  # boundary: tested code, which may also ask to exit
        kind = type(error).__name__
        if kind in ("Skipped", "XFail", "XPass"):
            return {"Skipped": SKIPPED, "XFail": XFAIL, "XPass": XPASS}[kind]
        traceback.print_exc()
        return ERROR
    return PASSED
