"""The Python packages that a shell script would install: its lines of pip and uv, read and never run.

Not here: installing them (`aenv.artifacts.requirements`), which happens in a folder of their own.
"""

from __future__ import annotations

import posixpath
import re
import shlex
from collections.abc import Callable, Iterator

_BEFORE_A_COMMAND = {"sudo", "then", "else", "do", "if", "!", "{", "(", "time", "exec", "-E", "command"}
_ASSIGNMENT = re.compile(r"[A-Za-z_]\w*=")
_PYTHON = re.compile(r"python[\d.]*\Z")
_PLAIN = re.compile(r"[A-Za-z0-9][\w.-]*(\[[\w,.\s-]*\])?\s*([<>=!~][^@/$`;]*)?\Z", re.ASCII)
# Options whose next word is a value, and not a package.
_WITH_VALUE = {
    *("-i", "--index-url", "--extra-index-url", "--index", "--default-index", "-f", "--find-links", "-c"),
    *("--constraint", "--constraints", "-p", "--python", "-t", "--target", "--prefix", "--root", "--trusted-host"),
    *("--timeout", "--retries", "--cache-dir", "--group", "--extra", "--optional", "--project", "--directory"),
    *("--python-version", "--platform", "--no-binary", "--only-binary", "--index-strategy", "--upgrade-strategy"),
    *("--script", "--package", "--bounds", "--marker", "-m", "-e", "--editable", "--tag", "--branch", "--rev"),
}
_REQUIREMENTS = ("-r", "--requirement", "--requirements", "--with-requirements")
_WITH = ("-w", "--with", "--from")

_RUNNERS = ("source", ".", "bash", "sh")

FindFile = Callable[[str], str | None]
"""The text of the file with this name, which a script names; None when there is none."""


def packages(script: str, find_file: FindFile = lambda name: None) -> list[str]:
    """The requirements that a script names, each once, in their order.

    What is not a name with a version (a path, an address, a variable) is left out: it must not be installed
    on a host.
    """
    found = _required(script, find_file, set())
    return list(dict.fromkeys(one.strip() for one in found if _PLAIN.match(one.strip())))


def _required(script: str, find_file: FindFile, seen: set[str]) -> Iterator[str]:
    for words in _commands(script):
        yield from _installed(words, find_file)
        if words[0] in _RUNNERS and len(words) > 1:
            name = posixpath.basename(words[1])
            if name.endswith(".sh") and name not in seen:
                yield from _required(find_file(name) or "", find_file, seen | {name})


def _commands(script: str) -> Iterator[list[str]]:
    for line in script.replace("\\\r\n", " ").replace("\\\n", " ").splitlines():
        for part in _parts(line):
            words = part
            while words and (words[0] in _BEFORE_A_COMMAND or _ASSIGNMENT.match(words[0])):
                words = words[1:]
            if words:
                yield [posixpath.basename(words[0].rstrip(")")), *words[1:]]


def _parts(line: str) -> Iterator[list[str]]:
    """The commands of a line, as words."""
    lexer = shlex.shlex(line, posix=True, punctuation_chars=";&|()")
    lexer.whitespace_split = True
    lexer.commenters = "#"
    words: list[str] = []
    try:
        for word in lexer:
            if re.fullmatch(r"[;&|()]+", word):
                yield words
                words = []
            else:
                words.append(word)
    except ValueError:  # a quote that ends on another line: no line that installs something
        return
    yield words


def _installed(words: list[str], find_file: FindFile) -> Iterator[str]:
    if (_PYTHON.match(words[0]) and words[1:3] == ["-m", "pip"]) or words[:2] == ["uv", "pip"]:
        words = ["pip", *words[3 if words[0] != "uv" else 2 :]]
    match words:
        case ["pip" | "pip3", "install", *rest] | ["uv", "add", *rest]:
            yield from _named(rest, find_file)
        case ["uvx", *rest] | ["uv", "tool", "run", *rest] | ["uv", "run", *rest]:
            yield from _named(rest, find_file, is_run=True)
        case ["uv", "tool", "install", *rest]:
            yield from _named(rest, find_file)


def _named(words: list[str], find_file: FindFile, *, is_run: bool = False) -> Iterator[str]:
    """Of `pip install` and `uv add`: everything that is not an option. Of a program: what comes with it."""
    waiting = iter(words)
    for word in waiting:
        option, equals, value = word.partition("=")
        if option in (*_REQUIREMENTS, *_WITH):
            yield from _value(option, value if equals else next(waiting, ""), find_file)
        elif word in _WITH_VALUE:
            next(waiting, None)
        elif is_run and not word.startswith("-"):
            return  # its name
        elif word.startswith((">", "<", "2>")):  # where its output goes
            if word in (">", ">>", "2>", "<"):
                next(waiting, None)
        elif not word.startswith("-"):
            yield word


def _value(option: str, value: str, find_file: FindFile) -> Iterator[str]:
    if option in _REQUIREMENTS:
        text = find_file(posixpath.basename(value)) or ""
        yield from (re.sub(r"(^|\s)#.*", "", line).strip() for line in text.splitlines())
    elif option in _WITH:
        yield from value.split(",")
