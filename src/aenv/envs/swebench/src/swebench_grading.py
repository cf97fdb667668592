"""The verdict on a patch: what the repository's own runner says of its tests, unless a control refuses it.

The plain run decides, in a process that holds nothing of ours. The tested code could forge its log, so what it
says in favour of a patch is tried again by controls. They can refuse, and no more: what fails in the plain run has
failed. Not here: the runs (`swebench_runs.py`), the rules (`swebench_verdict.py`).
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Any

import swebench_patches as patches
from swebench_records import Record
from swebench_runs import Control, Place, PlainRun, Runs, Stopped
from swebench_sealing import Unfit
from swebench_verdict import status_of, verdict


class Grade:
    """The verdict on one patch."""

    def __init__(self, record: Record, variant: str, notes: Iterable[str] = ()) -> None:
        self.record = record
        self.variant = variant
        self.notes = [*notes]
        self.verdict = verdict({}, record.fail_to_pass, record.pass_to_pass)
        self.why_not = ""
        """What stands against it besides the tests."""
        self.invalid = ""
        """Why nothing can be said."""
        self.not_ready = ""
        """What is missing here for anything to be said."""
        self.output = ""
        self.sealed: list[str] = []
        """Files of the patch that did not count."""

    @property
    def is_resolved(self) -> bool:
        return self.verdict.is_resolved and not (self.why_not or self.invalid or self.not_ready)

    def report(self) -> dict[str, Any]:
        """As the published environment answers, and what says more beside it."""
        tests = self.verdict.report()
        said: dict[str, Any] = {
            "resolved": self.is_resolved,
            "reward": float(self.is_resolved),
            "instance_id": self.record.id,
            "variant": self.variant,
            "tests": tests,
        }
        for name, value in (("invalid", self.invalid), ("why", self.why_not), ("notes", self.notes)):
            if value:
                said[name] = value
        if self.sealed:
            said["not_counted"] = self.sealed
        of_one = {key: said[key] for key in said if key not in ("instance_id", "reward", "tests")}
        said["stdout"] = json.dumps({self.record.id: {**of_one, "tests_status": tests}})
        said["returncode"] = 0 if self.is_resolved else 1
        said["stderr"] = "" if self.is_resolved else self.output
        return said


class Grader:
    """Judges patches of a record, one at a time. `stop` ends a verdict that no caller waits for any more."""

    def __init__(self, record: Record, place: Place) -> None:
        self._record = record
        self._place = place
        self._runs = Runs(record, place)
        self._known: dict[bool, Control] = {}
        """What controls make of the reference solution, by whether tests must fail."""

    def stop(self) -> None:
        self._runs.stop()

    def grade(self, patch: str, timeout: float) -> Grade:
        """Run the expected tests on the base with `patch`."""
        grade = Grade(self._record, self._place.variant, self._place.notes)
        if not self._record.tests:
            grade.invalid = "the record names no tests: FAIL_TO_PASS and PASS_TO_PASS are empty"
            return grade
        try:
            self._judge(grade, patch, timeout)
        except Unfit as error:
            grade.invalid = str(error)
        except patches.PatchError as error:
            grade.why_not = f"the patch does not apply: {error}"
        except Stopped:
            grade.invalid = "the verdict was given up"
        finally:
            self._runs = Runs(self._record, self._place)
        return grade

    def _judge(self, grade: Grade, patch: str, timeout: float) -> None:
        run = self._runs.plain(patch, timeout)
        grade.output, grade.sealed, grade.why_not = run.output, run.sealed, run.hindrance
        if not run.statuses:
            alone = self._runs.plain("", timeout) if patch.strip() else run
            if not alone.statuses:  # so it is not the patch's fault
                grade.why_not, grade.not_ready, grade.invalid = "", *self._fault(alone)
                return
        grade.verdict = verdict(run.statuses, self._record.fail_to_pass, self._record.pass_to_pass)
        if self._record.runner == "pytest" and "SKIPPED [" in run.log:
            self._count_skipped(grade, run, patch, timeout)
        if grade.is_resolved:
            grade.why_not, grade.invalid = self._refusal(patch, timeout)

    def _fault(self, run: PlainRun) -> tuple[str, str]:
        """What is missing here, or why nothing can be said, when no test runs on the base either."""
        if missing := self._place.missing or run.lacks:
            why = (
                f"no test could run, and packages are missing: {missing}; run 'aenv data prepare swebench "
                f"--instances {self._record.id}', or put their wheels into the data folder's 'wheels'"
            )
            return why, ""
        return "", f"nothing shows that tests ran; the last that was printed:\n{run.output[-1500:]}"

    def _count_skipped(self, grade: Grade, run: PlainRun, patch: str, timeout: float) -> None:
        """Pytest's log does not name what it skips, and a test that is skipped is no step back."""
        kept = grade.verdict.pass_to_pass
        unknown = {test for test in kept.failure if status_of(test, run.statuses) is None}
        if unknown and (skipped := unknown & self._runs.skipped(patch, timeout)):
            kept.success += [test for test in kept.failure if test in skipped]
            kept.failure = [test for test in kept.failure if test not in skipped]

    def _refusal(self, patch: str, timeout: float) -> tuple[str, str]:
        """Why a patch that passes its plain run does not resolve, or why nothing can be said; or nothing."""
        control = self._runs.control(patch, timeout)
        if why := control.distrust or self._unconfirmed(control):
            return self._blamed(why, patch, timeout, must_fail=False)
        control = self._runs.control(patch, timeout, must_fail=True)
        if why := control.distrust:
            return self._blamed(f"with tests that must fail: {why}", patch, timeout, must_fail=True)
        # Some cannot be made to fail, such as those that are skipped here: then not by the solution either.
        left = [test for test in self._record.tests if not control.has_failed(test)]
        if not left or patch == self._record.gold:
            return "", ""
        odd = [test for test in left if self._of_gold(timeout, must_fail=True).has_failed(test)]
        return (f"the tested code has decided about outcomes: {', '.join(odd[:5])}" if odd else ""), ""

    def _unconfirmed(self, control: Control) -> str:
        said = verdict(control.statuses, self._record.fail_to_pass, self._record.pass_to_pass)
        failed = [*said.fail_to_pass.failure, *said.pass_to_pass.failure]
        if self._record.runner == "pytest":
            # Data sets were made of logs, and list lines of them that are no test's, such as "[100%]---".
            failed = [test for test in failed if "::" in test]
        return (
            f"tests pass by themselves, and not when they are watched: {', '.join(failed[:5])}" if failed else ""
        )

    def _blamed(self, why: str, patch: str, timeout: float, *, must_fail: bool) -> tuple[str, str]:
        """A refusal is the patch's fault, unless the control refuses the reference solution too."""
        known = self._of_gold(timeout, must_fail=must_fail) if patch != self._record.gold else None
        if known is None or known.distrust or (not must_fail and self._unconfirmed(known)):
            return "", f"the control refuses the reference solution as well, so it is not a control: {why}"
        return why, ""

    def _of_gold(self, timeout: float, *, must_fail: bool) -> Control:
        if must_fail not in self._known:
            try:
                self._known[must_fail] = self._runs.control(self._record.gold, timeout, must_fail=must_fail)
            except patches.PatchError:  # a release may differ from the commit that it was made for
                self._known[must_fail] = self._runs.control("", timeout, must_fail=must_fail)
        return self._known[must_fail]
