"""What a request to create may ask for, and what follows from it: the engine's spec and the time to live."""

from __future__ import annotations

import logging
import re
from dataclasses import dataclass
from pathlib import Path

from .. import quantities
from ..config import NetworkKind, Project
from ..engines.base import InstanceSpec
from ..errors import InvalidRequest
from ..models import CreateInstance, CreateInstances, Renew
from ..serving import routes
from ..serving.accounts import Caller
from ..wire import DEFAULT_TTL
from .datasources import data_and_second, declared_data, declared_folders
from .networks import network_for
from .records import Record, describe_environment
from .resources import limits_for
from .second_parts import later

logger = logging.getLogger("aenv.instances.admission")

MAX_TTL = 366 * 86400.0
MAX_WAIT = 3600.0
_ID = re.compile(r"[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?\Z")
_RANDOM_PART = 20  # characters: an id is the key to its instance, so nobody may guess it
_VARIABLE = re.compile(r"[^=\0]+\Z")
_MAX_STRING_BYTES = 128 << 10  # Linux takes no longer argument or variable
_POD_TEMPLATES = {"default", "singlecontainer", "dualcontainer"}


@dataclass(frozen=True)
class Rules:
    """What the operator of a gateway allows."""

    network: NetworkKind = "full"
    data_roots: tuple[Path, ...] = ()
    """Where the folders are that instances may read as their data."""
    home: Path | None = None
    """Below which the data is that the operator has fetched."""


DEFAULT_RULES = Rules()


def parse(body: bytes) -> CreateInstance:
    """Read a body. InvalidRequest names the field that is wrong, and never repeats a value."""
    return _checked(routes.parse(CreateInstance, body))


def parse_many(body: bytes) -> tuple[CreateInstance, int]:
    """A request for several instances, and how many."""
    request = routes.parse(CreateInstances, body)
    _checked(request)
    return CreateInstance.model_validate(request.model_dump(exclude={"count"})), request.count


def _checked(request: CreateInstance) -> CreateInstance:
    check_strings(request)
    wait_of(request)
    for label in request.labels:
        if "=" in label:
            raise InvalidRequest(f"field 'labels': {label!r} must not contain '='")
    return request


def check_id(id: str) -> str:
    """Return `id` if a client may choose it."""
    if not _ID.match(id) or len(id.rpartition("-")[2]) < _RANDOM_PART:
        raise InvalidRequest(
            f"bad instance id {id!r}; use at most 63 lower-case letters, digits and '-', "
            f"ending in at least {_RANDOM_PART} random characters"
        )
    return id


def ttl_of(request: CreateInstance, project: Project) -> float:
    """Seconds: what the request says, else the environment's own, else the default."""
    if request.ttl:
        return check_ttl(request.ttl)
    return check_ttl(project.ttl if project.ttl is not None else DEFAULT_TTL)


def parse_ttl(body: bytes) -> float:
    """The seconds that a request to renew asks for: `{"ttl": "1h"}`."""
    value = routes.parse(Renew, body).ttl
    if not value:
        raise InvalidRequest("field 'ttl': write how long it shall live from now, as in '1h'")
    return check_ttl(value)


def check_ttl(value: str | float) -> float:
    """Seconds; InvalidRequest when that is no time that an instance can live."""
    ttl = quantities.seconds(value)
    if not 0 < ttl <= MAX_TTL:
        raise InvalidRequest(f"field 'ttl': {value!r} is not between 1ms and {MAX_TTL / 86400:g}d")
    return ttl


def wait_of(request: CreateInstance) -> float:
    """Seconds for which a request wants to wait for room."""
    wait = quantities.seconds(request.wait) if request.wait else 0.0
    if wait > MAX_WAIT:
        raise InvalidRequest(f"field 'wait': {request.wait!r} is longer than {MAX_WAIT / 60:g}m")
    return wait


def owner_of(request: CreateInstance, caller: Caller) -> str | None:
    """Whose it will be: the caller's, unless an administrator, or anybody without accounts, names another."""
    if caller.is_admin and (request.owner or caller.account is None):
        return request.owner
    return caller.user


