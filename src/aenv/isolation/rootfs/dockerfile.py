"""Dockerfiles: their text becomes instructions. Pure: nothing is read, run or looked up.

Not here: what the instructions do (`dockerfile_build.py`).
"""

from __future__ import annotations

import difflib
import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from ...base.errors import InvalidRequest

_KNOWN = (
    *("ADD", "ARG", "CMD", "COPY", "ENTRYPOINT", "ENV", "EXPOSE", "FROM", "HEALTHCHECK", "LABEL", "MAINTAINER"),
    *("ONBUILD", "RUN", "SHELL", "STOPSIGNAL", "USER", "VOLUME", "WORKDIR"),
)
_WITH_FLAGS = ("ADD", "COPY", "FROM", "HEALTHCHECK", "RUN")
_WITH_HEREDOCS = ("ADD", "COPY", "RUN")
_DIRECTIVE = re.compile(r"#\s*(\w+)\s*=\s*(.*?)\s*\Z")
_FLAG = re.compile(r"--([a-z-]+)(?:=((?:\"[^\"]*\"|\S)*))?(?:\s+|\Z)")
_HEREDOC = re.compile(r"(?<!<)<<(-?)(['\"]?)([A-Za-z_]\w*)\2")
_VARIABLE = re.compile(r"\$(?:(\w+)|\{(\w+)(?:(:?[-+])((?:[^{}$]|\$\w+|\$\{[^{}]*\})*))?\})", re.ASCII)
_FROM = re.compile(r"(\S+)(?:\s+AS\s+([a-z][a-z0-9_.-]*))?\Z", re.IGNORECASE)


@dataclass(frozen=True)
class Heredoc:
    """Lines that stand below an instruction: a script, or a file's content."""

    name: str
    text: str
    is_literal: bool


@dataclass(frozen=True)
class Instruction:
    """One instruction, as it is spelled: nothing in it is substituted yet."""

    line: int
    name: str
    text: str
    flags: tuple[tuple[str, str], ...] = ()
    heredocs: tuple[Heredoc, ...] = ()
    escape: str = "\\"

    @property
    def listed(self) -> tuple[str, ...] | None:
        """The words of the form ["a", "b"]; None in the other form."""
        try:
            found = json.loads(self.text) if self.text.startswith("[") else None
        except ValueError:
            return None
        if isinstance(found, list) and all(isinstance(word, str) and _is_text(word) for word in found):
            return tuple(found)
        return None

    def words(self, variables: Mapping[str, str]) -> list[str]:
        """The words, substituted and without their quotes."""
        if (listed := self.listed) is not None:
            return [_substituted(self, word, variables, is_split=False)[0] for word in listed]
        return _substituted(self, self.text, variables, is_split=True)

    def value(self, variables: Mapping[str, str], text: str | None = None) -> str:
        """All of it as one text, substituted."""
        return _substituted(self, self.text if text is None else text, variables, is_split=False)[0]

    def expanded(self, heredoc: Heredoc, variables: Mapping[str, str]) -> str:
        """The text of a heredoc, substituted; quotes mean nothing there."""
        if heredoc.is_literal:
            return heredoc.text
        pattern = re.compile(rf"{re.escape(self.escape)}\$|{_VARIABLE.pattern}", re.ASCII)
        return pattern.sub(
            lambda match: _value(self, match, variables) if match[1] or match[2] else "$", heredoc.text
        )

    def pairs(self, variables: Mapping[str, str]) -> Iterator[tuple[str, str | None]]:
        """The names and values of ENV and ARG."""
        first, rest = (*re.split(r"\s+", self.text, maxsplit=1), "")[:2]
        if self.name == "ENV" and "=" not in first:
            if not rest:
                raise self.error("ENV needs a name and a value; write ENV NAME=VALUE")
            yield first, self.value(variables, rest)
            return
        for word in self.words(variables):
            name, equals, value = word.partition("=")
            if not re.match(r"[A-Za-z_]\w*\Z", name) or (self.name == "ENV" and not equals):
                raise self.error(f"{word!r} is not NAME=VALUE; put quotes around values with spaces")
            yield name, value if equals else None

    def error(self, message: str) -> InvalidRequest:
        return InvalidRequest(f"Dockerfile line {self.line}: {message}")


@dataclass(frozen=True)
class BuildStage:
    """FROM, and what follows it."""

    origin: Instruction
    base: str
    name: str
    instructions: list[Instruction] = field(default_factory=list)


@dataclass(frozen=True)
class Dockerfile:
    arguments: tuple[Instruction, ...]
    """The ARGs above the first FROM."""
    stages: tuple[BuildStage, ...]


def parse(text: str) -> Dockerfile:
    """Read a Dockerfile; InvalidRequest names the line and the fix."""
    if not _is_text(text):
        raise InvalidRequest("the Dockerfile is not text: it has characters that no path can have")
    arguments: list[Instruction] = []
    stages: list[BuildStage] = []
    for instruction in _instructions(text):
        if instruction.name == "FROM":
            match = _FROM.match(instruction.text)
            if not match:
                raise instruction.error("FROM must be FROM IMAGE, or FROM IMAGE AS NAME")
            stages.append(BuildStage(instruction, match[1], (match[2] or "").lower()))
        elif stages:
            stages[-1].instructions.append(instruction)
        elif instruction.name == "ARG":
            arguments.append(instruction)
        else:
            raise instruction.error(f"{instruction.name} stands before FROM; begin with FROM IMAGE")
    if not stages:
        raise InvalidRequest("the Dockerfile has no FROM; begin with FROM IMAGE")
    return Dockerfile(tuple(arguments), tuple(stages))


