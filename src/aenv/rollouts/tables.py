"""Columns of text for people, and times in words."""

from __future__ import annotations

from collections.abc import Sequence


def columns(rows: Sequence[Sequence[str]]) -> str:
    """Lines whose cells stand below one another; what a terminal would not print is left out."""
    clean = [["".join(c for c in cell if c.isprintable()) for cell in row] for row in rows]
    widths = [max(map(len, column)) for column in zip(*clean, strict=True)]
    return "\n".join("  ".join(map(str.ljust, row, widths)).rstrip() for row in clean)


def duration(seconds: float) -> str:
    """75 → "1:15"; 3700 → "1:01:40"."""
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{rest:02}" if hours else f"{minutes}:{rest:02}"
