"""What a gateway says of an instance and of a service, read once; `sent` is the whole reply.

`models.EnvInstance` and `models.EnvService` name the same fields. They would cost the import of pydantic.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, TypeVar

from ..base.errors import EnvironmentError
from ..base.leasing import Grant

Sent = Mapping[str, Any]
T = TypeVar("T", "Instance", "Service")
V = TypeVar("V")


@dataclass(frozen=True)
class Instance:
    """An instance; what the gateway did not say is None or empty."""

    id: str
    status: str
    created_at: str = ""
    updated_at: str = ""
    expires_at: str = ""
    ip: str | None = None
    environment: str | None = None
    """The name alone."""
    version: str | None = None
    owner: str | None = None
    reason: str = ""
    not_enforced: Sequence[str] = ()
    isolation: Sequence[str] = ()
    tools: list[dict[str, Any]] | None = None
    mcp_url: str | None = None
    socket: str | None = None
    lease: Grant | None = None
    """Of its create, where that was asked to bring one."""
    token: str | None = field(default=None, repr=False)
    sent: Sent = field(default_factory=dict, repr=False)

    @staticmethod
    def of(sent: Any) -> Instance:
        """EnvironmentError when that is not an instance."""
        return _read(Instance, sent, "an instance")


@dataclass(frozen=True)
class Service:
    """A service; what the gateway did not say is None or empty."""

    id: str
    status: str
    replicas: int = 0
    available_replicas: int = 0
    created_at: str = ""
    environment: str | None = None
    version: str | None = None
    owner: str | None = None
    reason: str = ""
    service_url: str | None = None
    instances: Sequence[str] = ()
    """The ids of its replicas."""
    sent: Sent = field(default_factory=dict, repr=False)

    @staticmethod
    def of(sent: Any) -> Service:
        """EnvironmentError when that is not a service."""
        return _read(Service, sent, "a service")


def value_of(sent: Any, name: str, kind: type[V]) -> V:
    """The one value of a reply that has no more. EnvironmentError when it is not there."""
    value = sent.get(name) if isinstance(sent, dict) else None
    if not isinstance(value, kind):
        raise EnvironmentError(f"the gateway's reply has no {name!r}: {str(sent)[:200]!r}")
    return value


def _read(kind: type[T], sent: Any, what: str) -> T:
    if not isinstance(sent, dict) or not all(isinstance(sent.get(key), str) for key in ("id", "status")):
        raise EnvironmentError(f"the gateway's reply does not describe {what}: {str(sent)[:200]!r}")
    env = sent.get("env")  # of which published gateways tell a part, or nothing
    env = env if isinstance(env, dict) else {}
    told = {**sent, "environment": env.get("name"), "version": env.get("version"), "sent": sent}
    told["lease"] = _grant(sent.get("lease"))
    known = {name: told.get(name) for name in kind.__dataclass_fields__}
    return kind(**{name: value for name, value in known.items() if value is not None})


def _grant(sent: object) -> Grant | None:
    if isinstance(sent, dict):
        with suppress(TypeError):  # of another version: the first call asks for a lease
            return Grant(**sent)
    return None