def _is_text(text: str) -> bool:
    return not re.search("[\0\ud800-\udfff]", text)


def _instructions(text: str) -> Iterator[Instruction]:
    lines = text.lstrip("\ufeff").replace("\r\n", "\n").split("\n")
    escape, at = _directives(lines)
    while at < len(lines):
        start = at + 1
        logical, at = _logical(lines, at, escape)
        if not logical:
            continue
        name, rest = (*re.split(r"\s+", logical, maxsplit=1), "")[:2]
        plain = Instruction(start, name.upper(), rest, escape=escape)
        if plain.name not in _KNOWN:
            near = difflib.get_close_matches(plain.name, _KNOWN, 1)
            raise plain.error(f"unknown instruction {name!r}" + (f"; did you mean {near[0]}?" if near else ""))
        if not plain.text:
            raise plain.error(f"{plain.name} needs something after it")
        flags, rest = _flags(plain)
        heredocs, at = _heredocs(plain, lines, at)
        yield Instruction(start, plain.name, rest, flags, heredocs, escape)


def _directives(lines: list[str]) -> tuple[str, int]:
    """The escape character, and the number of the first line that is not a directive."""
    for number, line in enumerate(lines):
        match = _DIRECTIVE.match(line.strip())
        if not match or match[1].lower() not in ("escape", "syntax", "check"):
            return "\\", number
        if match[1].lower() == "escape":
            if match[2] not in ("\\", "`"):
                raise InvalidRequest(f"Dockerfile line {number + 1}: escape must be \\ or `")
            return match[2], number + 1
    return "\\", len(lines)


def _logical(lines: list[str], at: int, escape: str) -> tuple[str, int]:
    """One line with those that continue it, without comments; and where the next begins."""
    parts: list[str] = []
    while at < len(lines):
        line = lines[at].rstrip()
        at += 1
        if line.lstrip().startswith("#") or not line.strip():
            if parts:
                continue
            break
        if line.endswith(escape):
            parts.append(line[:-1])
            continue
        parts.append(line)
        break
    return "".join(parts).strip(), at


def _flags(instruction: Instruction) -> tuple[tuple[tuple[str, str], ...], str]:
    found, rest = [], instruction.text
    while instruction.name in _WITH_FLAGS and (match := _FLAG.match(rest)):
        found.append((match[1], (match[2] or "").replace('"', "")))
        rest = rest[match.end() :]
    return tuple(found), rest


def _heredocs(instruction: Instruction, lines: list[str], at: int) -> tuple[tuple[Heredoc, ...], int]:
    found = []
    for match in _HEREDOC.finditer(instruction.text) if instruction.name in _WITH_HEREDOCS else ():
        before = instruction.text[: match.start()]
        if before.count('"') % 2 or before.count("'") % 2:
            continue  # within quotes it is text
        body = []
        while True:
            if at >= len(lines):
                raise instruction.error(
                    f"the lines after <<{match[3]} have no end; put {match[3]} on one of its own"
                )
            line = lines[at].lstrip("\t") if match[1] else lines[at]
            at += 1
            if line == match[3]:
                break
            body.append(f"{line}\n")
        found.append(Heredoc(match[3], "".join(body), bool(match[2])))
    return tuple(found), at


def _substituted(origin: Instruction, text: str, variables: Mapping[str, str], *, is_split: bool) -> list[str]:
    """The words of a text (or all of it as one), without quotes, and with values for variables."""
    words: list[str] = []
    word: str | None = None
    quote, at = "", 0
    while at < len(text):
        char = text[at]
        if char == origin.escape and quote != "'" and at + 1 < len(text):
            # Between double quotes only what is special there can be escaped.
            kept = char if quote and text[at + 1] not in ('"', "$", origin.escape) else ""
            word = (word or "") + kept + text[at + 1]
            at += 2
        elif char == "$" and quote != "'":
            match = _VARIABLE.match(text, at)
            if not match and text[at : at + 2] == "${":
                shown = text[at:].partition("}")[0]
                raise origin.error(
                    f"cannot substitute '{shown}}}'; only ${{X}}, ${{X:-default}} and ${{X:+other}} work"
                )
            word = (word or "") + (_value(origin, match, variables) if match else "$")
            at = match.end() if match else at + 1
        elif char in "'\"" and quote in ("", char):
            quote, word = ("" if quote else char), word or ""
            at += 1
        elif char in " \t" and not quote and is_split:
            words += [] if word is None else [word]
            word = None
            at += 1
        else:
            word = (word or "") + char
            at += 1
    if quote:
        raise origin.error(f"a quote ({quote}) is not closed")
    return words + ([] if word is None and is_split else [word or ""])


def _value(origin: Instruction, match: re.Match[str], variables: Mapping[str, str]) -> str:
    name, operator, other = match[1] or match[2], match[3] or "", match[4] or ""
    value = variables.get(name)
    is_set = bool(value) if operator.startswith(":") else value is not None
    if operator.endswith("-") and not is_set:
        return origin.value(variables, other)
    if operator.endswith("+"):
        return origin.value(variables, other) if is_set else ""
    return value or ""
