"""The report of a validation: findings, each about one thing, as JSON and as text."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import asdict, dataclass, field
from typing import Any, Literal

from .tables import columns

Status = Literal["ok", "known", "held", "not applicable", "failed", "broken"]
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
        return not any(finding.is_bad for finding in self.findings)

    def add(self, findings: Iterable[Finding]) -> None:
        self.findings.extend(findings)

    def as_json(self) -> dict[str, Any]:
        counts = Counter(finding.status for finding in self.findings)
        return {**asdict(self), "passed": self.passed, "counts": dict(counts)}

    def text(self) -> str:
        """For people: a line for each check, and below it what they have to know."""
        tasks = "no tasks" if self.tasks is None else f"{self.tasks} tasks"
        lines = [f"{self.environment}: {tasks}, {self.isolation}", ""]
        checks = list(dict.fromkeys(finding.check for finding in self.findings))
        rows = [(check, *_verdict([f for f in self.findings if f.check == check])) for check in checks]
        lines += [columns(rows), ""] if rows else []
        for check in checks:
            told = [f for f in self.findings if f.check == check and _is_told(f)]
            told.sort(key=lambda finding: not finding.is_bad)
            lines += [f"{f.status:15} {check} {f.subject}: {f.detail}" for f in told[:_SHOWN]]
            if len(told) > _SHOWN:
                lines.append(f"{'':15} {check}: {len(told) - _SHOWN} more; --json has them all")
        bad = sum(finding.is_bad for finding in self.findings)
        lines += ["", "valid" if self.passed else f"not valid: {bad} of {len(self.findings)} findings are bad"]
        return "\n".join(_printable(line) for line in lines)


def _verdict(findings: list[Finding]) -> tuple[str, str]:
    counts = Counter(finding.status for finding in findings)
    mark = "FAILED" if any(finding.is_bad for finding in findings) else "ok"
    if set(counts) == {"not applicable"}:
        mark = "-"
    return mark, ", ".join(f"{count} {status}" for status, count in counts.items())


def _is_told(finding: Finding) -> bool:
    return finding.status != "ok"


def _printable(text: str) -> str:
    return "".join(c if c.isprintable() or c == "\n" else " " for c in text)
