"""Draw docs/scale.svg, calls and creates a second by cores, from what `scripts/bench scale --json FILE` wrote."""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path

WIDTH, HEIGHT, LEFT, TOP, BOTTOM = 320, 240, 56, 36, 40
CHARTS = (("calls, by", "tool calls a second"), ("create + delete", "create + delete a second"))
_ROW = re.compile(r"(\d+) cores?: (.*)")


def points(rows: list[dict[str, object]], what: str) -> list[tuple[int, float]]:
    """How many a second, by cores."""
    found = []
    for row in rows:
        match = _ROW.fullmatch(str(row["what"]))
        if match and match[2].startswith(what) and row["unit"] == "/s":
            found.append((int(match[1]), float(str(row["ours"]))))
    return found


def chart(left: int, title: str, measured: list[tuple[int, float]]) -> list[str]:
    """Bars, with a mark where each would be if every core gave what the first does."""
    base, room = HEIGHT - BOTTOM, HEIGHT - BOTTOM - TOP
    first = measured[0][1]
    most = max(max(value, first * cores) for cores, value in measured)
    step = (WIDTH - LEFT) / len(measured)
    lines = [f'<text x="{left + LEFT}" y="20" class="title">{title}</text>']
    for number, (cores, value) in enumerate(measured):
        x, size = left + LEFT + step * number + step * 0.2, room * value / most
        ideal = base - room * first * cores / most
        lines += [
            f'<rect x="{x:.0f}" y="{base - size:.0f}" width="{step * 0.6:.0f}" height="{size:.0f}"/>',
            f'<line x1="{x:.0f}" x2="{x + step * 0.6:.0f}" y1="{ideal:.0f}" y2="{ideal:.0f}"/>',
            f'<text x="{x + step * 0.3:.0f}" y="{base - size - 5:.0f}" class="number">{value:,.0f}</text>',
            f'<text x="{x + step * 0.3:.0f}" y="{base + 16}" class="number">{cores}</text>',
        ]
    return [
        *lines,
        f'<text x="{left + LEFT}" y="{HEIGHT - 8}" class="small">cores; the line is first × cores</text>',
    ]


def draw(rows: list[dict[str, object]]) -> str:
    """The picture."""
    drawn = [
        line
        for place, (what, title) in enumerate(CHARTS)
        for line in chart(place * WIDTH, title, points(rows, what))
    ]
    style = (
        "text{font:12px sans-serif;fill:#333}.title{font-weight:bold}.number{text-anchor:middle}"
        ".small{font-size:10px}rect{fill:#4a7ab5}line{stroke:#c33;stroke-width:2}"
    )
    head = f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {2 * WIDTH} {HEIGHT}" width="{2 * WIDTH}">'
    return "\n".join(
        [
            head,
            f"<style>{style}</style>",
            '<rect width="100%" height="100%" style="fill:#fff"/>',
            *drawn,
            "</svg>",
            "",
        ]
    )


if __name__ == "__main__":
    Path("docs/scale.svg").write_text(draw(json.loads(Path(sys.argv[1]).read_text())))
