"""The part of YAML that task folders use: `task.yaml` and `environment.yml`.

Mappings and lists in blocks, nested; short lists and mappings in brackets; scalars plain, quoted, folded over
lines, and as blocks (`|`, `>`). Not here: anchors, tags, several documents; they are refused with their line. It
is our own so that a folder reads the same everywhere, whether or not a YAML package is installed there.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any

_KEY = re.compile(
    r"""(?P<key>"(?:[^"\\]|\\.)*"|'(?:[^']|'')*+'|[^\s#\-\[\]{},&*!|>'"%@`][^#]*?|-[^\s#][^#]*?)\s*:(?:\s+|$)"""
)
_BLOCK = re.compile(r"[|>](?P<indent>[1-9]?)(?P<chomp>[+-]?)(?P<indent2>[1-9]?)\s*(#.*)?$")
_NUMBER = re.compile(r"[-+]?[0-9]+(?P<real>\.[0-9]*)?([eE][-+]?[0-9]+)?$")
_WORDS = {"": None, "~": None, "null": None, "true": True, "false": False, "yes": True, "no": False}
_ESCAPES = {"n": "\n", "t": "\t", "r": "\r", "0": "\0", '"': '"', "\\": "\\", "/": "/", " ": " ", "e": "\x1b"}
_HEX = {"x": 2, "u": 4, "U": 8}


class YamlError(ValueError):
    """What stands in a line is no YAML, or none that is understood here."""


def parse(text: str) -> Any:
    """What a document says: dicts, lists, strings, numbers, true, false and None."""
    lines = _Lines([line.rstrip("\r") for line in text.split("\n")])
    if lines.peek() is not None and lines.here.strip() == "---":
        lines.at += 1
    if lines.peek() is None:
        return None
    value = _node(lines, lines.indent)
    if lines.peek() is not None:
        raise lines.error("what stands here belongs to nothing above; mind how far it is indented")
    return value


@dataclass
class _Lines:
    lines: list[str]
    at: int = 0

    def peek(self) -> str | None:
        """The next line that says anything; None at the end."""
        while self.at < len(self.lines):
            line = self.lines[self.at]
            if line.strip() and not line.lstrip().startswith("#"):
                if "\t" in line[: len(line) - len(line.lstrip())]:
                    raise self.error("tabs cannot indent")
                return line
            self.at += 1
        return None

    @property
    def here(self) -> str:
        return self.lines[self.at]

    @property
    def indent(self) -> int:
        return len(self.here) - len(self.here.lstrip(" "))

    def error(self, why: str) -> YamlError:
        return YamlError(f"line {self.at + 1}: {why}")


def _node(lines: _Lines, indent: int) -> Any:
    """The list, mapping or scalar that begins in this line, all of it indented so far."""
    rest = lines.here[indent:]
    if rest == "-" or rest.startswith("- "):
        return _list(lines, indent)
    if _KEY.match(rest):
        return _mapping(lines, indent)
    lines.at += 1
    return _value(lines, rest, indent - 1)


def _list(lines: _Lines, indent: int) -> list[Any]:
    found = []
    while lines.peek() is not None and lines.indent == indent:
        rest = lines.here[indent:]
        if not (rest == "-" or rest.startswith("- ")):
            break
        inner = rest[1:].lstrip(" ")
        if inner and not inner.startswith("#") and (_KEY.match(inner) or inner.startswith("- ")):
            # What follows the dash is a block of its own, that far to the right.
            column = indent + len(rest) - len(inner)
            lines.lines[lines.at] = " " * column + inner
            found.append(_node(lines, column))
        else:
            lines.at += 1
            found.append(_value(lines, inner, indent))
    return found


def _mapping(lines: _Lines, indent: int) -> dict[str, Any]:
    found: dict[str, Any] = {}
    while lines.peek() is not None and lines.indent == indent:
        match = _KEY.match(lines.here[indent:])
        if match is None:
            raise lines.error("a 'key: value' is expected here")
        key = str(_scalar(match["key"], lines)) if match["key"][0] in "\"'" else match["key"]
        if key in found:
            raise lines.error(f"the key {key!r} stands here twice")
        rest = lines.here[indent + match.end() :].strip()
        lines.at += 1
        found[key] = _value(lines, rest, indent, is_of_key=True)
    return found


def _value(lines: _Lines, rest: str, indent: int, is_of_key: bool = False) -> Any:
    """What follows a key or a dash; `rest` is its first line, and more is indented further than `indent`."""
    if rest.startswith(("&", "*", "!")):
        lines.at -= 1
        raise lines.error(f"{rest.split()[0]!r}: anchors, aliases and tags are not understood")
    if block := _BLOCK.match(rest):
        return _block(lines, block, indent)
    if not rest or rest.startswith("#"):
        if lines.peek() is None:
            return None
        # A list may stand right below its key.
        least = indent if is_of_key and re.match(r"-( |$)", lines.here[lines.indent :]) else indent + 1
        return _node(lines, lines.indent) if lines.indent >= least else None
    return _scalar(_folded(lines, rest, indent), lines)


def _folded(lines: _Lines, text: str, indent: int) -> str:
    """A scalar with the lines that it goes on in: a line's end is a space, an empty line a line's end."""
    empty = 0
    while _goes_on(text) or not _is_closed(text):
        if lines.at >= len(lines.lines):
            break
        line = lines.here
        if line.strip() and len(line) - len(line.lstrip(" ")) <= indent:
            break
        if text[0] not in "\"'[{":
            text = _uncommented(text)
            if line.lstrip().startswith("#"):
                break
            if _KEY.match(line.lstrip()):
                raise lines.error("a 'key: value' cannot follow here; mind how far it is indented")
        lines.at += 1
        if not line.strip():
            empty += 1
            continue
        is_joined = text.startswith('"') and _ends_escaped(text)
        text = (
            (text[:-1] if is_joined else text.rstrip())
            + ("\n" * empty or ("" if is_joined else " "))
            + line.strip()
        )
        empty = 0
    if not _is_closed(text):
        raise lines.error(f"{text[:30]!r} is not closed")
    return text


def _goes_on(text: str) -> bool:
    return text[0] not in "\"'[{"


def _ends_escaped(text: str) -> bool:
    return (len(text) - len(text.rstrip("\\"))) % 2 == 1


def _is_closed(text: str) -> bool:
    if text[0] == '"':
        return bool(re.match(r'"(?:[^"\\]|\\.)*"', text, re.DOTALL))
    if text[0] == "'":
        return bool(re.match(r"'(?:[^']|'')*+'", text))
    if text[0] in "[{":
        bare = re.sub(r""""(?:[^"\\]|\\.)*"|'(?:[^']|'')*+'""", "", text)
        return bare.count("[") + bare.count("{") <= bare.count("]") + bare.count("}")
    return True


def _block(lines: _Lines, head: re.Match[str], indent: int) -> str:
    given = head["indent"] or head["indent2"]
    found: list[str] = []
    column = indent + int(given) if given else None
    while lines.at < len(lines.lines):
        line = lines.here
        width = len(line) - len(line.lstrip(" "))
        if line.strip():
            column = width if column is None and width > indent else column
            if column is None or width < column:
                break
        found.append(line[column:] if column is not None else "")
        lines.at += 1
    text = "\n".join(found)
    kept = text.rstrip("\n")
    if head[0][0] == ">":
        kept = re.sub(r"(?<=[^\n])\n(?=[^\n ])", " ", kept)
        kept = re.sub(r"\n\n(?=[^\n ])", "\n", kept)
    if head["chomp"] == "-" or not kept:
        return kept
    return kept + ("\n" if head["chomp"] != "+" else text[len(text.rstrip("\n")) :] or "\n")


def _uncommented(text: str) -> str:
    return re.sub(r"(^|\s)#.*", "", text).rstrip()


def _scalar(text: str, lines: _Lines) -> Any:
    if text[0] in "[{":
        value, end = _flow(text, 0, lines)
        if _uncommented(text[end:]):
            raise lines.error(f"{text[end:].strip()[:30]!r} after a closing bracket")
        return value
    if text[0] == '"':
        return _unescaped(_quoted(text, r'"((?:[^"\\]|\\.)*)"', lines), lines)
    if text[0] == "'":
        return _quoted(text, r"'((?:[^']|'')*+)'", lines).replace("''", "'")
    text = _uncommented(text)
    if text.lower() in _WORDS:
        return _WORDS[text.lower()]
    if number := _NUMBER.match(text):
        return float(text) if number["real"] or "e" in text.lower() else int(text)
    return text


def _quoted(text: str, pattern: str, lines: _Lines) -> str:
    match = re.match(pattern, text, re.DOTALL)
    if match is None or _uncommented(text[match.end() :]):
        raise lines.error(f"{text[:30]!r}: the quotes do not match")
    return match[1]


def _unescaped(text: str, lines: _Lines) -> str:
    def one(match: re.Match[str]) -> str:
        kind = match[1][0]
        if kind in _HEX and len(match[1]) == 1 + _HEX[kind]:
            return chr(int(match[1][1:], 16))
        if kind not in _ESCAPES:
            raise lines.error(f"the escape '\\{kind}' is not understood")
        return _ESCAPES[kind]

    return re.sub(r"\\(x[0-9a-fA-F]{2}|u[0-9a-fA-F]{4}|U[0-9a-fA-F]{8}|.)", one, text, flags=re.DOTALL)


def _flow(text: str, at: int, lines: _Lines) -> tuple[Any, int]:
    """A list or mapping in brackets, and where it ends."""
    is_list = text[at] == "["
    items: list[Any] = []
    pairs: dict[str, Any] = {}
    at += 1
    while True:
        at += len(text[at:]) - len(text[at:].lstrip())
        if at >= len(text):
            raise lines.error("a bracket is not closed")
        if text[at] in "]}":
            return (items if is_list else pairs), at + 1
        if text[at] == ",":
            at += 1
            continue
        if is_list:
            value, at = _flow_item(text, at, lines)
            items.append(value)
            continue
        key, at = _flow_item(text, at, lines, ":")
        at = text.find(":", at) + 1
        at += len(text[at:]) - len(text[at:].lstrip())
        pairs[str(key)], at = _flow_item(text, at, lines) if text[at : at + 1] not in (",", "}") else (None, at)


def _flow_item(text: str, at: int, lines: _Lines, also: str = "") -> tuple[Any, int]:
    if text[at] in "[{":
        return _flow(text, at, lines)
    match = re.compile(r""""(?:[^"\\]|\\.)*"|'(?:[^']|'')*+'|[^,\]\}""" + also + "]+").match(text, at)
    if match is None:
        raise lines.error(f"{text[at:][:30]!r} is not understood")
    return _scalar(match[0].strip() or "~", lines), match.end()
