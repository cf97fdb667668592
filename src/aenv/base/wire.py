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
MAX_HISTORY_CALLS = 256
MAX_HISTORY_BYTES = 1 << 20
"""What a runtime tells of its last calls, and what a gateway reads of that, at most."""
SELF_CHECK_HEADER = "AEnvCore-Self-Check"  # in replies of rewards: held, known, skipped or failed; and the reason
SELF_CHECK_ONLY = "only"  # the same header in a request for a reward: the check, and no reward
SELF_CHECK_REASON_HEADER = "AEnvCore-Self-Check-Reason"  # percent-encoded
LEASES_HEADER = "AEnvCore-Leases"  # the key of a request that holds leases: in its reply, and in creates beside it
TOKEN_HEADER = "AEnvCore-Instance-Token"  # in data replies: a fresh instance token, before the one sent expires

DEFAULT_TTL = "30m"
HUB_STATUSES = ("Init", "Pending", "Creating", "Created", "Testing", "Verified", "Ready", "Released", "Failed")
"""Of an environment in a hub; on the wire it is the number of one."""


def cut_id(id: str) -> str:
    """As much of an instance's id as tells it from others, and too little to open it."""
    name, _, random = id.rpartition("-")
    return f"{name}-{random[:6]}…"


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
