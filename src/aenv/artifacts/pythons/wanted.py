"""The Python that an environment asks for: by its Dockerfile (`FROM python:3.12-slim`), else by `requires-python`.

Its files are a stranger's: they are read with a limit, within its folder, and nothing of them is run.
"""

from __future__ import annotations

import re
import sys
import tomllib
from dataclasses import dataclass
from pathlib import Path

from ...base.errors import InvalidRequest
from ...base.paths import below

OLDEST = (3, 11)
"""What the runtime itself needs; `requires-python` of our own pyproject.toml says the same."""
_NEWEST = (3, 20)
_MAX_BYTES = 1 << 20
_MAX_CLAUSES = 200  # characters
# Blanks, not all white space, and few digits: a file of a million empty lines must not take hours.
_FROM = re.compile(
    r"^[ \t]*FROM[ \t]+(?:--\S+[ \t]+)*(?:\S*/)?python:(\d{1,3})\.(\d{1,3})", re.IGNORECASE | re.MULTILINE
)
_CLAUSE = re.compile(r"\s*(~=|===?|!=|<=|>=|<|>)\s*(\d{1,4}(?:\.\d{1,4})*)(\.\*)?\s*\Z")

Minor = tuple[int, int]


@dataclass(frozen=True)
class WantedPython:
    """The Python that an environment asks for."""

    words: str
    """For people: what asks for which."""
    minors: tuple[Minor, ...]
    """Those that it accepts, newest first."""

    @property
    def is_ours(self) -> bool:
        return sys.version_info[:2] in self.minors

    @property
    def usable(self) -> tuple[Minor, ...]:
        """Those that the runtime works with."""
        return tuple(minor for minor in self.minors if minor >= OLDEST)


def wanted(folder: Path, dockerfile: str = "Dockerfile") -> WantedPython | None:
    """What the project in this folder asks for, if anything. InvalidRequest when that cannot be read."""
    if found := _FROM.findall(_text(folder, dockerfile)):
        major, minor = map(int, found[-1])  # the last one is what the image is made of
        return WantedPython(f"its Dockerfile asks for Python {major}.{minor}", ((major, minor),))
    try:
        told = tomllib.loads(_text(folder, "pyproject.toml")).get("project")
    except (tomllib.TOMLDecodeError, RecursionError) as error:
        raise InvalidRequest(f"pyproject.toml in {str(folder)!r} cannot be read: {error}") from None
    asked = told.get("requires-python") if isinstance(told, dict) else None
    if not isinstance(asked, str):
        return None
    if len(asked) > _MAX_CLAUSES:
        raise InvalidRequest(f"requires-python is longer than {_MAX_CLAUSES} characters")
    minors = [(3, minor) for minor in range(_NEWEST[1], 5, -1)]
    accepted = tuple(minor for minor in minors if all(_accepts(clause, minor) for clause in asked.split(",")))
    return WantedPython(f"its pyproject.toml asks for Python {asked}", accepted)


def spelled(minor: Minor) -> str:
    """As people write it: "3.12"."""
    return ".".join(map(str, minor))


def _text(folder: Path, name: str) -> str:
    """The beginning of a file of the project; empty when there is none, or a link leads out of the folder."""
    file = below(folder, name)
    if file is None or not file.is_file():
        return ""
    try:
        with file.open("rb") as opened:
            return opened.read(_MAX_BYTES).decode(errors="replace")
    except OSError:  # not ours to read
        return ""


def _accepts(clause: str, minor: Minor) -> bool:
    """Whether some release of a minor version satisfies one part of `requires-python`."""
    match = _CLAUSE.match(clause)
    if match is None:
        raise InvalidRequest(f"requires-python: {clause.strip()!r} is not a comparison such as '>=3.12'")
    operator, version, star = match.groups()
    parts = tuple(map(int, version.split(".")))
    named = (*parts, 0)[:2]
    exact = len(parts) > 2 and not star
    match operator:
        case "==" | "===":
            return minor == named
        case "!=":
            return exact or minor != named
        case ">=":
            return minor >= named
        case ">":
            return minor > named or (exact and minor == named)
        case "<=":
            return minor <= named
        case "<":
            return minor < named or (exact and minor == named)
        case _:  # ~=
            return minor == named if len(parts) > 2 else minor >= named and minor[0] == named[0]
