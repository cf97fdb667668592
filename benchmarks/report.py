"""What was measured, against its target: as a table for people and as JSON."""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass

NO_TARGET = "–"
"""For what is told and not judged."""


@dataclass(frozen=True)
class Row:
    """One measurement. `published` is None where the published package has nothing to compare."""

    what: str
    unit: str
    published: float | None
    ours: float
    target: str
    met: bool

    @property
    def ratio(self) -> str:
        if not self.published or not self.ours:
            return "–"
        times = self.published / self.ours
        return f"1/{times:.1f}" if times >= 1 else f"{1 / times:.1f} ×"


def at_most(fraction: int, published: float, ours: float) -> tuple[str, bool]:
    """Ours takes at most 1/`fraction` of the published time."""
    return f"≤ 1/{fraction}", ours <= published / fraction


def within(multiple: float, reference: float, ours: float) -> tuple[str, bool]:
    """Ours takes at most so many times R, the start of an empty Python."""
    return f"≤ {multiple:g} R (R {reference * 1e3:.2f} ms)", ours <= multiple * reference


def table(rows: list[Row]) -> str:
    """The rows as Markdown, which reads as well on a terminal."""
    head = ("what", "published", "ours", "ratio", "target", "verdict")
    cells = [head, *(_cells(row) for row in rows)]
    widths = [max(len(line[column]) for line in cells) for column in range(len(head))]
    lines = [
        "| " + " | ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)) + " |"
        for line in cells
    ]
    lines.insert(1, "|" + "|".join("-" * (width + 2) for width in widths) + "|")
    return "\n".join(lines)


def as_json(rows: list[Row]) -> list[dict[str, object]]:
    return [{**asdict(row), "ratio": row.ratio} for row in rows]


def _cells(row: Row) -> tuple[str, ...]:
    verdict = "–" if row.target == NO_TARGET else "met" if row.met else "MISSED"
    published = "–" if row.published is None else _number(row.published, row.unit)
    return (row.what, published, _number(row.ours, row.unit), row.ratio, row.target, verdict)


def _number(value: float, unit: str) -> str:
    if math.isnan(value):
        return "not measured"
    return f"{value:,.0f} {unit}" if value >= 100 or value == int(value) else f"{value:.2f} {unit}"
