"""What client, gateway and hub agree on: header names, ids, statuses, times.

The shapes of requests and replies are in `models.py`, which costs the import of pydantic.
"""

from __future__ import annotations

import secrets
from base64 import b32encode
from datetime import UTC, datetime
from enum import StrEnum

INSTANCE_HEADER = "AEnvCore-EnvInstance-ID"
PROXY_URL_HEADER = "AEnvCore-MCPProxy-URL"  # sent by published clients; never dialled
TOKEN_HEADER = "AEnvCore-Instance-Token"  # in data replies: a fresh instance token, before the one sent expires

DEFAULT_TTL = "30m"


def new_instance_id(environment_name: str) -> str:
    """`<name cut to 30>-<26 random characters>`: 130 random bits, and a legal pod name."""
    prefix = "".join(c if c.isascii() and c.isalnum() else "-" for c in environment_name.lower())[:30].strip("-")
    return f"{prefix or 'env'}-{b32encode(secrets.token_bytes(17))[:26].decode().lower()}"


def timestamp(at: float | None = None) -> str:
    """Now, or `at` (seconds since the epoch), as RFC 3339 in UTC."""
    moment = datetime.now(UTC) if at is None else datetime.fromtimestamp(at, UTC)
    return moment.isoformat(timespec="milliseconds").replace("+00:00", "Z")


class EnvStatus(StrEnum):
    """Where an instance is in its life."""

    PENDING = "Pending"
    CREATING = "Creating"
    RUNNING = "Running"
    FAILED = "Failed"
    TERMINATED = "Terminated"


class ServiceStatus(StrEnum):
    """Where a service is in its life."""

    PENDING = "Pending"
    CREATING = "Creating"
    RUNNING = "Running"
    UPDATING = "Updating"
    FAILED = "Failed"
    TERMINATED = "Terminated"
