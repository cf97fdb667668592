"""Python blocks of the documents: where they stand, and the repairs that they need before they run.

The documents lost their layout on the way here: some have no fences, no indentation, masked names, and text
glued to the end of a block. Each repair is one small change with a name; a block lists all of its own.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

_LOOKS_LIKE_PYTHON = re.compile(
    r"""\s*(
        from\ \S+\ import\  | import\ \w+ | class\ \w+ | def\ \w+\( | async\ (def|with)\  | @\w+$
        | await\  | return\b | raise\  | print\( | try:$ | else:$ | (if|for|while|except)\ .*:$
        | [A-Za-z_][\w.]*\ =\  | \w+\.\w+\(
    )""",
    re.VERBOSE,
)


@dataclass(frozen=True)
class Repair:
    """One change to a block; `kind` says what was wrong."""

    kind: str
    apply: Callable[[str], str]


@dataclass(frozen=True)
class Block:
    """A block in a document, found by how its first line begins."""

    document: str  # how the file's name begins
    first: str
    lines: int = 0  # 0: to the end of its fence
    ends: str = ""  # the last line ends with this text; what follows was glued to it
    below: str = ""  # a line above it, where `first` occurs more than once
    repairs: tuple[Repair, ...] = ()

    def span(self, text: list[str]) -> range:
        """The lines of the document that the block covers."""
        above = next((n for n, line in enumerate(text) if line.startswith(self.below)), None)
        assert above is not None, f"no line {self.below!r} in document {self.document}"
        start = next((n for n in range(above, len(text)) if text[n].startswith(self.first)), None)
        assert start is not None, f"no line {self.first!r} in document {self.document}"
        if self.lines:
            return range(start, start + self.lines)
        fence = next((n for n in range(start, len(text)) if text[n].startswith("```")), len(text))
        return range(start, fence)

    def code(self, folder: Path) -> str:
        """The block as it stands in the document, repaired."""
        text = read(folder, self.document)
        lines = [text[n] for n in self.span(text)]
        if self.ends:
            assert self.ends in lines[-1], f"the block ends otherwise: {lines[-1]!r}"
            lines[-1] = lines[-1].partition(self.ends)[0] + self.ends
        code = "\n".join(lines) + "\n"
        for repair in self.repairs:
            code = repair.apply(code)
        return code


def read(folder: Path, document: str) -> list[str]:
    (path,) = folder.glob(f"{document}_*")
    return path.read_text().splitlines()


def python_lines(text: list[str]) -> Iterator[int]:
    """The lines that look like Python, in fences of Python and outside of fences."""
    fence = ""
    for n, line in enumerate(text):
        if line.startswith("```"):
            fence = "" if fence else line
        elif fence in ("", "```python") and _LOOKS_LIKE_PYTHON.match(line):
            yield n


def indented(levels: str) -> Repair:
    """Lost indentation: one digit a line, spaces between digits are for the reader."""
    digits = [int(digit) for digit in levels if digit != " "]

    def apply(code: str) -> str:
        lines = code.splitlines()
        assert len(lines) == len(digits), f"{len(lines)} lines, {len(digits)} levels"
        return "\n".join("    " * level + line.strip() for level, line in zip(digits, lines, strict=True)) + "\n"

    return Repair("lost indentation", apply)


def broken_before(*texts: str) -> Repair:
    """Lost line breaks: one before each of these texts."""

    def apply(code: str) -> str:
        for text in texts:
            assert code.count(f" {text}") == 1, f"{text!r} does not stand once in {code!r}"
            code = code.replace(f" {text}", f"\n{text}")
        return code

    return Repair("lost line breaks", apply)


def replaced(kind: str, old: str, new: str) -> Repair:
    def apply(code: str) -> str:
        assert code.count(old) == 1, f"{old!r} does not stand once in {code!r}"
        return code.replace(old, new)

    return Repair(kind, apply)


def given(kind: str, code: str) -> Repair:
    """Lines that the block takes for granted."""
    return Repair(kind, lambda block: f"{code}\n{block}")


def unmasked(name: str) -> Repair:
    """A name with an @ in it that somebody took for a mail address."""
    return replaced("masked name", "[email protected]", name)


IMPORTED = given("missing import", "from aenv import Environment")


def opened(name: str, variable: str = "env") -> tuple[Repair, ...]:
    """The environment that an excerpt uses was made somewhere above it."""
    return (given("missing object", f'{variable} = Environment("{name}")'), IMPORTED)
