"""A terminal's screen: what programs write becomes lines of text, as a person before it would see them.

Of the control sequences those that move, erase, insert and scroll are done; colours and the like change no text.
docs/adr/0029 compares it with pyte.
"""

from __future__ import annotations

import codecs
import re
import unicodedata
from collections import deque
from collections.abc import Callable

COLUMNS, ROWS = 160, 40
HISTORY_ROWS = 2000
_TAB = 8
_SEQUENCE = re.compile(
    r"\x1b(?:"
    r"\[(?P<private>[<=>?]?)(?P<numbers>[0-9;:]*)[ -/]*(?P<final>[@-~])"
    r"|\](?P<title>[^\x07\x1b]*)(?:\x07|\x1b\\)"
    r"|[PX^_][^\x1b]*\x1b\\"
    r"|(?P<slot>[ #%()*+./-])(?P<set>.)"
    r"|(?P<plain>[0-9=>A-OQ-WYZa-z|}~])"
    r")",
    re.DOTALL,
)
# How programs without UTF-8 draw frames: the letters of the set "0".
_FRAMES = str.maketrans("`ajklmnqtuvwx~", "◆▒┘┐┌└┼─├┤┴┬│·")
_LONGEST_SEQUENCE = 4096  # characters; what does not end by then is not a sequence


