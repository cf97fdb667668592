"""Draw docs/demo.svg: run real commands on a terminal, one after the other, and write what it shows as a picture.

    python scripts/lib/terminal_demo.py [FILE]

They run in an empty home, with a gateway of its own that ends with them. The picture is animated where that is
wanted; elsewhere it is the last frame. tests/test_terminal_demo.py compares it with what the commands print today.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import shlex
import struct
import subprocess
import sys
import tempfile
import termios
from collections.abc import Iterator, Mapping
from html import escape
from pathlib import Path
from typing import NamedTuple

from aenv.inside.sidecar.served.screen import Screen

COMMANDS = (
    "aenv init lake --template gym",
    "aenv test lake",
    "aenv push lake",
    "aenv instance create lake --keep-alive",
    "aenv call --instance lake step direction=right",
    "aenv eval lake --agent oracle --out oracle.jsonl",
    "aenv instance delete lake --yes",
)
PICTURE = Path(__file__).parents[2] / "docs" / "demo.svg"
COLUMNS, ROWS = 100, 60

CHAR, LINE, MARGIN, BAR = 8.4, 19, 18, 34  # pixels
TYPING, THINKING, READING, LAST = 0.045, 0.5, 1.6, 8.0  # seconds: a letter, an answer, a pause, the end
STYLE = """
text{font:14px ui-monospace,SFMono-Regular,Menlo,Consolas,'DejaVu Sans Mono',monospace;fill:#e6edf3}
text{white-space:pre}
.prompt{fill:#7ee787}.command{font-weight:bold}.said{fill:#b1bac4}.window{fill:#161b22;stroke:#6e7681}
.cover{fill:#161b22;opacity:0}
@media (prefers-reduced-motion:reduce){*{animation:none!important}}
"""


class Shown(NamedTuple):
    """A command, and the lines that its terminal shows in the end."""

    command: str
    lines: list[str]


def record(folder: Path) -> list[Shown]:
    """Run the commands in an empty home below `folder`."""
    home, programs = folder / "home", Path(sys.executable).parent
    home.mkdir()
    kept = {
        name: value for name, value in os.environ.items() if not name.startswith(("AENV_", "DUMMY_", "PYTEST_"))
    }
    variables = {
        **{name: value for name, value in kept.items() if name not in ("COLUMNS", "LINES")},
        "HOME": str(home),
        "PATH": f"{programs}:{kept['PATH']}",
        "TERM": "xterm",
        "NO_COLOR": "1",
        "PYTEST_ADDOPTS": "-p no:cacheprovider -p no:asyncio",  # what this checkout has installed beside pytest
    }
    with gateway(variables) as url:
        return [run(command, home, {**variables, "AENV_SYSTEM_URL": url}) for command in COMMANDS]


@contextlib.contextmanager
def gateway(variables: Mapping[str, str]) -> Iterator[str]:
    """The address of a gateway that serves meanwhile."""
    command = ["aenv", "serve", "--port", "0", "--data-port", "0", "--log-level", "WARNING"]
    with subprocess.Popen(command, env=variables, stderr=subprocess.PIPE, text=True) as process:
        try:
            assert process.stderr
            for line in process.stderr:
                if "AENV_SYSTEM_URL=" in line:
                    yield line.rstrip().partition("=")[2]
                    return
            raise SystemExit("the gateway did not start")
        finally:
            process.terminate()


def run(command: str, home: Path, variables: Mapping[str, str]) -> Shown:
    """What a terminal shows after a command; a command that fails ends the recording."""
    ours, theirs = os.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", ROWS, COLUMNS, 0, 0))
    screen = Screen(lambda answer: None, COLUMNS, ROWS)
    with subprocess.Popen(
        shlex.split(command), cwd=home, env=variables, stdin=theirs, stdout=theirs, stderr=theirs
    ) as process:
        os.close(theirs)
        with contextlib.suppress(OSError):  # how the end of a terminal reads
            while piece := os.read(ours, 1 << 16):
                screen.write(piece)
        os.close(ours)
    text = screen.text(with_history=True).replace(str(home), "~")
    if process.returncode:
        raise SystemExit(f"{command} failed:\n{text}")
    return Shown(command, [line.rstrip() for line in text.strip("\n").splitlines()])


class Picture:
    """Rows of text from above, each from a moment on."""

    def __init__(self) -> None:
        self.rows: list[tuple[float, str]] = []  # the second from which on it is shown, and its SVG
        self.covers: list[tuple[float, float, int, int]] = []  # from, to, letters, row
        self.now = 0.6

    def show(self, shown: Shown) -> None:
        typed = TYPING * len(shown.command)
        self.covers.append((self.now, self.now + typed, len(shown.command), len(self.rows)))
        line = f'<tspan class="prompt">$ </tspan><tspan class="command">{escape(shown.command)}</tspan>'
        self.rows.append((self.now, line))
        self.now += typed + THINKING
        self.rows += [(self.now, f'<tspan class="said">{escape(one)}</tspan>') for one in [*shown.lines, ""]]
        self.now += READING

    def svg(self) -> str:
        total = self.now - READING + LAST
        self.rows.pop()  # the space below the last command
        width, height = round(COLUMNS * CHAR + 2 * MARGIN), len(self.rows) * LINE + BAR + MARGIN
        frames, drawn = [], []
        for number, (at, line) in enumerate(self.rows):
            y = BAR + LINE * number + 14
            frames.append(f"@keyframes r{number}{{0%{{opacity:0}}{100 * at / total:.2f}%,100%{{opacity:1}}}}")
            style = f"animation:r{number} {total:.1f}s step-end infinite"
            drawn.append(f'<text x="{MARGIN}" y="{y}" style="{style}">{line}</text>')
        for begin, end, letters, row in self.covers:
            name, across = f"c{row}", letters * CHAR
            first, last = 100 * begin / total, 100 * end / total
            frames.append(
                f"@keyframes {name}{{0%{{opacity:1;transform:none}}{first:.2f}%{{opacity:1;transform:none;"
                f"animation-timing-function:steps({letters})}}{last:.2f}%,100%{{opacity:1;"
                f"transform:translateX({across:.0f}px)}}}}"
            )
            x, y = MARGIN + 2 * CHAR, BAR + LINE * row
            style = f"animation:{name} {total:.1f}s step-end infinite"
            drawn.append(
                f'<rect class="cover" x="{x:.1f}" y="{y}" width="{across:.1f}" height="{LINE}" style="{style}"/>'
            )
        dots = "".join(
            f'<circle cx="{MARGIN + 16 * place}" cy="17" r="5" fill="{colour}"/>'
            for place, colour in enumerate(("#ff5f57", "#febc2e", "#28c840"))
        )
        return "\n".join(
            [
                f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" width="{width}"'
                ' role="img" aria-label="A terminal: an environment is made, tested, called and evaluated">',
                f"<style>{STYLE}{''.join(frames)}</style>",
                f'<rect class="window" x="0.5" y="0.5" width="{width - 1}" height="{height - 1}" rx="8"/>',
                dots,
                *drawn,
                "</svg>",
                "",
            ]
        )


def draw(shown: list[Shown]) -> str:
    """The picture of a recording."""
    picture = Picture()
    for one in shown:
        picture.show(one)
    return picture.svg()


def main() -> None:
    target = Path(sys.argv[1]) if len(sys.argv) > 1 else PICTURE
    with tempfile.TemporaryDirectory(prefix="aenv-demo-", ignore_cleanup_errors=True) as folder:
        target.write_text(draw(record(Path(folder))))


if __name__ == "__main__":
    main()
