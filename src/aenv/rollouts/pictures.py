"""Rewards by task as a picture, SVG or PNG: a bar for each task, in up to four panels beside one another."""

from __future__ import annotations

import math
import unicodedata
from collections.abc import Iterator, Sequence
from html import escape
from pathlib import Path

from ..base.errors import Unsupported
from .overview import TaskRow

_PANEL_ROWS = 40  # before another panel begins
_MOST_PANELS = 4
_ROW = 18  # pixels, as all that follows
_LETTER = 6.7  # the width of a character of 11 px in a font of equal widths
_MARGIN, _GAP = 24, 28
_TOP = 112  # title, legend and axis
_VALUE = 104  # for the number or the outcome beside a bar
_WIDTHS = {1: 860, 2: 1060, 3: 1420, 4: 1800}  # of so many panels

# A background of its own: the picture can be read wherever it is put. Without media queries it is the light one.
_STYLE = """
.paper { fill: #ffffff } .ink { fill: #1c2126 } .faint { fill: #59626b } .track { fill: #e9edf1 }
.grid { stroke: #c3cad1 } .bar { fill: #2a78c4 } .none { fill: url(#hatch); stroke: #b4530a }
.mark { fill: #9a4507 } .hatch { stroke: #b4530a }
@media (prefers-color-scheme: dark) {
.paper { fill: #14181c } .ink { fill: #eef1f4 } .faint { fill: #a6b0ba } .track { fill: #272e35 }
.grid { stroke: #4a545e } .bar { fill: #5aa5ee } .none { stroke: #f0a35c } .mark { fill: #f5b47a }
.hatch { stroke: #f0a35c }
}
text { font: 11px ui-monospace, Menlo, Consolas, "DejaVu Sans Mono", monospace }
.title { font: 600 16px system-ui, "DejaVu Sans", "Liberation Sans", "Noto Sans", Arial, sans-serif }
.note { font: 12px system-ui, "DejaVu Sans", "Liberation Sans", "Noto Sans", Arial, sans-serif }
""".strip()


_ZOOM = 2  # of PNG, whose text is else too coarse to read on a dense screen


def write(path: Path, title: str, rows: Sequence[TaskRow]) -> None:
    """Write the picture in the format that the name of the file says. Unsupported where that wants a package."""
    text = svg(title, rows)
    if path.suffix.lower() == ".svg":
        path.write_text(text, encoding="utf-8")
        return
    try:
        import resvg_py
    except ImportError as error:
        raise Unsupported(
            "charts as PNG need resvg-py: pip install 'resvg-py>=0.2'; or name a file that ends with .svg"
        ) from error
    path.write_bytes(bytes(resvg_py.svg_to_bytes(svg_string=text, zoom=_ZOOM)))


def svg(title: str, rows: Sequence[TaskRow]) -> str:
    """The picture, in the order of the rows. Tasks without a judged attempt are hatched, with their outcomes."""
    panels = min(_MOST_PANELS, math.ceil(len(rows) / _PANEL_ROWS))
    tall = math.ceil(len(rows) / panels)
    width, height = _WIDTHS[panels], _TOP + tall * _ROW + _MARGIN
    wide = (width - 2 * _MARGIN - (panels - 1) * _GAP) / panels
    longest = max(_letters(row.task) for row in rows)
    letters = min(longest, int(0.45 * wide / _LETTER))
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{height}" '
        f'viewBox="0 0 {width} {height}" role="img" aria-label="{_text(title)}">',
        f"<style>{_STYLE}</style>",
        '<defs><pattern id="hatch" width="6" height="6" patternUnits="userSpaceOnUse" '
        'patternTransform="rotate(45)"><path class="hatch" d="M0 0V6" stroke-opacity="0.45"/></pattern></defs>',
        '<rect class="paper" width="100%" height="100%"/>',
        _write("ink title", _MARGIN, 34, _cut(title, int((width - 2 * _MARGIN) / 9))),
        _write("faint note", _MARGIN, 54, _note(rows)),
        *_legend(any(0 < row.judged < row.attempts for row in rows)),
    ]
    for panel in range(panels):
        left = _MARGIN + panel * (wide + _GAP)
        parts += _panel(rows[panel * tall : (panel + 1) * tall], left, letters, wide)
    return "\n".join([*parts, "</svg>", ""])


