"""The kinds of values that config.json has: durations, amounts, networks, variables, names."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from .. import quantities, refs
from ..errors import InvalidRequest
from .sections import ValueKind

NetworkKind = Literal["none", "egress", "full"]

_DATA_NAME = re.compile(r"[a-z0-9][a-z0-9-]{0,62}\Z")
# No other: of the gateway's variables, only these ever name a folder of an environment.
_DATA_VARIABLE = re.compile(r"[A-Z][A-Z0-9_]{0,62}_DATA_DIR\Z")
_FOLDER_VARIABLE = re.compile(r"[A-Z][A-Z0-9_]{0,62}_(DATA|GIT)_DIR\Z")
_SECRET = re.compile(r"[A-Za-z_][A-Za-z0-9_.-]{0,127}\Z")
_SECRET_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*\Z")
_HOST = re.compile(
    r"((\*\.)?[a-z0-9]([a-z0-9-]*[a-z0-9])?(\.[a-z0-9]([a-z0-9-]*[a-z0-9])?)*|\[[0-9a-f:.]+\])(:(?P<port>[0-9]{1,5}))?\Z",
    re.IGNORECASE,
)


@dataclass(frozen=True)
class Amount:
    """How much of something: cores, bytes or a number; and how config.json spells it."""

    value: float
    written: str


@dataclass(frozen=True)
class Network:
    """What an instance may reach."""

    kind: NetworkKind = "none"
    hosts: tuple[str, ...] = ()
    """For egress: "host", "host:port" or "*.domain"."""


@dataclass(frozen=True)
class Variables:
    """Variables of an instance: texts, and the names of secrets, each by variable."""

    texts: Mapping[str, str] = field(default_factory=dict)
    secrets: Mapping[str, str] = field(default_factory=dict)


def network(value: str | dict[str, Any]) -> Network:
    """From "none", "full", or `{"egress": ["host", "host:port", "*.domain"]}`."""
    match value:
        case "none" | "full":
            return Network(value)
        case {"egress": list(hosts)} if len(value) == 1 and hosts:
            return Network("egress", tuple(_host(host) for host in hosts))
    raise InvalidRequest(f"bad network {value!r}; use 'none', 'full', or {{\"egress\": [\"host:443\"]}}")


def is_folder_variable(name: str) -> bool:
    """Whether `data.variable` or `data.folders` may name it."""
    return _FOLDER_VARIABLE.match(name) is not None


def is_secret_name(name: str) -> bool:
    """Whether a secret may be called so."""
    return _SECRET.match(name) is not None


def is_secret_variable(name: str) -> bool:
    """Whether a variable of this name may hold a secret."""
    return _SECRET_VARIABLE.match(name) is not None


def _host(host: Any) -> str:
    match = _HOST.match(host) if isinstance(host, str) else None
    if match is None or not (match["port"] is None or 0 < int(match["port"]) < 65536):
        raise InvalidRequest(f"bad host {host!r}; write it as 'host', 'host:port' or '*.domain'")
    return match[0].lower()


def _at_least(least: int, value: int) -> int:
    if value < least:
        raise InvalidRequest(f"must be at least {least}, got {value}")
    return value


def _size(value: str | int) -> Amount:
    return Amount(_at_least(1, quantities.size_bytes(value)), str(value))


def _variables(values: Mapping[str, Any]) -> Variables:
    texts, secrets = {}, {}
    for name, value in values.items():
        match value:
            case {"secret": str(secret), **rest} if (
                not rest and is_secret_name(secret) and is_secret_variable(name)
            ):
                secrets[name] = secret
            case dict():
                raise InvalidRequest(f'{name!r} must be a text, or a secret by its name: {{"secret": "NAME"}}')
            case _:
                texts[name] = str(value)
    return Variables(texts, secrets)


def _alias(name: Any) -> refs.Ref:
    try:
        return refs.exact(*str(name).split("@", 1))
    except (TypeError, InvalidRequest):
        raise InvalidRequest(f"bad alias {name!r}; write it as 'name@1.0.0'") from None


def _environment(name: Any) -> refs.Ref:
    try:
        return refs.parse(name)
    except (AttributeError, InvalidRequest):
        raise InvalidRequest(f"bad environment {name!r}; write it as 'name', 'name@^1' or 'name@1.0.0'") from None


def _text(is_right: Callable[[str], object], fix: str) -> Callable[[Any], str]:
    """A parser of texts that are like that; `fix` says what to write."""

    def parse(value: Any) -> str:
        if not isinstance(value, str) or not is_right(value):
            raise InvalidRequest(f"bad value {value!r}; {fix}")
        return value

    return parse


def _each(parse: Callable[[Any], Any]) -> Callable[[list[Any]], tuple[Any, ...]]:
    """A parser of lists of what `parse` reads."""
    return lambda values: tuple(parse(value) for value in values)


_module = _text(lambda name: all(part.isidentifier() for part in name.split(".")), "name a module, as in 'a.b'")
_package = _text(str.strip, "name a package, as in 'pytest' or 'pytest==8.4'")
_path = _text(lambda path: not {"", "..", "."} & {*path.split("/")}, "name a path below the data, as in 'a/b'")
_folder_variable = _text(is_folder_variable, "write it as in 'NAME_DATA_DIR' or 'NAME_GIT_DIR'")

TEXT = ValueKind("text", (str,), skips_empty=True)
TEXTS = ValueKind("list of texts", (list,), _each(str))
FLAG = ValueKind("true or false", (bool,))
OBJECT = ValueKind("object", (dict,))
OBJECTS = ValueKind("list of objects", (list,), lambda items: tuple(one for one in items if isinstance(one, dict)))
CPU = ValueKind("cores", (str, int, float), lambda value: Amount(quantities.cpus(value), str(value)))
SIZE = ValueKind("size", (str, int), _size)
STORAGE_SIZE = ValueKind("size", (str,), lambda value: _size(value).written, skips_empty=True)
COUNT = ValueKind("whole number above 0", (int,), lambda value: Amount(_at_least(1, value), str(value)))
NUMBER = ValueKind("whole number", (int,), lambda value: _at_least(0, value))
DURATION = ValueKind("duration", (str, int, float), quantities.seconds)
NETWORK = ValueKind("network", (str, dict), network)
VARIABLES = ValueKind("object of texts and secrets", (dict,), _variables)
ISOLATION = ValueKind("`gvisor`", (str,), _text("gvisor".__eq__, "use 'gvisor', or leave it out"))
MODULES = ValueKind("list of modules", (list,), _each(_module))
PACKAGES = ValueKind("list of packages", (list,), _each(_package))
PATHS = ValueKind("list of paths", (list,), _each(_path))
ALIASES = ValueKind("list of `name@version`", (list,), _each(_alias))
ENVIRONMENTS = ValueKind("list of `name@range`", (list,), _each(_environment))
DATA_NAME = ValueKind("name", (str,), _text(_DATA_NAME.match, "use lower-case letters, digits and '-'"))
DATA_VARIABLE = ValueKind("variable", (str,), _text(_DATA_VARIABLE.match, "write it as in 'NAME_DATA_DIR'"))
FOLDER_VARIABLES = ValueKind("list of variables", (list,), _each(_folder_variable))
