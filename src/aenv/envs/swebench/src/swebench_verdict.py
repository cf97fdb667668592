"""The rules of the verdict: which expected tests have passed, by what is known of each.

The same for outcomes that our runner tells and for those that are read from a log. Not here: getting either.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from _swebench_runner import ERROR, FAILED, PASSED, SKIPPED, XFAIL, is_cut

_GOOD = {PASSED, XFAIL}
# Data sets were made of logs, and some list what is no test: the mark of progress at the end of a line.
_NO_TEST = re.compile(r"\[\s*\d+%\]\Z")
_WORSE = {PASSED: 0, XFAIL: 1, SKIPPED: 2, "XPASS": 3, FAILED: 4, ERROR: 5}


@dataclass
class Tests:
    """The expected tests of one list, parted."""

    success: list[str]
    failure: list[str]


@dataclass(frozen=True)
class Verdict:
    """What the tests say."""

    fail_to_pass: Tests
    pass_to_pass: Tests

    @property
    def is_resolved(self) -> bool:
        """All that should pass now do, all that did still do; and there is something that says so."""
        done = [*self.fail_to_pass.success, *self.pass_to_pass.success]
        return bool(done) and not self.fail_to_pass.failure and not self.pass_to_pass.failure

    def report(self) -> dict[str, dict[str, list[str]]]:
        return {"FAIL_TO_PASS": vars(self.fail_to_pass), "PASS_TO_PASS": vars(self.pass_to_pass)}


def verdict(statuses: Mapping[str, str], fail_to_pass: Iterable[str], pass_to_pass: Iterable[str]) -> Verdict:
    """Part the expected tests by their statuses; one that is not known has failed."""
    first, second = Tests([], []), Tests([], [])
    for test in fail_to_pass:
        (first.success if status_of(test, statuses) in _GOOD else first.failure).append(test)
    for test in pass_to_pass:
        # One that was skipped is no step back: it may need what this machine lacks.
        is_kept = _NO_TEST.match(test) or status_of(test, statuses) in {*_GOOD, SKIPPED}
        (second.success if is_kept else second.failure).append(test)
    return Verdict(first, second)


def status_of(test: str, statuses: Mapping[str, str]) -> str | None:
    """The status of an expected test; None when nothing is known, or when those it may mean differ."""
    if test in statuses:
        return statuses[test]
    if is_cut(test):
        found = [status for name, status in statuses.items() if name.startswith(test)]
        if found and len({status in _GOOD for status in found}) == 1:
            return found[0]
    return None


def worse(one: str | None, other: str) -> str:
    """Of two statuses of the same test the one that counts: a test that failed anywhere has failed."""
    return other if one is None or _WORSE[other] >= _WORSE[one] else one
