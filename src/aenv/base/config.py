"""config.json, legacy fields included: the only reader and writer.

Unknown fields are kept, and named in a warning with their line; a wrong type is an error with its line.
"""

from __future__ import annotations

import json
import logging
import re
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, Literal, NamedTuple

from . import quantities, refs
from .errors import InvalidRequest

logger = logging.getLogger("aenv.base.config")

FILE_NAME = "config.json"
NetworkKind = Literal["none", "egress", "full"]

# No other: of the gateway's variables, only these ever name a folder of an environment.
_DATA = re.compile(r"[a-z0-9][a-z0-9-]{0,62} [A-Z][A-Z0-9_]{0,62}_DATA_DIR\Z")
_FOLDER = re.compile(r"[A-Z][A-Z0-9_]{0,62}_(DATA|GIT)_DIR\Z")
_SECRET = re.compile(r"[A-Za-z_][A-Za-z0-9_.-]{0,127}\Z")
_SECRET_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*\Z")
_HOST = re.compile(
    r"((\*\.)?[a-z0-9]([a-z0-9-]*[a-z0-9])?(\.[a-z0-9]([a-z0-9-]*[a-z0-9])?)*|\[[0-9a-f:.]+\])(:(?P<port>[0-9]{1,5}))?\Z",
    re.IGNORECASE,
)

_TOP = {
    "name": str,
    "version": str,
    "description": str,
    "tags": list,
    "status": str,
    "codeUrl": str,
    "artifacts": list,
    "buildConfig": dict,
    "testConfig": dict,
    "deployConfig": dict,
    "protocolVersion": str,
    "aliases": list,
    "data": dict,
    "evalOnly": bool,
    "selfCheck": bool,
}
_DEPLOY = {
    "cpu": (str, int, float),
    "memory": (str, int),
    "os": str,
    "ephemeralStorage": (str, int),
    "environmentVariables": dict,
    "service": dict,
    "imagePrefix": str,
    "podTemplate": str,
    "ttl": (str, int, float),
    "callTimeout": (str, int, float),
    "idleTimeout": (str, int, float),
    "resource": str,
    "arcaTemplateId": str,
    "network": (str, dict),
    "pids": int,
    "openFiles": int,
    "allowMoreResources": bool,
    "isolation": str,
    "preload": list,
    "warmPool": int,
    "freezeAfter": (str, int, float),
    "reclaim": bool,
    "sidecar": (str, dict),
    # Legacy, flat: read where `service` or the simple names are absent.
    **dict.fromkeys(("replicas", "port"), int),
    "enableStorage": bool,
    **dict.fromkeys(("storageSize", "storageName", "mountPath", "pvcName"), str),
    **dict.fromkeys(("cpuRequest", "cpuLimit"), (str, int, float)),
    **dict.fromkeys(("memoryRequest", "memoryLimit"), (str, int)),
    **dict.fromkeys(("ephemeralStorageRequest", "ephemeralStorageLimit"), (str, int)),
}


class Data(NamedTuple):
    """A folder that an environment needs and does not bring, and the variable that says where it is."""

    name: str
    variable: str
    folders: tuple[str, ...] = ()
    """Variables that name further folders of this machine, which it reads where they are set."""


