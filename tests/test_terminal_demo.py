"""The recorded terminal of README.md shows what its commands print today."""

from __future__ import annotations

import re
import runpy
from html import unescape
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
# What is another in each recording: ids, digests, and numbers with their units.
_VARYING = (r"-[a-z2-7]{26}\b", r"[0-9a-f]{12}…", r"\d[\d.:T-]*\d|\d", r"\b[kM]?B\b", r" +")


def essence(line: str) -> str:
    for pattern in _VARYING:
        line = re.sub(pattern, "~", line)
    return line


def texts(picture: str) -> list[str]:
    """The lines that the picture shows in the end."""
    return [unescape(re.sub(r"<[^>]*>", "", line)) for line in re.findall(r"<text [^>]*>(.*)</text>", picture)]


@pytest.mark.slow
@pytest.mark.timeout(300)  # seven commands, each as a user runs it
def test_the_picture_shows_what_its_commands_print(tmp_path: Path) -> None:
    demo = runpy.run_path(str(ROOT / "scripts" / "lib" / "terminal_demo.py"))
    shown = texts((ROOT / "docs" / "demo.svg").read_text())
    assert [line[2:] for line in shown if line.startswith("$ ")] == list(demo["COMMANDS"])
    printed = texts(demo["draw"](demo["record"](tmp_path)))
    assert list(map(essence, printed)) == list(map(essence, shown)), "run scripts/lib/terminal_demo.py"