def check(request: CreateInstance, project: Project, rules: Rules) -> InstanceSpec:
    """What will be asked for, without an id. Refuses what we do not have or do not allow."""
    _check_deploy(project)
    spec = spec_for("", request, project, rules)
    _warn_of_unused(request)
    return spec


def complete(record: Record, request: CreateInstance, project: Project) -> None:
    """Fill in what follows from the environment."""
    limits = limits_for(request, project)
    record.environment = str(project.ref)
    record.code = project.path.name
    record.env = describe_environment(project)
    record.ttl = ttl_of(request, project)
    idle = request.idle_timeout or project.deploy.get("idleTimeout")
    record.idle_timeout = check_ttl(idle) if idle else None
    record.cpu_milli = round(1000 * (limits.cpus or 0))
    record.memory_bytes = limits.memory_bytes or 0
    record.freeze_after = _freeze_after(project)
    record.reclaim = bool(project.deploy.get("reclaim"))
    record.note("requested")


def _freeze_after(project: Project) -> float | None:
    value = project.deploy.get("freezeAfter")
    return quantities.seconds(value) if value is not None else None


def spec_for(
    id: str, request: CreateInstance, project: Project, rules: Rules, start_timeout: float = 60.0
) -> InstanceSpec:
    """What the engine is asked to make. InvalidRequest or Forbidden when it may not be had."""
    data, second = data_and_second(request.datasource, project, rules.data_roots)
    data = data or declared_data(request.environment_variables, project, rules.data_roots, rules.home)
    folders = declared_folders(request.environment_variables, project, rules.data_roots)
    return InstanceSpec(
        id=id,
        environment=str(project.ref),
        project=project.path,
        environment_variables={
            # Published clients set these two; environments that read them must not depend on the client.
            "envNAME": project.name,
            "envversion": project.version,
            **project.environment_variables,
            **request.environment_variables,
        },
        arguments=tuple(request.arguments),
        start_timeout=start_timeout,
        call_timeout=project.call_timeout,
        limits=limits_for(request, project),
        network=network_for(request, project, rules.network),
        image=project.image,
        data=data,
        data_variable=project.data.variable if data and project.data else "",
        folders=folders,
        second=second or later(project, {**project.environment_variables, **request.environment_variables}, data),
        preload=tuple(project.deploy.get("preload", ())),
        isolation=project.deploy.get("isolation", ""),
    )


def check_strings(request: CreateInstance) -> None:
    """InvalidRequest when Linux would not take an argument or a variable."""
    for index, argument in enumerate(request.arguments):
        _check_string(f"arguments.{index}", argument)
    for name, value in request.environment_variables.items():
        if not _VARIABLE.match(name):
            raise InvalidRequest(f"field 'environment_variables': {name!r} is no name for a variable")
        _check_string(f"environment_variables.{name}", f"{name}={value}")


def _check_string(field: str, text: str) -> None:
    if "\0" in text:
        raise InvalidRequest(f"field {field!r}: must not contain a zero character")
    if len(text.encode()) >= _MAX_STRING_BYTES:
        raise InvalidRequest(f"field {field!r}: is longer than {_MAX_STRING_BYTES >> 10} KiB")


def _check_deploy(project: Project) -> None:
    system = str(project.deploy.get("os") or "linux")
    if system.lower() != "linux":
        raise InvalidRequest(f"environment '{project.ref}' wants os {system!r}; only 'linux' is there")
    template = str(project.deploy.get("podTemplate") or "default")
    if template.lower() not in _POD_TEMPLATES:
        known = "'singleContainer' or 'dualContainer'"
        raise InvalidRequest(f"environment '{project.ref}' wants podTemplate {template!r}; use {known}")


def _warn_of_unused(request: CreateInstance) -> None:
    for field in ("mount_points", "init_command"):
        if getattr(request, field):
            logger.warning("field '%s' was accepted, and has no effect with this engine", field)