@dataclass(frozen=True)
class Project:
    """A folder with an environment's code, and what its config.json says."""

    path: Path
    name: str
    version: str
    description: str = ""
    tags: tuple[str, ...] = ()
    artifacts: tuple[dict[str, str], ...] = ()
    build: dict[str, Any] = field(default_factory=dict)
    test: dict[str, Any] = field(default_factory=dict)
    deploy: dict[str, Any] = field(default_factory=dict)
    raw: dict[str, Any] = field(default_factory=dict)
    aliases: tuple[refs.Ref, ...] = ()
    data: Data | None = None
    is_published: bool = False
    """Whether it came from a hub. Else it is a folder that whoever runs this process has chosen."""
    owner: str | None = None
    pushed_by: str | None = None
    """In that hub: whose environment it is, and who pushed this version or changed it last."""

    @property
    def ref(self) -> refs.Ref:
        return refs.Ref(self.name, self.version)

    @property
    def ttl(self) -> float | None:
        """Seconds an instance lives unless its creator says otherwise."""
        value = self.deploy.get("ttl")
        return quantities.seconds(value) if value is not None else None

    @property
    def call_timeout(self) -> float | None:
        value = self.deploy.get("callTimeout")
        return quantities.seconds(value) if value is not None else None

    @property
    def image(self) -> str:
        """The image that was built of it; empty when there is none."""
        found = (one for one in self.artifacts if one.get("type") in ("image", "docker-image"))
        return next(found, {}).get("content", "")

    @property
    def self_check(self) -> bool:
        """Whether a task must have proved that its reward tells doing nothing from its reference solution."""
        return self.raw.get("selfCheck", self.raw.get("evalOnly")) is True

    @property
    def environment_variables(self) -> dict[str, str]:
        """Those whose values it says."""
        variables = self.deploy.get("environmentVariables", {})
        return {name: str(value) for name, value in variables.items() if not isinstance(value, dict)}

    @property
    def secrets(self) -> dict[str, str]:
        """The names of secrets, by the variables that they are for: `{"KEY": {"secret": "NAME"}}`."""
        variables = self.deploy.get("environmentVariables", {})
        return {name: value["secret"] for name, value in variables.items() if isinstance(value, dict)}


def load_project(path: Path) -> Project:
    """Read the config.json of the project in the folder `path`."""
    file = path / FILE_NAME
    try:
        text = file.read_text(encoding="utf-8")
    except FileNotFoundError:
        raise InvalidRequest(f"no {FILE_NAME} in {str(path)!r}; make a project with 'aenv init NAME'") from None
    except (OSError, UnicodeDecodeError) as error:
        raise InvalidRequest(f"cannot read {str(file)!r}: {error}") from error
    try:
        raw = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise InvalidRequest(f"{str(file)!r} is not JSON: {error}") from error
    return _project(path, text, raw)


def _project(path: Path, text: str, raw: Any) -> Project:
    if not isinstance(raw, dict):
        raise InvalidRequest(f"{FILE_NAME} in {str(path)!r} must hold a JSON object")
    for required in ("name", "version"):
        if not raw.get(required):
            raise InvalidRequest(f"{FILE_NAME} in {str(path)!r} lacks {required!r}")
    _check(text, raw, _TOP, "")
    deploy = raw.get("deployConfig", {})
    check_deploy(deploy, text)
    ref = refs.exact(raw["name"], raw["version"])
    return Project(
        path=path,
        name=ref.name,
        version=raw["version"],
        description=raw.get("description", ""),
        tags=tuple(str(tag) for tag in raw.get("tags", ())),
        artifacts=tuple(artifact for artifact in raw.get("artifacts", ()) if isinstance(artifact, dict)),
        build=raw.get("buildConfig", {}),
        test=raw.get("testConfig", {}),
        deploy=deploy,
        raw=raw,
        aliases=tuple(_alias(text, alias) for alias in raw.get("aliases", ())),
        data=_data(text, raw["data"]) if "data" in raw else None,
    )


def is_folder_variable(name: str) -> bool:
    """Whether `data.variable` or `data.folders` may name it."""
    return _FOLDER.match(name) is not None


def is_secret_name(name: str) -> bool:
    """Whether a secret may be called so."""
    return _SECRET.match(name) is not None


def is_secret_variable(name: str) -> bool:
    """Whether a variable of this name may hold a secret."""
    return _SECRET_VARIABLE.match(name) is not None


def _alias(text: str, alias: Any) -> refs.Ref:
    try:
        return refs.exact(*str(alias).split("@", 1))
    except (TypeError, InvalidRequest):
        raise InvalidRequest(f"{_place(text, 'aliases')}aliases: {alias!r} is no 'name@1.0.0'") from None


def _data(text: str, data: dict[str, Any]) -> Data:
    match {"folders": [], **data}:
        case {"name": str(name), "variable": str(key), "folders": list(more), **rest} if not rest:
            if _DATA.match(f"{name} {key}") and all(_FOLDER.match(str(one)) for one in more):
                return Data(name, key, tuple(more))
    shape = '{"name": "tau2", "variable": "TAU2_DATA_DIR", "folders": ["TAU2_GIT_DIR"]}, in such letters'
    raise InvalidRequest(f"{_place(text, 'data')}data must be as in {shape}")


