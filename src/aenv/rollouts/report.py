"""The report of a validation: findings, each about one thing, as JSON and as text."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable
from dataclasses import asdict, dataclass, field
from typing import Any, Literal

from .tables import columns

Status = Literal["ok", "known", "held", "not applicable", "not tried", "failed", "broken"]
_BAD = ("failed", "broken")
_SHOWN = 20  # findings of one kind that a person reads


@dataclass(frozen=True)
class Finding:
    """What one check found about one thing: a tool, a task, an attempt."""

    check: str
    subject: str
    status: Status
    detail: str = ""

    @property
    def is_bad(self) -> bool:
        return self.status in _BAD


@dataclass
class Report:
    """Everything that was found about an environment."""

    environment: str
    digest: str | None = None
    isolation: str = ""
    tasks: int | None = None
    """How many were played; None where it has no tasks."""
    findings: list[Finding] = field(default_factory=list)

    @property
    def passed(self) -> bool:
        return not any(finding.is_bad for finding in self.findings) and not self.untried

    @property
    def untried(self) -> list[str]:
        """The checks of which nothing could be tried. They have not failed, and say nothing either."""
        by_check: dict[str, set[str]] = {}
        for finding in self.findings:
            by_check.setdefault(finding.check, set()).add(finding.status)
        return [check for check, statuses in by_check.items() if _is_untried(statuses)]

    def add(self, findings: Iterable[Finding]) -> None:
        self.findings.extend(findings)

    def as_json(self) -> dict[str, Any]:
        counts = Counter(finding.status for finding in self.findings)
        return {**asdict(self), "passed": self.passed, "counts": dict(counts)}

    def text(self, *, verbose: bool = False) -> str:
        """For people: a line for each check, and below it what is bad; `verbose`, all that is not simply well."""
        tasks = "no tasks" if self.tasks is None else f"{self.tasks} tasks"
        lines = [f"{self.environment}: {tasks}, {self.isolation}", ""]
        checks = list(dict.fromkeys(finding.check for finding in self.findings))
        rows = [(check, *_verdict([f for f in self.findings if f.check == check])) for check in checks]
        lines += [columns(rows), ""] if rows else []
        for check in checks:
            told = [f for f in self.findings if f.check == check and (f.is_bad or (verbose and f.status != "ok"))]
            told.sort(key=lambda finding: not finding.is_bad)
            lines += [f"{f.status:15} {check} {f.subject}: {f.detail}" for f in told[:_SHOWN]]
            if len(told) > _SHOWN:
                lines.append(f"{'':15} {check}: {len(told) - _SHOWN} more; --json has them all")
        lines += ["", self._conclusion()]
        return "\n".join(_printable(line) for line in lines)

    def _conclusion(self) -> str:
        counts = Counter(finding.status for finding in self.findings)
        if bad := counts["failed"] + counts["broken"]:
            return f"not valid: {bad} of {len(self.findings)} findings are bad"
        if self.untried:
            return f"not validated: nothing could be tried of {', '.join(self.untried)}"
        return f"valid, without the {counts['not tried']} not tried" if counts["not tried"] else "valid"


def _is_untried(statuses: Collection[str]) -> bool:
    return "not tried" in statuses and set(statuses) <= {"not tried", "not applicable"}


def _verdict(findings: list[Finding]) -> tuple[str, str]:
    counts = Counter(finding.status for finding in findings)
    mark = "FAILED" if any(finding.is_bad for finding in findings) else "ok"
    if set(counts) == {"not applicable"}:
        mark = "-"
    elif _is_untried(counts):
        mark = "NOT TRIED"
    said = ", ".join(f"{count} {status}" for status, count in counts.items())
    why = next((f.detail for f in findings if mark in ("-", "NOT TRIED") and f.detail), "")
    return mark, f"{said}: {why}" if why else said


def _printable(text: str) -> str:
    return "".join(c if c.isprintable() or c == "\n" else " " for c in text)
