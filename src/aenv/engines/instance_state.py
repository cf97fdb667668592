"""What an engine writes down about an instance, so that an engine which starts after a crash finds it.

Each line of `state.jsonl` is an `InstanceState` as JSON, with the fields that were known then. A later line adds
to those before it. Earlier builds wrote the same fields, and their instances may still run.

Not here: the file, and the folder that it is in (`folder.py`).
"""

# No postponed annotations here: `typed` reads the types of the fields.

import contextlib
import json
from collections.abc import Iterable
from dataclasses import dataclass, field, fields
from typing import Any

from ..isolation.sandbox.typed_json import Broken, typed
from .proc import Process

_ENCODER = json.JSONEncoder(default=vars)
_SIDECAR_BEFORE = "second"
"""What earlier builds called the sidecar."""

Tools = list[dict[str, Any]]


@dataclass(frozen=True)
class SidecarProcess:
    """The first process of a sidecar."""

    pid: int
    start_time: int | None
    """None when it had ended before it was written down."""


@dataclass(frozen=True)
class AwaitedSidecar:
    """A sidecar that is made at its first use: until then a process of the engine holds its socket."""

    engine: int
    """The pid of that process."""
    since: int
    """Its start time."""


@dataclass(frozen=True)
class RelayedModel:
    """The model that an instance may ask, and where in it the relay listens."""

    url: str
    key: str = field(repr=False)
    token: str = field(repr=False)
    port: int


@dataclass(frozen=True)
class RelayedGateway:
    """The relay by which an instance uses other environments, and where in it that listens."""

    token: str = field(repr=False)
    port: int


@dataclass(frozen=True)
class InstanceState:
    """What is known of an instance; None is what is not known, or does not apply."""

    socket: str | None = None
    """Where it listens, when that is not in its folder."""
    pid: int | None = None
    """Of its first process; with `start_time` it means no other."""
    start_time: int | None = None
    environment: str | None = None
    group: str | None = None
    """The name of its control group."""
    owner: int | None = None
    """The id on the host of the user who is root inside."""
    root: str | None = None
    """The name of its rootfs."""
    not_enforced: tuple[str, ...] | None = None
    """The limits that the host cannot enforce, with the reasons."""
    egress: tuple[str, ...] | None = None
    """The hosts that it may reach through the egress proxy."""
    model: RelayedModel | None = None
    gateway: RelayedGateway | None = None
    open_files: int | None = None
    host_network: bool | None = None
    workspace: str | None = None
    """The volume that it works in, where several instances work in one."""
    isolation: str | None = None
    """Set for an instance in gVisor."""
    runtime: tuple[str, ...] | None = None
    """The command that starts its runtime in gVisor."""
    tools: Tools | None = None
    """What it offers; it is ready once this is known."""
    sidecar: SidecarProcess | AwaitedSidecar | None = None

    @property
    def leader(self) -> Process | None:
        """Its first process, also when it has ended; None when it was never started."""
        if self.pid is None or self.start_time is None:
            return None
        return Process(self.pid, self.start_time)

    def updated(self, newer: "InstanceState") -> "InstanceState":
        """This state, with what `newer` knows."""
        return InstanceState(**{**vars(self), **_known(newer)})

    def line(self) -> bytes:
        """What is known, as one line of the file."""
        return _ENCODER.encode(_known(self)).encode() + b"\n"


def read(lines: Iterable[bytes]) -> InstanceState:
    """The state that the lines tell, without lines that were cut short and values of a wrong type.

    Code in an instance of the process engine can write to the file.
    """
    found: dict[str, Any] = {}
    for line in lines:
        with contextlib.suppress(ValueError, RecursionError):
            values = json.loads(line)
            if isinstance(values, dict):
                if _SIDECAR_BEFORE in values:
                    values.setdefault("sidecar", values[_SIDECAR_BEFORE])
                found |= _typed_fields(values)
    return InstanceState(**found)


def _known(state: InstanceState) -> dict[str, Any]:
    return {name: value for name, value in vars(state).items() if value is not None}


def _typed_fields(values: dict[str, Any]) -> dict[str, Any]:
    """Those of the values that are fields, and of their types."""
    found = {}
    for one in fields(InstanceState):
        with contextlib.suppress(KeyError, Broken):
            value = values[one.name]
            found[one.name] = _tools(value) if one.name == "tools" else typed(one.type, value)
    return found


def _tools(value: Any) -> Tools | None:
    """As a runtime has announced them, whatever else a tool says: `protocol.ready` has read them before."""
    if value is None:
        return None
    if not isinstance(value, list) or not all(isinstance(tool, dict) for tool in value):
        raise Broken("tools is not a list of objects")
    return value
