"""How much an instance may use: what its environment has, and what the request makes of it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ...base import quantities
from ...base.config import Project
from ...base.errors import InvalidRequest, of_field
from ...base.models import CreateInstance
from ...engines.base import ResourceLimits


def limits_for(request: CreateInstance, project: Project) -> ResourceLimits:
    """InvalidRequest when the request asks for more than the environment has, unless its owner allows that."""
    asked = request.resources or {}
    for name in asked:
        if name not in _RESOURCES:
            raise InvalidRequest(f"field 'resources.{name}': use {', '.join(_RESOURCES)}")
    return ResourceLimits(
        **{field: _amount(name, asked.get(name), project) for name, (field, _) in _RESOURCES.items()}
    )


def _amount(name: str, asked: Any, project: Project) -> Any:
    parse = _RESOURCES[name][1]
    own = project.deploy.get(name, project.deploy.get(f"{name}Limit"))
    most = parse(own) if own is not None else None
    if asked is None:
        return most
    with of_field(f"resources.{name}"):
        amount = parse(asked)
    if most is not None and amount > most and not project.deploy.get("allowMoreResources"):
        raise InvalidRequest(f"field 'resources.{name}': environment '{project.ref}' allows {own!r} at most")
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
}
