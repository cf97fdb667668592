"""Records: what a SWE-bench instance says, whatever form it was read from.

Not here: where records are found (`swebench_sources.py`).
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

_ID = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,199}\Z")
_REQUIRED = ("instance_id", "repo")
_RUNNERS = {"django/django": "django", "sympy/sympy": "sympy"}


class BadRecord(ValueError):
    """A record that cannot be used; the message names the field and what it should be."""


@dataclass(frozen=True)
class Record:
    """One instance: a repository at a commit, a problem, its reference solution, and the tests that decide."""

    id: str
    repo: str
    problem: str = ""
    hints: str = ""
    gold: str = ""
    test_patch: str = ""
    fail_to_pass: tuple[str, ...] = ()
    pass_to_pass: tuple[str, ...] = ()
    base_commit: str = ""
    version: str = ""
    created_at: str = ""
    split: str = "test"
    sdist: str = ""
    """The release that stands for the commit, as in "sympy-1.11.1"; empty when it is to be found by its date."""
    image: str = ""
    """The Docker image of the commit; the public one unless the record names another."""
    runner: str = "pytest"
    """How its tests are run: "pytest", "django" or "sympy"."""
    environment: str = ""
    """The text of its environment.yml: the pins of what its tests need."""

    def __repr__(self) -> str:
        return f"Record({self.id!r})"  # the solution must not get into a message

    @property
    def tests(self) -> tuple[str, ...]:
        return (*self.fail_to_pass, *self.pass_to_pass)

    @property
    def project(self) -> str:
        """What the repository is called: "sympy" of "sympy/sympy"."""
        return self.repo.rpartition("/")[2]


def record_of(raw: Mapping[str, Any], where: str = "the record", split: str = "") -> Record:
    """A record from its fields, as data sets name them. BadRecord names the field that is wrong."""
    for name in _REQUIRED:
        if not isinstance(raw.get(name), str) or not raw[name]:
            raise BadRecord(f"{where} lacks {name!r}, a text")
    if not _ID.match(raw["instance_id"]):
        raise BadRecord(f"{where}: 'instance_id' {raw['instance_id']!r} must be letters, digits, '.', '_' and '-'")
    where = f"{where}, instance {raw['instance_id']!r}"
    runner = _text(raw, "runner", where) or _RUNNERS.get(raw["repo"], "pytest")
    if runner not in ("pytest", "django", "sympy"):
        raise BadRecord(f"{where}: 'runner' {runner!r} must be 'pytest', 'django' or 'sympy'")
    return Record(
        id=raw["instance_id"],
        repo=raw["repo"],
        problem=_text(raw, "problem_statement", where),
        hints=_text(raw, "hints_text", where),
        gold=_text(raw, "patch", where),
        test_patch=_text(raw, "test_patch", where),
        fail_to_pass=_tests(raw, "FAIL_TO_PASS", where),
        pass_to_pass=_tests(raw, "PASS_TO_PASS", where),
        base_commit=_text(raw, "base_commit", where),
        version=_text(raw, "version", where),
        created_at=_text(raw, "created_at", where),
        split=_text(raw, "split", where) or split or "test",
        sdist=_text(raw, "sdist", where),
        image=_text(raw, "image", where) or public_image(raw["instance_id"]),
        runner=runner,
        environment=_text(raw, "environment", where),
    )


def record_of_text(text: str) -> Record:
    """A record from JSON text."""
    try:
        raw = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise BadRecord(f"'instance' is neither an id nor a record in JSON: {error}") from None
    if not isinstance(raw, dict):
        raise BadRecord("'instance' must be an id, or a record as a JSON object")
    return record_of(raw, "'instance'")


def public_image(id: str) -> str:
    """The name of the public image of an instance: image names cannot have two underscores in a row."""
    return f"swebench/sweb.eval.x86_64.{id.replace('__', '_1776_').lower()}:latest"


def _text(raw: Mapping[str, Any], name: str, where: str) -> str:
    value = raw.get(name)
    if value is None:
        return ""
    if isinstance(value, (int, float)) and not isinstance(value, bool):
        return str(value)  # a version that YAML took for a number
    if isinstance(value, datetime):
        return value.isoformat()  # from a table that knows times
    if not isinstance(value, str):
        raise BadRecord(f"{where}: {name!r} must be a text, and is {type(value).__name__}")
    return value


def _tests(raw: Mapping[str, Any], name: str, where: str) -> tuple[str, ...]:
    value = raw.get(name)
    if isinstance(value, str):
        try:
            value = json.loads(value) if value.strip() else []
        except ValueError as error:
            raise BadRecord(f"{where}: {name!r} is a text that is not a JSON list: {error}") from None
    if value is None:
        return ()
    if not isinstance(value, (list, tuple)) or not all(isinstance(test, str) and test for test in value):
        raise BadRecord(f"{where}: {name!r} must be a list of the tests' names, or such a list as JSON text")
    return tuple(dict.fromkeys(value))
