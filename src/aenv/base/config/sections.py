"""How a field of config.json is declared, and how the fields of one object are read.

Every object of config.json is a dataclass, a `ConfigSection`, whose attributes are declared with `entry`; the text
below an attribute is what the documentation says of it. Unknown keys are kept, and named in a warning with their
line. A wrong value is an error with its line, its field and what to write instead.
"""

from __future__ import annotations

import dataclasses
import json
import logging
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from difflib import get_close_matches
from functools import cache, cached_property, lru_cache
from typing import Any, ClassVar

from ..errors import InvalidRequest

logger = logging.getLogger("aenv.base.config")

FILE_NAME = "config.json"
Engines = tuple[str, ...]
ALL: Engines = ("native", "process", "docker", "kubernetes")
NATIVE: Engines = ("native",)
CONTAINED: Engines = ("native", "docker")
RELAYED: Engines = ("native", "process")
"""Those whose instances have a way to their gateway."""
ISOLATED: Engines = (*CONTAINED, "kubernetes")
NATIVE_PODS: Engines = ("native", "kubernetes")
IMAGES: Engines = ("docker", "kubernetes")
PODS: Engines = ("kubernetes",)
_JSON_NAMES = {
    str: "a string",
    int: "a whole number",
    float: "a number",
    bool: "true or false",
    list: "a list",
    dict: "an object",
}
# Inside a string nothing else of this can match, so braces and colons in strings do not count.
_TOKEN = re.compile(r'(?P<string>"[^"\\]*(?:\\.[^"\\]*)*")(?P<colon>\s*:)?|[{}\[\]]')


@dataclass(frozen=True)
class ConfigSection:
    """An object of config.json."""

    required: ClassVar[tuple[str, ...]] = ()
    """Keys that must have a value that is not empty."""
    old_names: ClassVar[Mapping[str, str]] = {}
    """What keys were called before, which is still read: the new names, by the old ones."""
    unused: ClassVar[tuple[str, ...]] = ()
    """Keys that published projects have, and that change nothing."""
    refuses_unknown: ClassVar[bool] = False
    once_unchecked: ClassVar[tuple[str, ...]] = ()
    """Keys whose values earlier builds did not check: a wrong one in a pushed bundle, which cannot change, is left
    out. "*" stands for all."""

    raw: Mapping[str, Any] = field(default_factory=dict, kw_only=True, repr=False, compare=False)
    """The object as it was written: what a hub stores, and what replies show."""

    @classmethod
    @cache
    def entries(cls) -> Mapping[str, tuple[str, ConfigField]]:
        """The fields by their keys in config.json, each with the name of its attribute."""
        declared = ((each.name, each.metadata.get("entry")) for each in dataclasses.fields(cls))
        return {told.key: (name, told) for name, told in declared if told}


@dataclass(frozen=True)
class ValueKind:
    """A kind of value: the JSON that it is written as, and what it is read as."""

    words: str
    types: tuple[type, ...]
    parse: Callable[[Any], Any] = lambda value: value
    """From a value of these types; InvalidRequest says what is wrong with it, and what to write instead."""
    section: type[ConfigSection] | None = None
    """What an object is read as instead."""
    skips_empty: bool = False
    """Whether an empty text is as if the field were not there."""


@dataclass(frozen=True)
class ConfigField:
    """What a field of config.json is: how it is read, and how the documentation describes it."""

    key: str
    kind: ValueKind
    example: Any
    engines: Engines
    """Those that honour it. What the gateway or the command line honours holds for all of them."""
    otherwise: str
    """For the documentation: what holds without the field, where its default does not tell."""


def entry(
    key: str, kind: ValueKind, example: Any, engines: Engines = ALL, default: Any = None, otherwise: str = ""
) -> Any:
    """Declare an attribute of a section; it is `default` where config.json does not have the field."""
    return field(default=default, metadata={"entry": ConfigField(key, kind, example, engines, otherwise)})


