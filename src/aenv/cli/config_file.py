"""cli_config.json: what the command line remembers, such as addresses and keys. The only reader and writer.

Unknown keys are kept, and named in a warning; a file that is wrong is an error with its line, and stays as it is.
"""

from __future__ import annotations

import functools
import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, fields
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..base import config, settings
from ..base.errors import InvalidRequest
from . import files, output

if TYPE_CHECKING:
    from ..client.where import Login

NAME = "cli_config.json"
DEFAULTS: dict[str, Any] = {
    "global_mode": "local",
    "build_config": {
        "type": "local",
        "build_args": {"socket": "unix:///var/run/docker.sock"},
        "registry": {"host": "docker.io", "username": "", "password": "", "namespace": "aenv"},
    },
    "storage_config": {"type": "local", "custom": {"prefix": "~/.aenv/envs"}},
    "logging_config": {
        "level": "INFO",
        "format": "%(asctime)s - %(name)s - %(levelname)s - %(message)s",
        "file": None,
        "console": True,
    },
    "hub_config": {"hub_backend": "", "api_key": "", "timeout": 30},
    "system_url": None,
    "owner": None,
}
_USUAL_SOCKET = DEFAULTS["build_config"]["build_args"]["socket"]
_OPEN = {"build_config.build_args", "storage_config.custom"}  # their keys are up to their readers
_SECRET = re.compile(r"password|api_key|token|secret", re.IGNORECASE)
_HIDDEN = "****"


@dataclass(frozen=True)
class ImageRegistry:
    """Where images are pushed, and the login there; without a name of a user there is none."""

    host: str
    namespace: str
    username: str
    password: str


@dataclass(frozen=True)
class CliSettings:
    """The settings of the file that commands use, typed."""

    owner: str | None
    hub_timeout: float
    """In seconds."""
    docker_socket: str
    """Empty for the one that Docker chooses itself."""
    registry: ImageRegistry


def own_path() -> Path:
    """This user's file, which may not exist yet."""
    return settings.home() / NAME


def path() -> Path:
    """The file in use: this user's, else the current folder's, else the machine's."""
    places = (own_path(), folder_path(), Path("/etc/aenv") / NAME)
    return next((file for file in places if file.is_file()), own_path())


def folder_path() -> Path:
    """The file of the current folder. It may have come with others' code: no address is taken from it."""
    return Path(".aenv") / NAME


def load(*, warn: bool = True) -> dict[str, Any]:
    """Every setting, with the default where the file says nothing. Makes no file."""
    return _merged(DEFAULTS, read(path(), warn=warn))


def in_use() -> CliSettings:
    """The same, as commands use it."""
    values = load()
    build = values["build_config"]
    registry, socket = build["registry"], build["build_args"]["socket"]
    return CliSettings(
        values["owner"],
        float(values["hub_config"]["timeout"] or DEFAULTS["hub_config"]["timeout"]),
        "" if socket == _USUAL_SOCKET else socket or "",
        # A string of the file may be null.
        ImageRegistry(**{each.name: registry[each.name] or "" for each in fields(ImageRegistry)}),
    )


def login() -> Login:
    """The login that the SDK finds too. What loads the other settings warns of unknown keys."""
    from ..client import where

    read(where.login_file(settings.home()), warn=False)  # what is wrong there is told with its line
    if path() == folder_path():
        _tell_of_unused(folder_path())
    return where.saved_login(settings.home())


@functools.cache  # once for each command
def _tell_of_unused(file: Path) -> None:
    values = read(file, warn=False)
    named = {"system_url": values.get("system_url"), **values.get("hub_config", {})}
    if any(named.get(key) for key in ("system_url", "hub_backend", "api_key")):
        output.talk(
            f"aenv: the address and key in {str(file)!r} are not used: the file may have come with other people's "
            "code; use 'aenv login URL' or AENV_SYSTEM_URL"
        )


def read(file: Path, *, warn: bool = True) -> dict[str, Any]:
    """What stands in `file`, checked; nothing when there is no such file."""
    from ..client import where

    try:
        text, values = where.read(file)
    except InvalidRequest as error:
        raise output.Failure(error.message, exit_code=3) from error
    if values:
        check(file, values, text, warn=warn)
    return values


def write(file: Path, values: Mapping[str, Any]) -> None:
    """Replace `file` as a whole, or not at all; only this user can read it."""
    file.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    files.replace(file, json.dumps(values, indent=2, ensure_ascii=False) + "\n", 0o600)


def assign(values: dict[str, Any], key: str, text: str) -> None:
    """Set the dotted `key` to `text`, read as JSON where it is that and a text is not what the key takes."""
    *parents, last = key.split(".")
    try:
        value = json.loads(text)
    except ValueError:
        value = text
    known: Any = DEFAULTS
    for parent in parents:
        values = values.setdefault(parent, {})
        known = known.get(parent, {})
        if not isinstance(values, dict) or not isinstance(known, dict):
            raise output.Failure(f"cannot set {key!r}: {parent!r} is not an object", exit_code=2)
    takes_text = last in known and isinstance(known[last], str | None)
    values[last] = text if takes_text and not isinstance(value, str | None) else value


def check(file: Path, values: Mapping[str, Any], text: str | None = None, *, warn: bool = True) -> None:
    """Fail where a value has the wrong type, and warn of unknown keys; `text` is what `file` holds, or will."""
    text = json.dumps(values, indent=2) if text is None else text
    for line, name in _unknown(file, text, values, DEFAULTS, ""):
        if warn:
            output.talk(f"aenv: {str(file)!r} line {line}: unknown key {name!r} is kept")


def find(values: Mapping[str, Any], key: str) -> Any:
    """The value of the dotted `key`."""
    found: Any = values
    for part in key.split("."):
        if not isinstance(found, dict) or part not in found:
            raise output.Failure(f"no setting {key!r}", hint="aenv config show")
        found = found[part]
    return found


def masked(value: Any, key: str = "", *, hidden: str = _HIDDEN) -> Any:
    """The same with secrets hidden: those that are set, under a key that names one."""
    if isinstance(value, dict):
        return {name: masked(item, name, hidden=hidden) for name, item in value.items()}
    return hidden if value and _SECRET.search(key) else value


def _merged(defaults: Mapping[str, Any], values: Mapping[str, Any]) -> dict[str, Any]:
    nested = {
        key: _merged(defaults[key], values.get(key, {})) for key in defaults if isinstance(defaults[key], dict)
    }
    return {**defaults, **values, **nested}


def _unknown(
    file: Path, text: str, values: Mapping[str, Any], known: Mapping[str, Any], prefix: str
) -> Iterator[tuple[int, str]]:
    """The unknown keys and their lines. Fails at the first value that has the wrong type."""
    lines = config.key_lines(text)
    for key, value in values.items():
        name, line = prefix + key, lines.get(prefix + key, 1)
        where = f"{str(file)!r} line {line}: {name}"
        if key not in known:
            if prefix.removesuffix(".") not in _OPEN:
                yield line, name
        elif isinstance(known[key], dict):
            if not isinstance(value, dict):
                raise output.Failure(f"{where} must be an object", exit_code=3)
            yield from _unknown(file, text, value, known[key], f"{name}.")
        elif not isinstance(value, _types(known[key])) or isinstance(value, bool) != isinstance(known[key], bool):
            kind = {bool: "true or false", int: "a number"}.get(type(known[key]), "a string")
            raise output.Failure(f"{where} must be {kind}", exit_code=3)


def _types(default: Any) -> Any:
    return {bool: bool, int: int | float}.get(type(default), str | None)
