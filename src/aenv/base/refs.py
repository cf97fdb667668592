"""References to environments, "name@version": the only parser, printer and version comparison."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from operator import eq, ge, gt, le, lt
from typing import cast

from .errors import InvalidRequest

_NAME = re.compile(r"[A-Za-z0-9](?:[A-Za-z0-9._-]{0,251}[A-Za-z0-9])?\Z")
_VERSION = re.compile(r"[A-Za-z0-9](?:[A-Za-z0-9.+_-]{0,126}[A-Za-z0-9])?\Z")
_NEW_NAME = re.compile(r"[a-z0-9](?:[a-z0-9-]{0,251}[a-z0-9])?\Z")
_BOUND = re.compile(r"(\^|~|>=|<=|>|<|=)(v?\d+(?:\.\d+){0,2}(?:[-+][A-Za-z0-9.+-]*)?)\Z")
_MAX_RANGE = 128
_WILDCARD = re.compile(r"(\d+(?:\.\d+)?)\.[xX*](?:\.[xX*])?\Z")


@dataclass(frozen=True)
class Ref:
    """An environment's name and version; with a range, or without either, the latest that fits is meant."""

    name: str
    version: str | None = None
    range: str | None = None

    def __str__(self) -> str:
        version = self.version or self.range
        return f"{self.name}@{version}" if version else self.name

    def pick(self, versions: Iterable[str]) -> str | None:
        """Which of `versions` is meant, if any."""
        return matching(self.version or self.range or "latest", versions)


def parse(text: str) -> Ref:
    """Read "name", "name@version" or "name@range"; `name@latest` is the same as the name alone."""
    name, at, version = text.partition("@")
    if not _NAME.match(name):
        raise InvalidRequest(f"bad environment name {name!r}; use letters, digits and '-', as in 'my-env@1.0.0'")
    if not at or version == "latest":
        return Ref(name)
    if _bounds(version) is not None:
        return Ref(name, range=version)
    if not _VERSION.match(version):
        raise InvalidRequest(
            f"bad version {version!r} in {text!r}; write it as 'name@1.0.0' or 'name@^1.2', or the name alone"
        )
    return Ref(name, version)


def exact(name: str, version: str) -> Ref:
    """The reference to one version, which is neither a range nor `latest`."""
    ref = parse(f"{name}@{version}")
    if ref.version is None:
        raise InvalidRequest(f"bad version {version!r} of {name!r}; name a single version, as in '1.0.0'")
    return ref


def matching(spec: str, versions: Iterable[str]) -> str | None:
    """The latest of `versions` that `spec` allows: "^1.2", "~1.2.0", ">=1.0,<2", "1.x", "*", "latest", "1.0.0"."""
    if spec == "latest":
        return latest(versions)
    bounds = _bounds(spec)
    if bounds is None:
        return spec if spec in versions else None
    return latest(version for version in versions if all(bound(Version(version)) for bound in bounds))


def check_new_name(name: str) -> str:
    """Return `name` if a new environment may have it; it must also be legal as a host name."""
    if not _NEW_NAME.match(name):
        raise InvalidRequest(
            f"bad environment name {name!r}; use lower-case letters, digits and '-', "
            "beginning and ending with a letter or digit"
        )
    return name


@dataclass(frozen=True, order=True)
class Version:
    """A version that orders as semantic versioning says; anything else orders before, by its text."""

    text: str = field(compare=False)
    key: tuple[object, ...] = field(init=False, repr=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "key", self._key())

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

    @property
    def is_semantic(self) -> bool:
        return self.key[0] == 1

    @property
    def is_pre_release(self) -> bool:
        return "-" in self.text.partition("+")[0]


def place(version: str) -> str:
    """A text that sorts as the version does, for lists that are sorted by text."""
    kind, *rest = Version(version).key
    if kind == 0:
        return f"0{rest[0]}"
    release, is_release, pre = cast(tuple[tuple[int, ...], int, tuple[tuple[int, int, str], ...]], tuple(rest))
    # A number's length in front of it makes 10 sort behind 9; the blank sorts before all that a version may hold.
    parts = [f"1{text}" if is_text else f"0{_sortable(number)}" for is_text, number, text in pre]
    return f"1{''.join(map(_sortable, release))}{is_release}{' '.join(parts)}"


def _sortable(number: int) -> str:
    return f"{len(str(number)):03}{number}"


_Bound = Callable[[Version], bool]


def _bounds(spec: str) -> list[_Bound] | None:
    """What a version must fulfil, each of it; None when `spec` is not a range."""
    if spec in ("*", "x", "X"):
        return []
    parts = [part.strip() for part in spec.split(",")]
    if wildcard := _WILDCARD.match(spec):
        parts = [f"~{wildcard[1]}"]
    matches = [match for part in parts if (match := _BOUND.match(part))]
    if len(matches) < len(parts) or len(spec) > _MAX_RANGE:
        return None
    return [bound for match in matches for bound in _bound(*match.groups())]


def _bound(operator: str, text: str) -> list[_Bound]:
    compare = {">=": ge, "=": eq, ">": gt, "<=": le, "<": lt, "^": ge, "~": ge}[operator]
    limit = _before_pre_releases(text) if operator == "<" else Version(text)
    bounds: list[_Bound] = [lambda version: version.is_semantic and compare(version, limit)]
    if operator in ("^", "~"):
        top = Version(f"{_next(operator, text)}-0")
        bounds.append(lambda version: version < top)
    return bounds


def _before_pre_releases(text: str) -> Version:
    """2.0.0-rc.1 is not a version below 2, although it comes before 2.0.0."""
    return Version(text if "-" in text else f"{text.partition('+')[0]}-0")


def _next(operator: str, text: str) -> str:
    """The first version that `^text` or `~text` leaves out."""
    numbers = [int(part) for part in re.split(r"[-+]", text.removeprefix("v"))[0].split(".")]
    last = min(len(numbers), 2) - 1
    if operator == "^":
        # The first number that is not 0, for what follows it may only grow.
        last = next((index for index, number in enumerate(numbers) if number), len(numbers) - 1)
    return ".".join(map(str, [*numbers[:last], numbers[last] + 1]))


def latest(versions: Iterable[str]) -> str | None:
    """The highest version; a pre-release counts only if there is no release at all."""
    known = sorted(versions, key=Version)
    releases = [version for version in known if not Version(version).is_pre_release]
    best = releases or known
    return best[-1] if best else None


def split_env_name_version(text: str) -> tuple[str, str]:
    """The published splitter: ("name", "version"), with "" for what is missing, and no checks."""
    name, _, version = text.partition("@")
    return name, version
