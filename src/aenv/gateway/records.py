"""What the gateway knows about one instance, and how it is told to clients."""

from __future__ import annotations

import asyncio
import time
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

from .. import quantities
from ..config import Project
from ..engines.base import Address
from ..errors import AEnvError
from ..models import CreateInstance, Env, EnvInstance
from ..wire import EnvStatus, timestamp

_MASK = "***"


@dataclass(eq=False)
class Record:
    """One instance, from the request to an hour after its end."""

    id: str
    request: CreateInstance
    project: Project
    ttl: float
    status: EnvStatus = EnvStatus.CREATING
    requested_at: float = field(default_factory=time.monotonic)
    """For the order of lists: unlike `created_at` it never changes, and no clock jump disturbs it."""
    created_at: float = field(default_factory=time.time)
    updated_at: float = field(default_factory=time.time)
    reason: str | None = None
    address: Address | None = None
    error: AEnvError | None = None
    """Why it could not be created."""
    expires_at: float = 0.0
    """When its time to live is over, in seconds since the epoch."""
    due: float = 0.0
    """On the sweeper's clock: when it expires, and after its end, when it is forgotten."""
    key: str | None = None
    """The Idempotency-Key of the request that made it."""
    creation: asyncio.Task[None] | None = None
    watcher: asyncio.Task[None] | None = None
    ended: asyncio.Event = field(default_factory=asyncio.Event)
    """Set once nothing of it is left."""
    waiting: int = 0
    """Requests that wait for its creation; the last to leave takes the creation along."""
    delivered: bool = False
    """Whether any client has been told that it runs."""
    abandoned: bool = False
    """Whether it will be gone as if it had never been asked for."""

    @property
    def is_live(self) -> bool:
        return self.status in (EnvStatus.CREATING, EnvStatus.RUNNING)

    def become(self, status: EnvStatus, reason: str | None = None) -> None:
        self.status = status
        self.reason = reason
        self.updated_at = time.time()

    def run(self, address: Address, now: float) -> None:
        """Its time to live begins."""
        self.address = address
        self.become(EnvStatus.RUNNING)
        self.created_at = self.updated_at
        self.live_for(self.ttl, now)

    def live_for(self, ttl: float, now: float) -> None:
        """Its time to live is `ttl` seconds from now."""
        self.ttl = ttl
        self.expires_at = time.time() + ttl
        self.due = now + ttl


def describe(record: Record, *, host: str) -> EnvInstance:
    """The instance as every reply shows it."""
    running = record.status is EnvStatus.RUNNING
    return EnvInstance(
        id=record.id,
        env=_describe_environment(record),
        status=record.status,
        created_at=timestamp(record.created_at),
        updated_at=timestamp(record.updated_at),
        ip=host,
        ttl=quantities.spell_seconds(record.ttl),
        owner=record.request.owner,
        labels=record.request.labels or None,
        reason=record.reason,
        expires_at=timestamp(record.expires_at) if running else None,
    )


def _describe_environment(record: Record) -> Env:
    project = record.project
    return Env(
        id=f"{project.name}-{project.version}",
        name=project.name,
        description=project.description,
        version=project.version,
        tags=list(project.tags),
        deploy_config=masked(project.deploy),
        created_at=datetime.fromtimestamp(record.created_at, UTC),
        updated_at=datetime.fromtimestamp(record.created_at, UTC),
    )


def masked(deploy: dict[str, Any]) -> dict[str, Any]:
    """`deploy` with the values of its variables hidden."""
    variables = deploy.get("environmentVariables")
    if not isinstance(variables, dict):
        return deploy
    return {**deploy, "environmentVariables": dict.fromkeys(variables, _MASK)}
