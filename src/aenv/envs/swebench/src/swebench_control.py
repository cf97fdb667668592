"""Tests that must fail: whatever says that they pass is not to be believed.

A canary is a test of our own in each file of tests. In a control every test of these files fails: it ends as it
does, and if it ends well it fails then. Code that makes tests pass, or be expected to fail, by their names or by
whatever it does to the runner, gives itself away there.
"""

from __future__ import annotations

import ast
import re
import secrets
from pathlib import Path

_TESTS = re.compile(r"test", re.IGNORECASE)


def plant(files: list[str], tree: Path, runner: str) -> list[str]:
    """Add a canary to each file of tests; their names."""
    names = []
    for path in _places(files, tree, runner):
        name = f"test_{secrets.token_hex(6)}"
        body = f"def {name}():\n    assert not 1\n"
        if runner == "django":
            body = (
                f"import unittest as _unittest_\n\n\nclass Case_{name}(_unittest_.TestCase):\n"
                f"    def {name}(self):\n        assert not 1\n"
            )
        with path.open("a", encoding="utf-8") as text:
            text.write(f"\n\n{body}")
        names.append(name)
    return names


def spoil(files: list[str], tree: Path, runner: str) -> None:
    """Make the tests of these files fail at their end. What we cannot read stays as it is."""
    for path in _places(files, tree, runner):
        try:
            module = ast.parse(path.read_bytes())
        except (SyntaxError, ValueError):
            continue
        name = f"_{secrets.token_hex(6)}"
        for node in ast.walk(module):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and _TESTS.match(node.name):
                # A description stays in its place: Django's tests go by it.
                head = node.body[:1] if ast.get_docstring(node) is not None else []
                manager = ast.withitem(ast.Call(ast.Name(name, ast.Load()), [], []))
                node.body = [*head, ast.With([manager], node.body[len(head) :] or [ast.Pass()])]
        failing = ast.parse(
            f"class {name}:\n    def __enter__(self):\n        pass\n"
            "    def __exit__(self, kind, *rest):\n        assert kind is not None\n"
        )
        module.body += failing.body
        path.write_text(ast.unparse(ast.fix_missing_locations(module)), encoding="utf-8")


def _places(files: list[str], tree: Path, runner: str) -> list[Path]:
    """The files that hold tests, of what the runner is told to run."""
    found = []
    for file in files:
        path = tree / (f"tests/{file.replace('.', '/')}.py" if runner == "django" else file)
        if path.suffix != ".py" or not path.is_file():
            continue
        if runner == "django" and not re.match(r"tests?(_|\.py)", path.name) and path.parent.name != "tests":
            continue  # models and the like, which its runner finds no tests in
        found.append(path)
    return found
