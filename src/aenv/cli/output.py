"""Everything the command line prints. Stdout is data, stderr is talk.

Colour comes from rich alone, which keeps quiet off a terminal and where NO_COLOR is set.
"""

from __future__ import annotations

import json as json_module
import os
import re
import shutil
import sys
from collections.abc import Mapping, Sequence
from typing import Any

from ..base import wire

_ID = re.compile(r"\A\S*-[a-z2-7]{26}\Z")
_UNLOADED = re.compile(r"( failed to load: [^\n]+)\nTraceback \(most recent call last\):\n.*", re.DOTALL)
"""What a runtime says of code that raised: a line that says all, and the traceback."""
_NARROWEST = 6  # characters of a column that is not of ids, on a terminal that is too narrow


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


def raw(content: bytes, *, to_stderr: bool = False) -> None:
    """Bytes as they are, such as a command in an instance printed."""
    stream = (sys.stderr if to_stderr else sys.stdout).buffer
    stream.write(content)
    stream.flush()


def error(message: str, hint: str | None = None) -> None:
    """One line, whatever the message looked like, and what to try next."""
    message, cut = _UNLOADED.subn(r"\1", message)
    if cut and not hint:
        hint = "'aenv run' in the project's folder, which shows the traceback"
    talk(f"aenv: {' '.join(plain(message).split())}")
    if hint:
        talk(f"try: {hint}")


def json(value: Mapping[str, Any] | Sequence[Any]) -> None:
    """A value, or the dump of a wire model, as JSON; indented where a person looks."""
    data(json_module.dumps(value, ensure_ascii=False, indent=2 if sys.stdout.isatty() else None))


def line(value: Mapping[str, Any]) -> None:
    """A value as one line of JSON, for one that follows others."""
    data(json_module.dumps(value, ensure_ascii=False))


def tell_ready(descriptor: int | None, addresses: Mapping[str, Any]) -> None:
    """Tell the program that has started a server where that listens: a line of JSON, on a pipe of that program."""
    if descriptor is not None:
        with os.fdopen(descriptor, "w") as pipe:
            pipe.write(json_module.dumps(addresses) + "\n")


def table(headers: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    """Columns that fit the terminal; in a pipe, whole lines that cut and awk can read."""
    rows = [[plain(cell) for cell in row] for row in rows]
    if not sys.stdout.isatty():
        widths = [max(map(len, column)) for column in zip(headers, *rows, strict=True)]
        for row in (headers, *rows):
            data("  ".join(map(str.ljust, row, widths)).rstrip())
        return
    from rich.console import Console  # 50 ms that a pipe does not need
    from rich.table import Table
    from rich.text import Text

    console = Console()
    columns = Table(box=None, pad_edge=False, header_style="bold")
    # An id is there to be copied, so it stays in one piece; what does not fit elsewhere goes on below.
    whole = [_widest_id(header, column) for header, *column in zip(headers, *rows, strict=True)]
    for header, width in zip(headers, whole, strict=True):
        columns.add_column(header, overflow="fold", no_wrap=header == "ID", min_width=width or None)
    for row in rows:
        columns.add_row(*map(Text, row))  # as text: a description may contain what rich takes for markup
    least = sum(width or max(_NARROWEST, len(header)) for header, width in zip(headers, whole, strict=True))
    wide = max(console.width, least + 2 * len(whole)) if any(whole) else None
    console.print(columns, width=wide, crop=False, no_wrap=False)


def answer(
    value: Mapping[str, Any] | Sequence[Any],
    headers: Sequence[str],
    rows: Sequence[Sequence[str]],
    *,
    as_json: bool,
    nothing: str = "",
) -> None:
    """A value as JSON, or as the rows of a table; `nothing` is said to a person where there are none."""
    if as_json:
        json(value)
    elif rows or not nothing:
        table(headers, rows)
    else:
        talk(nothing)


def _widest_id(header: str, cells: Sequence[str]) -> int:
    """How long the ids of a column are; 0 when it has none."""
    return max((len(cell) for cell in cells if header == "ID" or _ID.search(cell)), default=0)


def width() -> int | None:
    """Columns of the terminal that reads stdout; None where stdout is not a terminal."""
    return shutil.get_terminal_size().columns if sys.stdout.isatty() else None


def clear() -> None:
    """Begin again at the top of the terminal; in a pipe, go on after an empty line."""
    data("\x1b[H\x1b[2J" if sys.stdout.isatty() else "")


def plain(text: str) -> str:
    """Text that others wrote, without what would make a terminal do more than print it."""
    return "".join(c for c in text if c.isprintable() or c in "\n\t")


def first_line(text: str | None) -> str:
    """What fits into a table."""
    return (text or "").strip().partition("\n")[0]


def minute(timestamp: str | None) -> str:
    """ "2025-11-15T23:31:00.123Z" → "2025-11-15 23:31"."""
    return (timestamp or "")[:16].replace("T", " ")


def size(size_bytes: float) -> str:
    """1234567 → "1.2 MB"."""
    units = ["bytes", "kB", "MB", "GB"]
    while size_bytes >= 1000 and len(units) > 1:
        size_bytes /= 1000
        units.pop(0)
    return f"{size_bytes:.{0 if units[0] == 'bytes' else 1}f} {units[0]}"


def status(number: int | str) -> str:
    """The name of an environment's status, which is a number on the wire."""
    is_known = isinstance(number, int) and 0 <= number < len(wire.HUB_STATUSES)
    return wire.HUB_STATUSES[int(number)] if is_known else str(number)
