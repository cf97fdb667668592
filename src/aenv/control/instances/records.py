"""What is known about one instance: kept in the store, and told to clients."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field, fields, replace
from datetime import UTC, datetime
from typing import Any, Literal, TypeVar

from ...base import quantities
from ...base.addresses import Origin
from ...base.config import Project
from ...base.errors import sayable
from ...base.models import Env, EnvInstance
from ...base.wire import EnvStatus, timestamp
from ...engines.base import Address
from ..serving.masking import masked

T = TypeVar("T")
_MAX_EVENTS = 50
_MAX_REASON = 8192  # characters: an environment that fails to load says why, in its own words


@dataclass(frozen=True)
class RecordedGrant:
    """Which other environments an instance may use, and how much (`kinship.py`)."""

    environments: list[str]
    calls: int
    depth: int
    seconds: float
    instances: int
    author: str
    """Who pushed its environment, where that is another user than its owner; else empty."""


@dataclass(frozen=True)
class RecordedPart:
    """What a part of a composed environment shall be."""

    env: str
    shared: bool
    """Whether it works in the workspace of the whole."""
    variables: dict[str, str]


@dataclass(frozen=True)
class RecordedParts:
    """The parts that an instance is composed of (`kinship.py`)."""

    author: str
    """As in its grant."""
    named: dict[str, RecordedPart]

    @classmethod
    def load(cls, value: dict[str, Any]) -> RecordedParts:
        return cls(value["author"], {name: _known(RecordedPart, part) for name, part in value["named"].items()})


@dataclass
class Record:
    """One instance, from its admission to an hour after its end."""

    id: str
    node: str
    """Whose engine it runs on: only gateways of the same node can end it."""
    gateway: str
    """The gateway that looks after it."""
    fingerprint: str
    """Of the request and its owner: the same request again is the same instance."""
    environment: str = ""
    """name@version; empty until it is known."""
    code: str = ""
    """The name of the folder that its code is in."""
    requirements: str = ""
    """The name of the folder that the packages are in which it requires."""
    runtime: str = ""
    """The name of the folder of its Python's runtime; empty when that is the gateway's own."""
    env: dict[str, Any] = field(default_factory=dict)
    """The environment as clients see it."""
    owner: str | None = None
    account: str | None = None
    demands_token: bool = False
    """Whether its id alone does not open it: our own client made it for an account."""
    labels: dict[str, str] = field(default_factory=dict)
    self_check: Literal["", "needed", "skipped", "own"] = ""
    """Whether its rewards wait for the self-check of its task; "own" are the instances that make one."""
    parent: str = ""
    """The instance that made it, with which it ends; empty where a client made it."""
    until: float = 0.0
    """When it ends at the latest, in seconds since the epoch; 0 where no grant limits it."""
    part: str = ""
    """What its parent calls it, where it is a part of a composed environment."""
    works_in: str = ""
    """The id of the instance whose workspace it works in, in place of one of its own."""
    parts: RecordedParts | None = None
    grants: RecordedGrant | None = None
    ttl: float = 0.0
    idle_timeout: float | None = None
    cpu_milli: int = 0
    memory_bytes: int = 0
    freeze_after: float | None = None
    """Seconds without a call after which it is frozen; None leaves it to the gateway, 0 is never."""
    reclaim: bool = False
    """Whether it may be ended for its memory while it is frozen."""
    isolation: list[str] = field(default_factory=list)
    """What keeps it apart from the host."""
    not_enforced: list[str] = field(default_factory=list)
    root: str = ""
    """Both as its engine said when it made it."""
    status: EnvStatus = EnvStatus.CREATING
    requested_at: float = field(default_factory=time.time)
    created_at: float = field(default_factory=time.time)
    updated_at: float = field(default_factory=time.time)
    expires_at: float = 0.0
    """When its time to live is over, in seconds since the epoch."""
    reason: str | None = None
    address: Address | None = None
    key: str | None = None
    """The Idempotency-Key of the request that made it."""
    secrets: list[str] = field(default_factory=list)
    """The names of the secrets that it was given; their values are nowhere in here."""
    begins_again: bool = False
    """Whether the same id or key may be asked for anew: it failed because its gateway ended, not by itself."""
    events: list[dict[str, Any]] = field(default_factory=list)
    revision: int = 0
    """How often the store has seen it."""

    @property
    def is_live(self) -> bool:
        return self.status in (EnvStatus.CREATING, EnvStatus.RUNNING)

    @property
    def may_have_children(self) -> bool:
        return self.grants is not None or self.parts is not None

    @property
    def expiry(self) -> str:
        """Why it ends when its time has come."""
        if self.until and self.until < self.created_at + self.ttl:
            return "the time that the grant of its parent gives was over"
        return f"its time to live of {self.ttl:g} s was over"

    @property
    def name(self) -> str:
        return self.environment.partition("@")[0]

    def become(self, status: EnvStatus, reason: str | None = None) -> None:
        """For `Transitions` alone: the status follows the state."""
        self.status = status
        self.reason = reason if reason is None else sayable(reason)[:_MAX_REASON]
        self.updated_at = time.time()
        self.note(status.value.lower(), self.reason)

    def note(self, what: str, detail: str | None = None) -> None:
        """Add to what can be asked about its life."""
        self.events = [*self.events[1 - _MAX_EVENTS :], {"at": timestamp(), "what": what, "detail": detail}]

    def started(self, address: Address, isolation: Sequence[str]) -> Record:
        """The record of the instance once it runs: its time to live begins. As a copy, to be written first."""
        running = replace(
            self,
            address=address,
            isolation=list(address.isolation or isolation),
            not_enforced=list(address.not_enforced),
            root=address.root,
        )
        running.become(EnvStatus.RUNNING)
        running.created_at = running.updated_at
        running._expire_after(running.ttl)
        return running

    def renew(self, ttl: float) -> None:
        """Its time to live is `ttl` seconds from now."""
        self.ttl = ttl
        self._expire_after(ttl)
        self.note("renewed", quantities.spell_seconds(ttl))

    def _expire_after(self, ttl: float) -> None:
        at = time.time() + ttl
        self.expires_at = min(at, self.until) if self.until else at

    def dump(self) -> dict[str, Any]:
        """As the store keeps it, to be written at once: the parts are the record's own."""
        # Not asdict, which copies every tool's schema and looks at each field twice: that was a tenth of a create.
        address = self.address
        origin = address and {name: part for name, part in vars(address.origin).items() if name != "source"}
        tools = address.tools if address and self.is_live else []  # which are told of those that run
        where = address and {"origin": origin, "pid": address.pid, "tools": tools}
        parts, grants = self.parts and asdict(self.parts), self.grants and asdict(self.grants)
        value = {**vars(self), "address": where, "parts": parts, "grants": grants}
        del value["revision"]
        return value

    @classmethod
    def load(cls, value: dict[str, Any], revision: int) -> Record:
        address = value["address"]
        if address:
            origin = Origin(**address["origin"])
            said = value.get("root", ""), tuple(value.get("not_enforced", ()))
            address = Address(origin, address["pid"], address["tools"], *said)
        if "layer" in value:  # its name in earlier builds
            value = {"requirements": value["layer"], **value}
        grants, parts = value.get("grants"), value.get("parts")
        typed = {
            "status": EnvStatus(value["status"]),
            "address": address,
            "grants": grants and _known(RecordedGrant, grants),
            "parts": parts and RecordedParts.load(parts),
        }
        return _known(cls, {**value, **typed, "revision": revision})


