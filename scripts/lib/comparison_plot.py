"""Draw docs/performance.svg from the table "Result" of docs/performance.md: how many times faster each row is.

The axis is logarithmic. A bar is the ratio, its mark the target; rows without a published value are left out.
"""

from __future__ import annotations

import math
import re
from html import escape
from pathlib import Path
from typing import NamedTuple

PAGE, PICTURE = Path("docs/performance.md"), Path("docs/performance.svg")
WIDTH, LEFT, RIGHT, TOP, STEP, BAR = 860, 284, 150, 58, 30, 16
MOST = 10_000  # the end of the axis
STYLE = """
text{font:12px sans-serif;fill:#24292f}.title{font-weight:bold;font-size:14px}.small{font-size:11px;fill:#57606a}
.left{text-anchor:end}.middle{text-anchor:middle}.back{fill:#fff}.bar{fill:#2f6fb5}
.grid{stroke:#d0d7de}.target{stroke:#bc4c00;stroke-width:2.5}
@media (prefers-color-scheme:dark){text{fill:#e6edf3}.small{fill:#9198a1}.back{fill:#0d1117}.bar{fill:#4493f8}
.grid{stroke:#30363d}.target{stroke:#f0883e}}
"""


class Compared(NamedTuple):
    """One row: both values as they stand in the table, how many times better ours is, and the target for that."""

    what: str
    published: str
    ours: str
    times: float
    target: float


def rows(page: str) -> list[Compared]:
    """The rows of the table that have a ratio."""
    table = page.partition("\n## Result\n")[2].partition("\n## ")[0]
    found = []
    for line in table.splitlines():
        cells = [cell.strip() for cell in line.strip("|").split("|")]
        if len(cells) == 6 and re.search(r"\d", cells[3]):
            what, published, ours, ratio, target, _ = cells
            found.append(Compared(what.replace("`", ""), published, ours, _times(ratio), _times(target)))
    return found


def _times(text: str) -> float:
    """ "1/17.3" and "≤ 1/17.3" are 17.3 times less, "17.3 ×" and "≥ 17.3 ×" as many times more."""
    return float(re.findall(r"[\d.]+", text.removeprefix("≤ ").removeprefix("≥ ").removeprefix("1/"))[0])


def _x(times: float) -> float:
    return LEFT + (WIDTH - LEFT - RIGHT) * math.log10(times) / math.log10(MOST)


def draw(compared: list[Compared]) -> str:
    """The picture."""
    height = TOP + STEP * len(compared) + 34
    base = height - 34
    lines = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" width="{WIDTH}" role="img"'
        ' aria-label="How many times faster than the published package">',
        f"<style>{STYLE}</style>",
        f'<rect class="back" width="{WIDTH}" height="{height}" rx="6"/>',
        '<text class="title" x="16" y="24">How many times faster than the published package</text>',
        '<text class="small" x="16" y="41">logarithmic; an orange line is the target</text>',
    ]
    for power in range(int(math.log10(MOST)) + 1):
        x = _x(10**power)
        lines.append(f'<line class="grid" x1="{x:.1f}" x2="{x:.1f}" y1="{TOP - 6}" y2="{base}"/>')
        lines.append(f'<text class="small middle" x="{x:.1f}" y="{base + 18}">{10**power:,} ×</text>')
    for number, row in enumerate(compared):
        y, end, mark = TOP + STEP * number, _x(row.times), _x(row.target)
        middle = y + BAR / 2 + 4
        beside = max(end, mark) + 8
        times = f"{row.times:,.0f}" if row.times >= 20 else f"{row.times:.1f}"
        lines += [
            f'<text class="left" x="{LEFT - 10}" y="{middle:.0f}">{escape(row.what)}</text>',
            f'<rect class="bar" x="{LEFT}" y="{y}" width="{end - LEFT:.1f}" height="{BAR}" rx="2"/>',
            f'<line class="target" x1="{mark:.1f}" x2="{mark:.1f}" y1="{y - 4}" y2="{y + BAR + 4}"/>',
            f'<text x="{beside:.1f}" y="{middle:.0f}">{times} ×'
            f' <tspan class="small">{escape(row.published)} → {escape(row.ours)}</tspan></text>',
        ]
    return "\n".join([*lines, "</svg>", ""])


if __name__ == "__main__":
    PICTURE.write_text(draw(rows(PAGE.read_text())))