@dataclass(frozen=True)
class ConfigText:
    """The text of a config.json, which tells the line of a field; empty for an object that a hub has stored."""

    text: str = ""
    project: str = ""
    """The folder of the file: a warning that is given once is given once for each."""
    is_published: bool = False
    """Whether it came with a bundle of a hub."""

    @cached_property
    def _lines(self) -> dict[str, int]:
        return key_lines(self.text)

    def place(self, name: str) -> str:
        """ "config.json:12: deployConfig.ttl: ", or the field alone where there is no text."""
        line = f"{FILE_NAME}:{self._lines.get(name, 1)}: " if self.text else ""
        return f"{line}{name}: " if name else line

    def error(self, name: str, problem: str) -> InvalidRequest:
        return InvalidRequest(f"{self.place(name)}{problem}")

    def warn(self, name: str, problem: str) -> None:
        """Tell its author, once in a process; who runs what a hub has stored could not change it."""
        if self.text:
            _warn_once(f"{self.place(name)}{problem}", self.project)


def read_fields(
    section: type[ConfigSection], raw: Mapping[str, Any], text: ConfigText, where: str
) -> dict[str, Any]:
    """The attributes that the object at the path `where` gives a value. InvalidRequest names a wrong field."""
    known = section.entries()
    found: dict[str, Any] = {}
    for key, value in raw.items():
        name, new = f"{where}{key}", section.old_names.get(key, key)
        if key in section.unused:
            continue
        if new not in known:
            if section.refuses_unknown:
                raise text.error(name, f"is not known here; use {', '.join(map(repr, known))}")
            near = get_close_matches(key, known, 1)
            text.warn(name, "unknown field has no effect" + (f"; did you mean {near[0]!r}?" if near else ""))
            continue
        if new != key:
            if new in raw:
                raise text.error(name, f"is the old name of {new!r}, which is there too; remove {key!r}")
            text.warn(name, f"is now called {new!r}; rename it")
        attribute, told = known[new]
        if value is not None and (value != "" or not told.kind.skips_empty):
            try:
                found[attribute] = read_value(told, value, name, text)
            except InvalidRequest:
                if not (text.is_published and {key, "*"} & {*section.once_unchecked}):
                    raise
    for key in section.required:
        if not raw.get(key):
            example = json.dumps({key: known[key][1].example})[1:-1]
            raise text.error(where.removesuffix("."), f"lacks {key!r}; add it as in {example}")
    return found


def read_value(told: ConfigField, value: Any, name: str, text: ConfigText) -> Any:
    kind = told.kind
    if not isinstance(value, kind.types) or (isinstance(value, bool) and bool not in kind.types):
        expected = " or ".join(_JSON_NAMES[each] for each in kind.types)
        raise text.error(name, f"must be {expected}, as in {json.dumps(told.example)}")
    if kind.section and isinstance(value, dict):
        return kind.section(raw=value, **read_fields(kind.section, value, text, f"{name}."))
    if kind.section and isinstance(value, list):
        return tuple(_object(kind.section, one, told, f"{name}.{at}", text) for at, one in enumerate(value))
    try:
        return kind.parse(value)
    except InvalidRequest as error:
        raise text.error(name, error.message) from None


def _object(section: type[ConfigSection], value: Any, told: ConfigField, name: str, text: ConfigText) -> Any:
    """One of a list of objects."""
    if not isinstance(value, dict):
        raise text.error(name, f"must be an object, as in {json.dumps(told.example)}")
    return section(raw=value, **read_fields(section, value, text, f"{name}."))


def key_lines(text: str) -> dict[str, int]:
    """The line of every key of a valid JSON text, by its dotted path: `{"deployConfig.ttl": 4, "uses.0.env": 9}`.

    Objects and lists in a list are numbered.
    Of a key that is given twice it is the last one, which is the one that `json.loads` takes.
    """
    lines: dict[str, int] = {}
    above: list[str] = []
    counts: list[int] = []  # of what was in each list so far; -1 for an object
    key, line, position = "", 1, 0
    for token in _TOKEN.finditer(text):
        line += text.count("\n", position, token.start())
        position = token.start()
        if token["colon"]:
            key = json.loads(token["string"])
            lines[".".join([*above[1:], key])] = line
        elif token[0] in "{[":
            is_numbered = bool(counts) and counts[-1] >= 0
            above.append(str(counts[-1]) if is_numbered else key)
            if is_numbered:
                counts[-1] += 1
            counts.append(0 if token[0] == "[" else -1)
        elif token[0] in "}]":
            key = above.pop()
            counts.pop()
    return lines


@lru_cache(1000)
def _warn_once(message: str, project: str) -> None:
    """Gateways read the same project again and again."""
    logger.warning("%s", message)
