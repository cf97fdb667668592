"""How much an instance may use: what its environment has, and what the request makes of it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from ...base import quantities
from ...base.config import Amount, Deploy, Project
from ...base.errors import InvalidRequest, of_field
from ...base.models import CreateInstance
from ...engines.base import ResourceLimits


def limits_for(request: CreateInstance, project: Project) -> ResourceLimits:
    """InvalidRequest when the request asks for more than the environment has, unless its owner allows that."""
    asked = request.resources or {}
    for name in asked:
        if name not in _RESOURCES:
            raise InvalidRequest(f"field 'resources.{name}': use {', '.join(_RESOURCES)}")
    own = _own(project.deploy)
    return ResourceLimits(
        **{field: _amount(name, asked.get(name), own[name], project) for name, (field, _) in _RESOURCES.items()}
    )


def allowed(asked: Mapping[str, str], project: Project) -> dict[str, str]:
    """Those of some amounts that its environment allows, and that are not what it has anyway."""
    own = _own(project.deploy)

    def is_kept(name: str, written: str) -> bool:
        amount, has = _RESOURCES[name][1](written), own[name]
        return has is None or amount < has.value or (amount > has.value and project.deploy.allow_more_resources)

    return {name: written for name, written in asked.items() if is_kept(name, written)}


def _own(deploy: Deploy) -> dict[str, Amount | None]:
    """What the environment has, by the names of a request; the old limits count where there is no other."""
    return {
        "cpu": deploy.cpu or deploy.cpu_limit,
        "memory": deploy.memory or deploy.memory_limit,
        "ephemeralStorage": deploy.ephemeral_storage or deploy.ephemeral_storage_limit,
        "pids": deploy.pids,
        "openFiles": deploy.open_files,
        "gpu": deploy.gpu,
    }


def _amount(name: str, asked: Any, own: Amount | None, project: Project) -> Any:
    if asked is None:
        return own and own.value
    with of_field(f"resources.{name}"):
        amount = _RESOURCES[name][1](asked)
    if own and amount > own.value and not project.deploy.allow_more_resources:
        raise InvalidRequest(
            f"field 'resources.{name}': environment '{project.ref}' allows {own.written!r} at most"
        )
    return amount


def _count(value: str | float) -> int:
    if not str(value).isdecimal() or int(value) < 1:
        raise InvalidRequest(f"must be a whole number above 0, got {value!r}")
    return int(value)


def _size(value: str | float) -> int:
    size = quantities.size_bytes(str(value) if isinstance(value, float) else value)
    if size < 1:
        raise InvalidRequest(f"must be greater than 0, got {value!r}")
    return size


_RESOURCES: dict[str, tuple[str, Callable[[Any], float]]] = {
    "cpu": ("cpus", quantities.cpus),
    "memory": ("memory_bytes", _size),
    "ephemeralStorage": ("storage_bytes", _size),
    "pids": ("pids", _count),
    "openFiles": ("open_files", _count),
    "gpu": ("gpus", _count),
}