def _note(rows: Sequence[TaskRow]) -> str:
    rewards = [row.mean_reward for row in rows if row.mean_reward is not None]
    mean = f", mean reward {math.fsum(rewards) / len(rewards):.3f}" if rewards else ""
    return f"tasks: {len(rows)}, judged: {len(rewards)}{mean}"


def _legend(some_partly: bool) -> Iterator[str]:
    yield f'<rect class="bar" x="{_MARGIN}" y="67" width="22" height="10"/>'
    yield _write("ink note", _MARGIN + 28, 76, "mean reward")
    yield f'<rect class="none" x="{_MARGIN + 120}" y="67" width="22" height="10"/>'
    yield _write("ink note", _MARGIN + 148, 76, "not judged, with the outcome")
    if some_partly:
        yield _write("ink note", _MARGIN + 340, 76, "1/2: one of two attempts was judged")


def _panel(rows: Sequence[TaskRow], left: float, letters: int, all_of: float) -> Iterator[str]:
    """Names of at most so many letters, and bars beside them below an axis from 0 to 1."""
    start, bottom = left + letters * _LETTER + 8, _TOP + len(rows) * _ROW
    wide = left + all_of - _VALUE - start
    for index, row in enumerate(rows):
        yield from _bar(row, letters, start, wide, _TOP + index * _ROW)
    for value in (0.0, 0.25, 0.5, 0.75, 1.0) if wide > 180 else (0.0, 0.5, 1.0):
        x = start + value * wide
        yield f'<path class="grid" d="M{x:.1f} {_TOP - 6}V{bottom}" stroke-opacity="0.8"/>'
        yield _write("faint", x, _TOP - 10, f"{value:g}", anchor="middle")


def _bar(row: TaskRow, letters: int, start: float, wide: float, y: float) -> Iterator[str]:
    reward = row.mean_reward
    told = row.told_outcomes if reward is None else f"mean reward {reward:.3f} ({row.told_outcomes})"
    yield f"<g><title>{_text(row.task)}: {_text(told)}</title>"
    base = y + _ROW - 5
    yield _write("ink", start - 8, base, _cut(row.task, letters), anchor="end")
    box = f'x="{start:.1f}" y="{y + 3}" height="{_ROW - 6}"'
    beside = start + wide + 8
    if reward is None:
        yield f'<rect class="none" {box} width="{wide:.1f}"/>'
        most = max(row.outcomes, key=lambda name: row.outcomes[name])
        others = f" +{len(row.outcomes) - 1}" if len(row.outcomes) > 1 else ""
        yield _write("mark", beside, base, f"{most}{others}")
    else:
        yield f'<rect class="track" {box} width="{wide:.1f}"/>'
        yield f'<rect class="bar" {box} width="{reward * wide:.1f}"/>'
        some = "" if row.judged == row.attempts else f" {row.judged}/{row.attempts}"
        yield _write("ink", beside, base, f"{reward:.2f}{some}")
    yield "</g>"


def _write(kind: str, x: float, y: float, text: str, anchor: str = "start") -> str:
    return f'<text class="{kind}" x="{x:.1f}" y="{y}" text-anchor="{anchor}">{_text(text)}</text>'


def _text(text: str) -> str:
    """What XML can hold: names come from files of others."""
    return escape("".join(c for c in text if c.isprintable()))


def _cut(text: str, most: int) -> str:
    """At most so many letters wide. The middle goes: names of tasks often differ at their end."""
    if _letters(text) <= most:
        return text
    head, tail = "", ""
    for front, back in zip(text, reversed(text), strict=True):
        if _letters(head + front + tail) >= most:
            break
        head += front
        if _letters(head + back + tail) >= most:
            break
        tail = back + tail
    return f"{head}…{tail}"


def _letters(text: str) -> int:
    """How wide a text is; letters of some scripts take two places."""
    return sum(2 if unicodedata.east_asian_width(c) in "WF" else 1 for c in text)
