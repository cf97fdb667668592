"""References to environments, "name@version": the only parser, printer and version comparison."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from functools import total_ordering

from .errors import InvalidRequest

_NAME = re.compile(r"[A-Za-z0-9](?:[A-Za-z0-9._-]{0,251}[A-Za-z0-9])?\Z")
_VERSION = re.compile(r"[A-Za-z0-9](?:[A-Za-z0-9.+_-]{0,126}[A-Za-z0-9])?\Z")
_NEW_NAME = re.compile(r"[a-z0-9](?:[a-z0-9-]{0,251}[a-z0-9])?\Z")


@dataclass(frozen=True)
class Ref:
    """An environment's name and version; without a version, the latest one is meant."""

    name: str
    version: str | None = None

    def __str__(self) -> str:
        return f"{self.name}@{self.version}" if self.version else self.name


def parse(text: str) -> Ref:
    """Read "name" or "name@version"; `name@latest` is the same as the name alone."""
    name, at, version = text.partition("@")
    if not _NAME.match(name):
        raise InvalidRequest(f"bad environment name {name!r}; use letters, digits and '-', as in 'my-env@1.0.0'")
    if at and version != "latest" and not _VERSION.match(version):
        raise InvalidRequest(f"bad version {version!r} in {text!r}; write it as 'name@1.0.0', or the name alone")
    return Ref(name, version if at and version != "latest" else None)


def check_new_name(name: str) -> str:
    """Return `name` if a new environment may have it; it must also be legal as a host name."""
    if not _NEW_NAME.match(name):
        raise InvalidRequest(
            f"bad environment name {name!r}; use lower-case letters, digits and '-', "
            "beginning and ending with a letter or digit"
        )
    return name


@total_ordering
@dataclass(frozen=True, eq=False)
class Version:
    """A version that orders as semantic versioning says; anything else orders before, by its text."""

    text: str

    def _key(self) -> tuple[object, ...]:
        core, _, _build = self.text.partition("+")
        release, dash, pre = core.partition("-")
        numbers = release.removeprefix("v").split(".")
        if not all(part.isdecimal() for part in numbers):
            return (0, self.text)
        release_key = tuple(int(part) for part in (*numbers, "0", "0")[:3])
        pre_key = tuple(
            (0, int(part), "") if part.isdecimal() else (1, 0, part) for part in pre.split(".") if dash
        )
        # A pre-release comes before its release, hence the 0 or 1 in front.
        return (1, release_key, 0 if dash else 1, pre_key)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Version) and self._key() == other._key()

    def __hash__(self) -> int:
        return hash(self._key())

    def __lt__(self, other: Version) -> bool:
        return self._key() < other._key()


def latest(versions: Iterable[str]) -> str | None:
    """The highest version; a pre-release counts only if there is no release at all."""
    known = sorted(versions, key=Version)
    releases = [version for version in known if "-" not in version.partition("+")[0]]
    best = releases or known
    return best[-1] if best else None


def split_env_name_version(text: str) -> tuple[str, str]:
    """The published splitter: ("name", "version"), with "" for what is missing, and no checks."""
    name, _, version = text.partition("@")
    return name, version
