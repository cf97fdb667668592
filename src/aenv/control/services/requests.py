"""What a request to make or change a service may ask for, and what follows from it."""

from __future__ import annotations

import re
import secrets

from ...base import quantities
from ...base.config import Project
from ...base.errors import InvalidRequest, of_field
from ...base.models import CreateService, UpdateService, texts_in
from ...engines.base import ResourceLimits
from . import storage
from .service_records import ServiceRecord

MAX_REPLICAS = 100
_MAX_VARIABLES_BYTES = 1 << 20
_RESOURCES = {"cpu": "cpu", "memory": "memory", "ephemeral_storage": "ephemeralStorage"}
_HOST_NAME = re.compile(r"[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?\Z")
_ALPHABET = "abcdefghijklmnopqrstuvwxyz0123456789"


def id_of(request: CreateService, project: Project) -> str:
    """The name that was asked for, which must be legal as a host name; else one like it is published."""
    if request.service_name:
        if not _HOST_NAME.match(request.service_name):
            raise InvalidRequest(
                f"field 'service_name': {request.service_name!r} is not a host name; use at most 63 lower-case "
                "letters, digits and '-'"
            )
        return request.service_name
    prefix = re.sub(r"[^a-z0-9]+", "-", project.name.lower())[:40].strip("-")
    return f"{prefix}-svc-{''.join(secrets.choice(_ALPHABET) for _ in range(6))}"


def storage_of(request: CreateService, project: Project) -> str | None:
    """The name of its storage; None when it wants none."""
    if not request.storage_size and not request.pvc_name:
        return None
    return storage.check_name(request.pvc_name or project.name)


def check_port(port: int) -> int:
    """The port, if there can be such a one."""
    if not 1 <= port <= 65535:
        raise InvalidRequest(f"field 'port': {port} is not a number from 1 to 65535")
    return port


def version_of(request: UpdateService, name: str) -> str | None:
    """The version that an update of a service of environment `name` asks for, if any."""
    if request.version or not request.image:
        return request.version
    before, mark, version = request.image.rpartition("@" if "@" in request.image else ":")
    if not mark:
        raise InvalidRequest(f"field 'image': {request.image!r} names no version; write '{name}@1.0.1', or a tag")
    if mark == "@" and before != name:
        raise InvalidRequest(f"field 'image': the service runs {name!r}; an update changes its version alone")
    return version


def check(record: ServiceRecord) -> None:
    """InvalidRequest when no service can be like that."""
    if not 1 <= record.replicas <= MAX_REPLICAS:
        raise InvalidRequest(f"field 'replicas': must be from 1 to {MAX_REPLICAS}, got {record.replicas}")
    if record.storage and record.replicas > 1:
        raise InvalidRequest("field 'replicas': must be 1 with storage, which only one replica may write to")
    size = sum(len(text.encode()) for pair in texts_in(record.setup.variables).items() for text in pair)
    if size > _MAX_VARIABLES_BYTES:
        limit = _MAX_VARIABLES_BYTES >> 10
        raise InvalidRequest(f"field 'environment_variables': all of them together exceed {limit} KiB")


def amounts_of(request: CreateService) -> dict[str, str]:
    """What a replica shall be able to use, by the names of a create. InvalidRequest when one is not an amount."""
    found = {}
    for resource, name in _RESOURCES.items():
        for kind in ("request", "limit"):  # what is asked for counts where there is no limit
            field = f"{resource}_{kind}"
            if value := getattr(request, field):
                with of_field(field):
                    _amount(resource, value)
                found[name] = value
    if request.storage_size:
        with of_field("storage_size"):
            quantities.size_bytes(request.storage_size)
    return found


def unused_amounts(request: CreateService, limits: ResourceLimits) -> tuple[str, ...]:
    """The amounts that a replica, which has these limits, does not get, each with the reason."""
    has = {"cpu": limits.cpus, "memory": limits.memory_bytes, "ephemeral_storage": limits.storage_bytes}
    found = []
    for field, value in request.model_dump(exclude_none=True).items():
        resource, _, kind = field.rpartition("_")
        if kind in ("request", "limit") and _amount(resource, value) != has[resource]:
            why = "its environment allows no more" if kind == "limit" else "a replica has its limit"
            found.append(f"{field}: {why}")
    return tuple(found)


def _amount(resource: str, value: str) -> float:
    return quantities.cpus(value) if resource == "cpu" else quantities.size_bytes(value)
