"""The part of YAML that task files use: mappings, lists, block texts, quoted and plain scalars over several lines.

Not here: anchors, tags, several documents; a file that has them is refused with its line.
"""

from __future__ import annotations

import json
import re
from typing import Any

from aenv import ToolError

_KEY = re.compile(
    r"""("(?:[^"\\]|\\.)*"|'(?:[^']|'')*'|[^\s\-#"'\[\]{}&*!|>%@`?,:][^#:]*?|[^\s#:"'\[{]+)\s*:(?=\s|$)"""
)
_BLOCK = re.compile(r"([|>])([-+]?)([1-9]?)([-+]?)\s*(#.*)?\Z")
_NUMBER = re.compile(r"[-+]?(\d+(\.\d*)?|\.\d+)([eE][-+]?\d+)?\Z")
_WORDS = {"true": True, "false": False, "null": None, "~": None, "": None}


def loads(text: str) -> Any:
    """The value of a text. ToolError names the line that cannot be read."""
    reader = _Reader(text)
    value = reader.value(0)
    reader.skip()
    if reader.at < len(reader.lines):
        raise reader.error("this line fits nowhere")
    return value


class _Reader:
    def __init__(self, text: str) -> None:
        self.lines = text.replace("\r\n", "\n").replace("\t", "    ").split("\n")
        self.at = 0
        self.skip()
        if self.at < len(self.lines) and self.lines[self.at].rstrip() == "---":
            self.at += 1

    def error(self, what: str) -> ToolError:
        return ToolError(f"YAML line {self.at + 1}: {what}; use plain mappings, lists and texts")

    def skip(self) -> None:
        """To the next line that says something."""
        while self.at < len(self.lines) and not self.lines[self.at].split("#")[0].strip():
            self.at += 1

    def value(self, least: int) -> Any:
        """What begins at the next line, if that is indented at least so far; else None."""
        self.skip()
        if self.at >= len(self.lines) or (indent := self._indent()) < least:
            return None
        line = self.lines[self.at].strip()
        if line.startswith("- ") or line == "-":
            return self._list(indent)
        if _KEY.match(line):
            return self._mapping(indent)
        self.at += 1
        return self._scalar(line, least)

    def _indent(self, number: int | None = None) -> int:
        line = self.lines[self.at if number is None else number]
        return len(line) - len(line.lstrip(" "))

    def _next_text(self) -> int | None:
        """The number of the next line that is not blank."""
        return next((number for number in range(self.at, len(self.lines)) if self.lines[number].strip()), None)

    def _list(self, indent: int) -> list[Any]:
        found: list[Any] = []
        while True:
            self.skip()
            if self.at >= len(self.lines) or self._indent() != indent:
                return found
            line = self.lines[self.at]
            if not (line.strip() == "-" or line.lstrip().startswith("- ")):
                return found
            rest = line[indent + 1 :]
            # What follows the dash is as if it stood on a line of its own, as far in as it is.
            self.lines[self.at] = " " * (indent + 1) + rest
            if rest.split(" #")[0].strip():
                inner = rest.strip()
                is_nested = _KEY.match(inner) or inner.startswith("- ")
                if is_nested:
                    found.append(self.value(indent + 1))
                else:
                    self.at += 1
                    found.append(self._scalar(inner, indent + 1))
            else:
                self.at += 1
                found.append(self.value(indent + 1))

    def _mapping(self, indent: int) -> dict[str, Any]:
        found: dict[str, Any] = {}
        while True:
            self.skip()
            if self.at >= len(self.lines) or self._indent() != indent:
                return found
            line = self.lines[self.at].strip()
            match = _KEY.match(line)
            if not match:
                raise self.error(f"{line[:40]!r} is no 'key: value'")
            rest = line[match.end() :].strip()
            self.at += 1
            key = str(self._quoted(match[1]) if match[1][0] in "\"'" else match[1].strip())
            if rest and not rest.startswith("#"):
                found[key] = self._scalar(rest, indent + 1)
            else:
                self.skip()
                # A list may stand as far in as its key.
                is_list = self.at < len(self.lines) and self.lines[self.at].strip().startswith("-")
                found[key] = self.value(indent if is_list else indent + 1)

    def _scalar(self, text: str, least: int) -> Any:
        if block := _BLOCK.match(text):
            return self._block(block[1] == ">", block[2] or block[4], least, int(block[3] or 0))
        if text[0] in "\"'":
            while not _is_closed(text):
                if self.at >= len(self.lines):
                    raise self.error("a quote is not closed")
                text = f"{text} {self.lines[self.at].strip()}"
                self.at += 1
            return self._quoted(text)
        if text[0] in "[{":
            while text.count("[") > text.count("]") or text.count("{") > text.count("}"):
                if self.at >= len(self.lines):
                    raise self.error("a bracket is not closed")
                text += " " + self.lines[self.at].strip()
                self.at += 1
            return self._flow(text.split(" #")[0].strip())
        if text[0] in "&*!|>%@`":
            self.at -= 1
            raise self.error(f"{text[:20]!r} is not supported")
        while (line := self._next_text()) is not None and self._indent(line) >= least:
            breaks, self.at = line - self.at, line  # blank lines are the line breaks of the text
            if _KEY.match(self.lines[self.at].strip()):
                raise self.error("a key stands within a text")
            text = f"{text}{chr(10) * breaks or ' '}{self.lines[self.at].strip()}"
            self.at += 1
        return _plain(re.split(r"\s#", text)[0].strip())

    def _block(self, is_folded: bool, chomp: str, least: int, given: int) -> str:
        lines: list[str] = []
        indent = least - 1 + given if given else None
        while self.at < len(self.lines):
            line = self.lines[self.at]
            if line.strip():
                indent = self._indent() if indent is None else indent
                if self._indent() < max(indent, least):
                    break
                lines.append(line[indent:])
            else:
                lines.append(line[indent:] if indent is not None else "")
            self.at += 1
        text = "\n".join(lines)
        body = text.rstrip("\n")
        if is_folded:
            body = re.sub(r"(?<!\n)\n(?![\n ])", " ", body)
            body = re.sub(r"\n\n", "\n", body)
        return (
            body
            if chomp == "-" or not body
            else body + ("\n" * max(len(text) - len(body.rstrip()), 1) if chomp == "+" else "\n")
        )

    def _quoted(self, text: str) -> str:
        if text[0] == "'":
            return text[1 : text.rindex("'")].replace("''", "'")
        body = text[: text.rindex('"') + 1]
        try:
            return str(json.loads(re.sub(r"\\([^\"\\/bfnrtu])", r"\1", body)))
        except ValueError:
            raise self.error(f"{text[:40]!r} is no quoted text") from None

    def _flow(self, text: str) -> Any:
        """A list or mapping in brackets; of scalars, as task files have them."""
        inner = text[1:-1].strip()
        parts = (
            [part.strip() for part in re.findall(r"""(?:"(?:[^"\\]|\\.)*"|'[^']*'|[^,"'])+""", inner)]
            if inner
            else []
        )
        if text[0] == "[":
            return [self._quoted(part) if part[0] in "\"'" else _plain(part) for part in parts if part]
        pairs = (part.partition(":") for part in parts)
        return {key.strip().strip("\"'"): _plain(value.strip().strip("\"'")) for key, _, value in pairs}


def _is_closed(text: str) -> bool:
    if text[0] == "'":
        return bool(re.match(r"'(?:[^']|'')*'(?!')", text))
    return bool(re.match(r'"(?:[^"\\]|\\.)*"', text))


def _plain(text: str) -> Any:
    if text.lower() in _WORDS:
        return _WORDS[text.lower()]
    if _NUMBER.match(text):
        return float(text) if re.search(r"[.eE]", text) else int(text)
    return text