class Screen:
    """`write` what comes from a terminal; `text` is what it shows."""

    def __init__(self, answer: Callable[[bytes], None], columns: int = COLUMNS, rows: int = ROWS) -> None:
        """`answer` is told what a terminal says when a program asks it something."""
        self._answer = answer
        self._columns, self._rows = columns, rows
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")
        self._rest = ""
        self.history: deque[str] = deque(maxlen=HISTORY_ROWS)
        self._reset()

    def _reset(self) -> None:
        self._lines = [self._blank() for _ in range(self._rows)]
        self._other: list[list[str]] | None = None
        self._row = self._column = 0
        self._saved = (0, 0)
        self._top, self._bottom = 0, self._rows - 1
        self._wraps = self._inserts = self._frames = False
        self._last = ""

    def text(self, *, with_history: bool = False) -> str:
        """The lines, without what is empty at their ends and below the last."""
        lines = [*(self.history if with_history else ()), *("".join(line).rstrip() for line in self._lines)]
        return "\n".join(lines).rstrip("\n")

    def write(self, data: bytes) -> None:
        text = self._rest + self._decoder.decode(data)
        self._rest = ""
        at = 0
        while at < len(text):
            char = text[at]
            if char != "\x1b":
                self._put(char)
                at += 1
            elif match := _SEQUENCE.match(text, at):
                self._obey(match)
                at = match.end()
            elif len(text) - at < _LONGEST_SEQUENCE:
                self._rest = text[at:]  # the end of it is still to come
                return
            else:
                at += 1

    # Text

    def _put(self, char: str) -> None:
        match char:
            case "\r":
                self._column, self._wraps = 0, False
            case "\n" | "\v" | "\f":
                self._down()
            case "\b":
                self._column, self._wraps = max(self._column - 1, 0), False
            case "\t":
                self._column = min((self._column // _TAB + 1) * _TAB, self._columns - 1)
            case _ if char >= " " and char != "\x7f":
                self._show(char)

    def _show(self, char: str) -> None:
        line = self._lines[self._row]
        if unicodedata.combining(char):
            at = self._column if self._wraps else max(self._column - 1, 0)
            line[at] += char
            return
        if self._frames:
            char = char.translate(_FRAMES)
        self._last = char
        width = 2 if unicodedata.east_asian_width(char) in "WF" else 1
        if self._wraps or self._column + width > self._columns:
            self._column = 0
            self._down()
            line = self._lines[self._row]
        if self._inserts:
            self._shift("@", width)
        line[self._column] = char
        if width == 2:
            line[self._column + 1] = ""  # covered by the one before it
        self._wraps = self._column + width >= self._columns
        self._column = min(self._column + width, self._columns - 1)

    def _down(self) -> None:
        self._wraps = False
        if self._row == self._bottom:
            self._scroll(1)
        elif self._row < self._rows - 1:
            self._row += 1

    def _up(self) -> None:
        if self._row == self._top:
            self._scroll(-1)
        else:
            self._row = max(self._row - 1, 0)

    def _scroll(self, count: int, top: int | None = None) -> None:
        """Move the lines of the region up, or with a negative number down."""
        first = self._top if top is None else top
        for _ in range(min(abs(count), self._rows)):
            if count > 0:
                gone = self._lines.pop(first)
                self._lines.insert(self._bottom, self._blank())
                if first == 0 and top is None and self._other is None:
                    self.history.append("".join(gone).rstrip())
            else:
                self._lines.pop(self._bottom)
                self._lines.insert(first, self._blank())

    def _blank(self) -> list[str]:
        return [" "] * self._columns

    # Control sequences

    def _obey(self, match: re.Match[str]) -> None:
        if final := match["final"]:
            numbers = [int(number or 0) for number in match["numbers"].replace(":", ";").split(";")]
            self._control(final, numbers, match["private"])
        elif match["slot"] == "(":
            self._frames = match["set"] == "0"
        match match["plain"]:
            case "7":
                self._saved = self._row, self._column
            case "8":
                self._go(*self._saved)
            case "D":
                self._down()
            case "E":
                self._column = 0
                self._down()
            case "M":
                self._up()
            case "c":
                self._reset()

    def _control(self, final: str, numbers: list[int], private: str) -> None:
        first = numbers[0]
        count = min(max(first, 1), self._columns * self._rows)
        second = numbers[1] if len(numbers) > 1 else 0
        match final:
            case "A" | "F":
                self._go(max(self._row - count, 0), 0 if final == "F" else self._column)
            case "B" | "e" | "E":
                self._go(self._row + count, 0 if final == "E" else self._column)
            case "C" | "a":
                self._go(self._row, self._column + count)
            case "D":
                self._go(self._row, self._column - count)
            case "G" | "`":
                self._go(self._row, count - 1)
            case "d":
                self._go(count - 1, self._column)
            case "H" | "f":
                self._go(count - 1, max(second, 1) - 1)
            case "J" | "K":
                self._erase(final, first)
            case "L" | "M" if self._top <= self._row <= self._bottom:
                self._scroll(-count if final == "L" else count, self._row)
            case "S" | "T":
                self._scroll(count if final == "S" else -count)
            case "P" | "@" | "X":
                self._shift(final, count)
            case "b" if self._last:
                for _ in range(min(count, self._columns)):  # no program repeats beyond its line
                    self._show(self._last)
            case "r" if not private:
                top, bottom = count - 1, (second or self._rows) - 1
                if top < bottom < self._rows:
                    self._top, self._bottom = top, bottom
                    self._go(0, 0)
            case "s" if not private:
                self._saved = self._row, self._column
            case "u" if not private:
                self._go(*self._saved)
            case "h" | "l" if private == "?" and {*numbers} & {47, 1047, 1049}:
                self._alternate(is_on=final == "h")
            case "h" | "l" if not private and 4 in numbers:
                self._inserts = final == "h"
            case "n" if first == 6 and not private:
                self._answer(b"\x1b[%d;%dR" % (self._row + 1, self._column + 1))
            case "c" if not private:
                self._answer(b"\x1b[?6c")

    def _go(self, row: int, column: int) -> None:
        self._row = min(max(row, 0), self._rows - 1)
        self._column = min(max(column, 0), self._columns - 1)
        self._wraps = False

    def _erase(self, what: str, how: int) -> None:
        line, column = self._lines[self._row], self._column
        if how == 0:
            line[column:] = [" "] * (self._columns - column)
        elif how == 1:
            line[: column + 1] = [" "] * (column + 1)
        else:
            line[:] = self._blank()
        if what == "J":
            rows = {0: range(self._row + 1, self._rows), 1: range(self._row)}.get(how, range(self._rows))
            for row in rows:
                self._lines[row] = self._blank()
            if how == 3:
                self.history.clear()

    def _shift(self, what: str, count: int) -> None:
        line, column = self._lines[self._row], self._column
        count = min(count, self._columns - column)
        spaces = [" "] * count
        if what == "P":
            line[column:] = line[column + count :] + spaces
        elif what == "@":
            line[column:] = (spaces + line[column:])[: self._columns - column]
        else:
            line[column : column + count] = spaces

    def _alternate(self, *, is_on: bool) -> None:
        """The second screen that editors and the like use; what was on the first comes back after them."""
        if is_on and self._other is None:
            self._other, self._saved = self._lines, (self._row, self._column)
            self._lines = [self._blank() for _ in range(self._rows)]
        elif not is_on and self._other is not None:
            self._lines, self._other = self._other, None
            self._top, self._bottom = 0, self._rows - 1
            self._go(*self._saved)