def check_deploy(deploy: dict[str, Any], text: str = "") -> None:
    """A bad "2Qi" or "soon" is found when it is read, and not at the first create; `text` tells its line."""
    _check(text, deploy, _DEPLOY, "deployConfig.")
    for key, value in deploy.items():
        parse = _VALUES.get(key.removesuffix("Request").removesuffix("Limit"))
        if parse is None:
            continue
        try:
            parse(value)
        except InvalidRequest as error:
            raise InvalidRequest(f"{_place(text, key)}deployConfig.{key}: {error.message}") from None


def network(value: str | dict[str, Any]) -> tuple[NetworkKind, tuple[str, ...]]:
    """What an instance may reach, and for "egress" which hosts: "host", "host:port" or "*.domain"."""
    match value:
        case "none" | "full":
            return value, ()
        case {"egress": list(hosts)} if len(value) == 1 and hosts:
            return "egress", tuple(_host(host) for host in hosts)
    raise InvalidRequest(f"bad network {value!r}; use 'none', 'full', or {{\"egress\": [\"host:443\"]}}")


def _host(host: Any) -> str:
    match = _HOST.match(host) if isinstance(host, str) else None
    if match is None or not (match["port"] is None or 0 < int(match["port"]) < 65536):
        raise InvalidRequest(f"bad host {host!r}; write it as 'host', 'host:port' or '*.domain'")
    return match[0].lower()


def _check(text: str, values: dict[str, Any], known: dict[str, Any], prefix: str) -> None:
    for key, value in values.items():
        if key not in known:
            if text:  # its author reads this; whoever runs what the hub has published could not change it
                logger.warning("%s line %d: unknown field %s is kept", FILE_NAME, line_of(text, key), prefix + key)
        elif not isinstance(value, known[key]) or (isinstance(value, bool) and known[key] is not bool):
            expected = known[key] if isinstance(known[key], tuple) else (known[key],)
            kinds = " or ".join(_KIND_NAMES[kind] for kind in expected)
            raise InvalidRequest(f"{_place(text, key)}{prefix}{key} must be {kinds}")


def _place(text: str, key: str) -> str:
    return f"{FILE_NAME} line {line_of(text, key)}: " if text else ""


def _at_least(least: int, value: int) -> None:
    if value < least:
        raise InvalidRequest(f"{value} is less than {least}")


def _variables(values: dict[str, Any]) -> None:
    for name, value in values.items():
        match value:
            case {"secret": str(secret), **rest} if (
                not rest and is_secret_name(secret) and is_secret_variable(name)
            ):
                continue
            case dict():
                raise InvalidRequest(f'{name!r} must be a text, or a secret by its name: {{"secret": "NAME"}}')


def _isolation(value: str) -> None:
    if value != "gvisor":
        raise InvalidRequest(f"no isolation {value!r}; use 'gvisor', or leave it out for the engine's own")


def _modules(names: list[Any]) -> None:
    for name in names:
        if not isinstance(name, str) or not all(part.isidentifier() for part in name.split(".")):
            raise InvalidRequest(f"{name!r} is no name of a module")


_VALUES: dict[str, Callable[[Any], object]] = {
    "cpu": quantities.cpus,
    "memory": lambda value: _at_least(1, quantities.size_bytes(value)),
    "ephemeralStorage": lambda value: _at_least(1, quantities.size_bytes(value)),
    "pids": partial(_at_least, 1),
    "openFiles": partial(_at_least, 1),
    "ttl": quantities.seconds,
    "callTimeout": quantities.seconds,
    "idleTimeout": quantities.seconds,
    "network": network,
    "environmentVariables": _variables,
    "isolation": _isolation,
    "preload": _modules,
    "warmPool": partial(_at_least, 0),
    "freezeAfter": quantities.seconds,
}
_KIND_NAMES = {
    str: "a string",
    int: "a whole number",
    float: "a number",
    bool: "true or false",
    list: "a list",
    dict: "an object",
}


def line_of(text: str, key: str) -> int:
    """The line on which `key` first stands as a key."""
    match = re.search(rf"{re.escape(json.dumps(key))}\s*:", text)
    return text.count("\n", 0, match.start()) + 1 if match else 1