def _known(kind: type[T], value: dict[str, Any]) -> T:
    """The fields that this version has: a newer one may know more."""
    return kind(**{each.name: value[each.name] for each in fields(kind) if each.name in value})  # type: ignore[arg-type]


def describe(record: Record, *, host: str, frozen: bool) -> EnvInstance:
    """The instance as every reply shows it."""
    running = record.status is EnvStatus.RUNNING
    return EnvInstance(
        id=record.id,
        env=Env.model_validate(record.env) if record.env else None,
        status=record.status,
        created_at=timestamp(record.created_at),
        updated_at=timestamp(record.updated_at),
        ip=host,
        ttl=quantities.spell_seconds(record.ttl),
        owner=record.owner,
        labels=record.labels or None,
        parent=record.parent or None,
        reason=record.reason,
        expires_at=timestamp(record.expires_at) if running else None,
        frozen=frozen if running else None,
    )


def describe_environment(project: Project) -> dict[str, Any]:
    """The environment of an instance, with nothing secret in it."""
    now = datetime.now(UTC)
    env = Env(
        id=f"{project.name}-{project.version}",
        name=project.name,
        description=project.description,
        version=project.version,
        tags=list(project.tags),
        deploy_config=masked(project.deploy.raw),
        eval_only=project.eval_only or None,
        created_at=now,
        updated_at=now,
    )
    return env.model_dump(mode="json")
