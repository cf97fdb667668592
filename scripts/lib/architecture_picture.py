"""Draw docs/architecture.svg: the processes of aenv, the wings that run in each, and what goes between them."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from xml.sax.saxutils import escape

PICTURE = Path(__file__).resolve().parent.parent.parent / "docs" / "architecture.svg"
WIDTH, HEIGHT = 1080, 560
_LINE = 18  # pixels from one line of text to the next


@dataclass(frozen=True)
class Box:
    """A process, or a part of one: a title, and what is in it."""

    left: int
    top: int
    width: int
    height: int
    title: str
    lines: tuple[str, ...] = ()
    is_process: bool = False


@dataclass(frozen=True)
class Arrow:
    """Something that goes from one box to another, with a label above its middle."""

    start: tuple[int, int]
    end: tuple[int, int]
    label: str


BOXES = (
    Box(20, 60, 270, 420, "client process", is_process=True),
    Box(40, 100, 230, 190, "client/", ("Environment, Group, Hub", "api.py: the only HTTP client")),
    Box(40, 304, 230, 66, "rollouts/", ("tasks, agents, outcomes",)),
    Box(40, 384, 230, 76, "cli/, or your program", ("aenv push, aenv eval,", "a training loop")),
    Box(420, 60, 300, 420, "gateway process (aenv serve)", is_process=True),
    Box(440, 100, 260, 66, "control/gateway/", ("routes, tokens, proxy, parts.py",)),
    Box(440, 180, 102, 84, "control/hub/", ("versions,", "bundles")),
    Box(548, 180, 152, 84, "control/instances/", ("creation,", "supervisor")),
    Box(440, 278, 102, 84, "artifacts/", ("packages,", "Pythons, data")),
    Box(548, 278, 152, 84, "engines/", ("native,", "process")),
    Box(440, 376, 260, 84, "control/stores/", ("SQLite file, or Redis shared by", "several gateways")),
    Box(840, 60, 220, 190, "instance (sandbox)", is_process=True),
    Box(860, 100, 180, 66, "inside/runtime/", ("MCP and HTTP server",)),
    Box(860, 174, 180, 66, "inside/author/", ("decorated functions",)),
    Box(840, 290, 220, 84, "zygote", ("inside/zygote/: environment", "loaded, forks instances"), is_process=True),
    Box(
        840,
        396,
        220,
        84,
        "sidecar (sandbox)",
        ("inside/sidecar/: commands", "in a rootfs of its own"),
        is_process=True,
    ),
    Box(20, 500, 510, 44, "isolation/: sandbox, control groups, egress, rootfs"),
    Box(550, 500, 510, 44, "base/: errors, wire, config, settings"),
)
ARROWS = (
    Arrow((270, 130), (440, 130), "tool call (MCP)"),
    Arrow((270, 200), (420, 200), "create, delete"),
    Arrow((270, 260), (420, 260), "push: bundle"),
    Arrow((700, 130), (860, 130), "bytes, unix socket"),
    Arrow((700, 320), (840, 320), "fork, boot protocol"),
    Arrow((950, 290), (950, 250), ""),
    Arrow((700, 352), (840, 446), ""),
)


def picture() -> str:
    """The SVG document."""
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" font-family="sans-serif">',
        "<title>The processes of aenv and the wings that run in them</title>",
        '<defs><marker id="tip" viewBox="0 0 10 10" refX="9" refY="5" markerWidth="8" markerHeight="8" '
        'orient="auto"><path d="M0 0L10 5L0 10z" fill="#374151"/></marker></defs>',
        f'<rect width="{WIDTH}" height="{HEIGHT}" fill="#ffffff"/>',
        _text(20, 34, "One request path, from a program to the function that an author wrote", 18, bold=True),
        *(_box(box) for box in BOXES),
        *(_arrow(arrow) for arrow in ARROWS),
        "</svg>",
    ]
    return "\n".join(parts) + "\n"


def _box(box: Box) -> str:
    fill, stroke = ("#eef2ff", "#4f46e5") if box.is_process else ("#ffffff", "#9ca3af")
    frame = (
        f'<rect x="{box.left}" y="{box.top}" width="{box.width}" height="{box.height}" rx="8" '
        f'fill="{fill}" stroke="{stroke}"/>'
    )
    left = box.left + 12
    lines = [_text(left, box.top + 26, box.title, 13, bold=True)]
    lines += [_text(left, box.top + 26 + _LINE * n, line, 12) for n, line in enumerate(box.lines, 1)]
    return "\n".join([frame, *lines])


def _arrow(arrow: Arrow) -> str:
    (x1, y1), (x2, y2) = arrow.start, arrow.end
    style = 'stroke="#374151" stroke-width="2" marker-end="url(#tip)"'
    line = f'<line x1="{x1}" y1="{y1}" x2="{x2}" y2="{y2}" {style}/>'
    if not arrow.label:
        return line
    label = _text((x1 + x2) // 2, (y1 + y2) // 2 - 8, arrow.label, 12, middle=True)
    return f"{line}\n{label}"


def _text(x: int, y: int, words: str, size: int, *, bold: bool = False, middle: bool = False) -> str:
    weight = ' font-weight="bold"' if bold else ""
    anchor = ' text-anchor="middle"' if middle else ""
    return f'<text x="{x}" y="{y}" font-size="{size}" fill="#111827"{weight}{anchor}>{escape(words)}</text>'


if __name__ == "__main__":
    PICTURE.write_text(picture(), encoding="utf-8")
