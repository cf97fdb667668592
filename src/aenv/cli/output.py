"""Everything the command line prints. Stdout is data, stderr is talk.

Colour comes from rich alone, which keeps quiet off a terminal and where NO_COLOR is set.
"""

from __future__ import annotations

import json as json_module
import sys
from collections.abc import Mapping, Sequence
from typing import Any


class Failure(Exception):
    """A command that cannot go on: one line for people, perhaps what to try next, and an exit code."""

    def __init__(self, message: str, *, hint: str | None = None, exit_code: int = 1) -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint
        self.exit_code = exit_code


def data(text: str) -> None:
    """The answer: what a pipe gets."""
    print(text, flush=True)


def talk(text: str) -> None:
    """What only a person wants to read."""
    print(text, file=sys.stderr, flush=True)


def error(message: str, hint: str | None = None) -> None:
    """One line, whatever the message looked like, and what to try next."""
    talk(f"aenv: {' '.join(message.split())}")
    if hint:
        talk(f"try: {hint}")


def json(value: Mapping[str, Any] | Sequence[Any]) -> None:
    """A value, or the dump of a wire model, as JSON; indented where a person looks."""
    data(json_module.dumps(value, ensure_ascii=False, indent=2 if sys.stdout.isatty() else None))


def table(headers: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    """Columns that fit the terminal; in a pipe, whole lines that cut and awk can read."""
    if not sys.stdout.isatty():
        widths = [max(map(len, column)) for column in zip(headers, *rows, strict=True)]
        for row in (headers, *rows):
            data("  ".join(map(str.ljust, row, widths)).rstrip())
        return
    from rich.console import Console  # 50 ms that a pipe does not need
    from rich.table import Table
    from rich.text import Text

    columns = Table(*headers, box=None, pad_edge=False, header_style="bold")
    for row in rows:
        columns.add_row(*map(Text, row))  # as text: a description may contain what rich takes for markup
    Console().print(columns)
