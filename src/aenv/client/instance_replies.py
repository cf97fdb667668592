"""What a gateway says of an instance and of a service, read once; `sent` is the whole reply.

`models.EnvInstance` and `models.EnvService` name the same fields. They would cost the import of pydantic.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from ..base.errors import EnvironmentError

Sent = Mapping[str, Any]


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
    not_enforced: tuple[str, ...] = ()
    isolation: tuple[str, ...] = ()
    tools: list[dict[str, Any]] | None = None
    mcp_url: str | None = None
    socket: str | None = None
    token: str | None = field(default=None, repr=False)
    sent: Sent = field(default_factory=dict, repr=False)

    @classmethod
    def of(cls, sent: Any) -> Instance:
        """EnvironmentError when that is not an instance."""
        env = _described(sent, "an instance")
        return cls(
            id=sent["id"],
            status=sent["status"],
            created_at=sent.get("created_at") or "",
            updated_at=sent.get("updated_at") or "",
            expires_at=sent.get("expires_at") or "",
            ip=sent.get("ip"),
            environment=env.get("name"),
            version=env.get("version"),
            owner=sent.get("owner"),
            reason=sent.get("reason") or "",
            not_enforced=tuple(sent.get("not_enforced") or ()),
            isolation=tuple(sent.get("isolation") or ()),
            tools=sent.get("tools"),
            mcp_url=sent.get("mcp_url"),
            socket=sent.get("socket"),
            token=sent.get("token"),
            sent=sent,
        )


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
    url: str | None = None
    instances: tuple[str, ...] = ()
    """The ids of its replicas."""
    sent: Sent = field(default_factory=dict, repr=False)

    @classmethod
    def of(cls, sent: Any) -> Service:
        """EnvironmentError when that is not a service."""
        env = _described(sent, "a service")
        return cls(
            id=sent["id"],
            status=sent["status"],
            replicas=sent.get("replicas") or 0,
            available_replicas=sent.get("available_replicas") or 0,
            created_at=sent.get("created_at") or "",
            environment=env.get("name"),
            version=env.get("version"),
            owner=sent.get("owner"),
            reason=sent.get("reason") or "",
            url=sent.get("service_url"),
            instances=tuple(sent.get("instances") or ()),
            sent=sent,
        )


def _described(sent: Any, what: str) -> Sent:
    """What the reply says of the environment; published gateways say it in part, or not at all."""
    if not isinstance(sent, dict) or not all(isinstance(sent.get(key), str) for key in ("id", "status")):
        raise EnvironmentError(f"the gateway's reply does not describe {what}: {str(sent)[:200]!r}")
    env = sent.get("env")
    return env if isinstance(env, dict) else {}
