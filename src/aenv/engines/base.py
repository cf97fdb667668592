"""What an engine is: the Protocol, and the values that cross it.

The gateway sees only this file. `conformance/engine.py` holds every engine to it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol, runtime_checkable

from ..addresses import Origin


@dataclass(frozen=True)
class InstanceSpec:
    """Everything an engine needs to make one instance."""

    id: str
    environment: str  # "name@version"
    project: Path
    environment_variables: Mapping[str, str] = field(default_factory=dict)
    arguments: tuple[str, ...] = ()
    start_timeout: float = 60.0
    call_timeout: float | None = None


@dataclass(frozen=True)
class Address:
    """Where a ready instance serves, and what it said when it became ready."""

    origin: Origin
    pid: int
    tools: list[dict[str, Any]] = field(default_factory=list)


class Engine(Protocol):
    """Makes and ends instances."""

    name: str
    isolation: tuple[str, ...]
    """What keeps an instance apart from the host, in words for people; empty when nothing does."""

    async def create(self, spec: InstanceSpec) -> Address:
        """Return once the instance serves requests. On failure, and on cancellation, leave nothing behind."""
        ...

    async def destroy(self, id: str) -> None:
        """End the instance and all it left behind. Idempotent; unknown ids are fine."""
        ...

    async def running(self) -> dict[str, Address]:
        """The instances that live now, also those made by an engine object before this one."""
        ...


@runtime_checkable
class NoticesEnds(Protocol):
    """An engine that can tell when an instance ends by itself."""

    async def ended(self, id: str) -> str:
        """Return, with the reason, once the instance has ended."""
        ...
