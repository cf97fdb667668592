"""What a request to create may ask for, and what follows from it: the engine's spec and the time to live."""

from __future__ import annotations

import logging
import re
from typing import Any

from pydantic import ValidationError

from .. import mcp, quantities
from ..config import Project
from ..engines.base import InstanceSpec
from ..errors import InvalidRequest
from ..models import CreateInstance
from ..wire import DEFAULT_TTL

logger = logging.getLogger("aenv.gateway.admission")

MAX_TTL = 366 * 86400.0
_ID = re.compile(r"[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?\Z")
_RANDOM_PART = 20  # characters: an id is the key to its instance, so nobody may guess it
_VARIABLE = re.compile(r"[^=\0]+\Z")
_MAX_STRING_BYTES = 128 << 10  # Linux takes no longer argument or variable
_POD_TEMPLATES = {"default", "singlecontainer", "dualcontainer"}


def parse(body: bytes) -> CreateInstance:
    """Read a body. InvalidRequest names the field that is wrong, and never repeats a value."""
    value = _object(body, "envName")
    try:
        request = CreateInstance.model_validate({name: part for name, part in value.items() if part is not None})
    except ValidationError as error:
        first = error.errors(include_input=False, include_url=False)[0]
        field = ".".join(str(part) for part in first["loc"])
        raise InvalidRequest(f"field {field!r}: {first['msg'][:1].lower()}{first['msg'][1:]}") from None
    _check_strings(request)
    return request


def _object(body: bytes, field: str) -> dict[str, Any]:
    try:
        value = mcp.loads(body)
    except ValueError as error:
        raise InvalidRequest(f"the body is not JSON: {error}") from None
    if not isinstance(value, dict):
        raise InvalidRequest(f"the body must be a JSON object with {field!r}")
    return value


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
    value = _object(body, "ttl").get("ttl")
    if not isinstance(value, str) or not value:
        raise InvalidRequest("field 'ttl': write how long it shall live from now, as in '1h'")
    return check_ttl(value)


def check_ttl(value: str | float) -> float:
    """Seconds; InvalidRequest when that is no time that an instance can live."""
    ttl = quantities.seconds(value)
    if not 0 < ttl <= MAX_TTL:
        raise InvalidRequest(f"field 'ttl': {value!r} is not between 1ms and {MAX_TTL / 86400:g}d")
    return ttl


def spec_for(id: str, request: CreateInstance, project: Project, start_timeout: float) -> InstanceSpec:
    """What the engine is asked to make; InvalidRequest when the environment asks for what we do not have."""
    _check_deploy(project)
    _warn_of_unused(request)
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
    )


def _check_strings(request: CreateInstance) -> None:
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
    for field in ("datasource", "mount_points", "init_command", "resources"):
        if getattr(request, field):
            logger.warning("field '%s' was accepted, and has no effect with this engine", field)
