"""What an engine is: the Protocol, and the values that cross it.

The gateway sees only this file. `conformance/engine.py` holds every engine to it.
"""

from __future__ import annotations

from collections.abc import AsyncIterable, AsyncIterator, Collection, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, Protocol, runtime_checkable

from ..artifacts.pythons.runtimes import Python
from ..base.addresses import Origin
from ..base.config import Network, Project
from ..isolation.egress import Connect


@dataclass(frozen=True)
class ResourceLimits:
    """What an instance may use; None leaves it to the engine."""

    cpus: float | None = None
    memory_bytes: int | None = None
    storage_bytes: int | None = None
    pids: int | None = None
    open_files: int | None = None
    gpus: int | None = None


DEFAULT_LIMITS = ResourceLimits(memory_bytes=4 << 30, storage_bytes=1 << 30, pids=1024, open_files=4096)
"""What an instance may use where neither its environment nor its creator says so."""


@dataclass(frozen=True)
class LazySidecar:
    """A sidecar that is made when the main part uses it for the first time."""

    dockerfile: Path | None = None
    """What its root is built of, in the folder where it lies; without one it is the host's own system."""
    requirements: tuple[str, ...] = ()
    """Python packages that code which the main part runs there can import, and nothing else there."""


@dataclass(frozen=True)
class ModelEndpoint:
    """A model that an instance may ask through a relay, which alone knows the key."""

    url: str
    key: str = field(default="", repr=False)


DATA_PLACE = "/data"
"""Where an instance sees its data, if its engine shows it other files than the host's."""


STORAGE_PLACE = "/storage"
"""Where it sees its storage, unless another place is asked for."""


@dataclass(frozen=True)
class InstanceSpec:
    """Everything an engine needs to make one instance."""

    id: str
    environment: str  # "name@version"
    project: Path
    environment_variables: Mapping[str, str] = field(default_factory=dict)
    arguments: tuple[str, ...] = ()
    start_timeout: float = 60.0
    """Seconds until it serves; making or fetching its root the first time is not counted."""
    call_timeout: float | None = None
    python: Python | None = None
    """What its runtime runs on; None for the interpreter that runs us."""
    requirements: Path | None = None
    """A folder of Python packages that the environment requires, for that Python."""
    storage: Path | None = None
    """A folder, or a volume that the engine has made, that outlives the instance; a service's."""
    storage_place: str = STORAGE_PLACE
    """Where the instance sees it, if its engine shows it other files than the host's."""
    works_in: str = ""
    """The id of the instance whose workspace it works in, in place of one of its own (`SharesWorkspaces`)."""
    shares_workspace: bool = False
    """Whether others will work in its workspace."""
    keep_history: bool = True
    """Whether the runtime remembers its last calls, with their arguments."""
    limits: ResourceLimits = field(default_factory=ResourceLimits)
    network: Network = field(default_factory=Network)
    model: ModelEndpoint | None = None
    """What it may ask besides, whatever its network is."""
    uses_environments: bool = False
    """Whether it reaches its gateway, for instances of other environments, whatever its network is."""
    image: str = ""
    """The image whose files it shall see, where the engine has it."""
    data: Path | None = None
    """A folder that it may read at /data."""
    data_variable: str = ""
    """The variable that tells the environment where it finds that folder."""
    folders: Mapping[str, Path] = field(default_factory=dict)
    """Further folders that it may read, by the variable that tells where."""
    sidecar: str | LazySidecar = ""
    """The image of a sidecar, where the tools of the instance run commands; or one made at its first use."""
    preload: tuple[str, ...] = ()
    """Modules that are the same for all instances of the environment, to be loaded once."""
    tenant: str = ""
    """Whose it is, where there are accounts: instances of different tenants share no process and no user id."""
    owner: str = ""
    """Whose it is, for an engine that shows owners to operators; without accounts its creator may name one."""
    isolation: str = ""
    """How it must be kept apart, where the environment asks for more than is usual: "gvisor"."""
    labels: Mapping[str, str] = field(default_factory=dict)
    """Those of its creator, for an engine that shows labels to operators."""
    ttl: float | None = None
    """Seconds after which the gateway ends it, unless it is renewed; None for a replica of a service."""
    drain: float = 0.0
    """Seconds in which requests that are under way may end, where not the gateway but the engine ends it."""
    pod_template: str = "singleContainer"
    """The name of the operator's template for its Pod, where the engine makes Pods."""


@dataclass(frozen=True)
class Address:
    """Where a ready instance serves, and what it said when it became ready."""

    origin: Origin
    pid: int
    tools: list[dict[str, Any]] = field(default_factory=list)
    root: str = ""
    """Which root file system it has, in words for people."""
    not_enforced: tuple[str, ...] = ()
    """Which of its limits this host cannot enforce, each with the reason."""
    isolation: tuple[str, ...] = ()
    """What keeps this one apart, where that is not what its engine says of all."""


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


@runtime_checkable
class StartsSoon(Protocol):
    """An engine whose instances run so soon that what is recorded before would only be recorded again."""

    soon: float
    """Seconds in which an instance runs as a rule."""


# What some engines can do besides; the gateway asks `isinstance`, and says so when one cannot.


@runtime_checkable
class Describes(Protocol):
    """An engine that tells operators and authors more of itself than `isolation`."""

    summary: str
    """What keeps instances apart here, or why it makes none; one line."""

    def describe_rootfs(self, project: Project) -> str:
        """Which root file system instances of the project get, in words. Reads files, and makes nothing."""
        ...


def summary(engine: Engine) -> str:
    """One line on what the engine isolates, whether or not it `Describes` itself."""
    if isinstance(engine, Describes):
        return engine.summary
    return ", ".join(engine.isolation) or "does not isolate instances"


@runtime_checkable
class LeadsToGateway(Protocol):
    """An engine whose instances can use other environments, by a relay to the gateway."""

    def lead_to(self, connect: Connect) -> None:
        """From now on their relays lead to the gateway that `connect` gives connections to."""
        ...


@runtime_checkable
class SharesWorkspaces(Protocol):
    """An engine whose instances can work in the workspace of another one (`InstanceSpec.works_in`)."""

    def why_no_shared_workspaces(self) -> str:
        """Why they cannot here, and what to do about it; empty when they can."""
        ...


@runtime_checkable
class Logs(Protocol):
    """What instances print."""

    def logs(self, id: str, *, follow: bool = False) -> AsyncIterator[bytes]:
        """What the instance has printed so far; with `follow` also what comes, until it ends."""
        ...


@dataclass(frozen=True)
class CommandOutput:
    """A piece of what a command printed, or, at last, its exit code."""

    stream: Literal["stdout", "stderr", "exit"]
    data: bytes = b""
    exit_code: int | None = None


@runtime_checkable
class Exec(Protocol):
    """Commands beside the environment's own code."""

    def exec(
        self, id: str, command: Sequence[str], *, stdin: bytes = b"", timeout: float | None = None
    ) -> AsyncIterator[CommandOutput]:
        """Run a command in the instance; the last piece is its exit code. Leaving early, or `timeout`, ends it."""
        ...


class InstanceTerminal(Protocol):
    """A terminal in an instance, from the outside."""

    @property
    def exit_code(self) -> int | None:
        """Of its program, as a shell counts; None while that runs."""
        ...

    async def read(self) -> bytes:
        """What the program has written since; empty when it has ended."""
        ...

    async def write(self, data: bytes) -> None:
        """As if typed. Returns when the terminal has taken it."""
        ...

    def resize(self, columns: int, rows: int) -> None:
        """The program is told by SIGWINCH."""
        ...


@runtime_checkable
class OpensTerminals(Protocol):
    """An engine whose instances can have terminals beside the environment's own code."""

    def terminal(
        self, id: str, command: Sequence[str], *, columns: int, rows: int
    ) -> AbstractAsyncContextManager[InstanceTerminal]:
        """Run a command in a terminal, as confined as the instance is. Leaving ends it, and hangs up."""
        ...

    def why_no_terminal(self, id: str) -> str:
        """Why this instance can have none; empty when it can."""
        ...


@dataclass(frozen=True)
class FileEntry:
    """A file or folder in an instance."""

    path: str
    """Relative to the workspace."""
    kind: Literal["file", "folder", "link", "other"]
    size_bytes: int
    modified_at: float


MAX_ENTRIES = 10_000
"""How many entries of a folder are listed at a time."""


@runtime_checkable
class Files(Protocol):
    """The files of an instance's workspace. Paths are relative to it; none leads out of it, links included."""

    async def put(self, id: str, path: str, content: AsyncIterable[bytes]) -> int:
        """Write a file, whole or not at all, and make the folders above it; returns its size."""
        ...

    def read(self, id: str, path: str) -> AsyncIterator[bytes]:
        """The content of a file. NotFound before the first byte when there is none."""
        ...

    async def list(self, id: str, path: str = "", *, after: str = "", limit: int = MAX_ENTRIES) -> list[FileEntry]:
        """What is in a folder, by name: the first `limit` of those whose name comes after `after`."""
        ...

    async def remove(self, id: str, path: str) -> None:
        """Remove a file, or a folder with all that is in it."""
        ...


@runtime_checkable
class Volumes(Protocol):
    """An engine whose instances can have storage of a fixed size."""

    def why_no_volumes(self) -> str:
        """Why there can be none here, and what to do about it; empty when there can."""
        ...

    async def make_volume(self, place: Path, size_bytes: int) -> None:
        """Make one that is empty, as the file `place`; from then on it can be the storage of an instance."""
        ...


@runtime_checkable
class Ports(Protocol):
    """Servers that the environment's code has started inside."""

    async def port(self, id: str, port: int) -> Origin:
        """Where a port of the instance can be reached. NotFound when nothing in the instance listens there."""
        ...


@runtime_checkable
class SharedByGateways(Protocol):
    """An engine whose instances all gateways on one store reach, call and end, wherever these gateways run."""

    node: str
    """Names it to these gateways, in place of the home folder of each."""

    async def join(self, installation: str, place: str) -> bool:
        """Take part as a gateway of `installation`, which is a store; whether no other gateway of it lives.

        Conflict where gateways of another installation have instances under the same name. `place` is a home
        folder: what had it before has ended.
        """
        ...

    def present(self) -> Collection[str]:
        """The ids of all instances that are there, as last seen: those that start or have ended, too."""
        ...


@runtime_checkable
class Sweeps(Protocol):
    """An engine of which several objects may use one home; it finds what those that have ended have left."""

    async def sweep(self) -> None:
        """Remove it; what lives, or is being made, stays."""
        ...


@runtime_checkable
class Leftovers(Protocol):
    """Traces of instances that do not run."""

    async def leftovers(self) -> Sequence[str]:
        """Their ids. One that another engine object starts at this moment is among them."""
        ...


@dataclass(frozen=True)
class WantedService:
    """A service as it shall run, where the engine looks after its replicas."""

    id: str
    generation: int
    """Which setup it is: replicas of others are replaced."""
    replicas: int
    spec: InstanceSpec
    """Of every replica; `storage` names the storage, which the engine makes."""
    port: int | None = None
    """Where a server of the environment may listen, beside the runtime."""
    storage_bytes: int | None = None


@dataclass(frozen=True)
class ServiceReplica:
    """A replica that such an engine has made."""

    id: str
    generation: int
    origin: Origin | None
    """Where its runtime serves; None while it does not, or must not be given requests."""
    problem: str = ""
    """Why its last start came to nothing, or why it has ended."""
    waits_for: str = ""
    """What keeps it from serving, while nothing is wrong with it."""


@runtime_checkable
class KeepsServices(Protocol):
    """An engine that looks after the replicas of services itself, whichever gateways there are."""

    async def keep_service(self, wanted: WantedService) -> str:
        """From now on it shall be like that; may be repeated. Returns why it has no replicas, if that is known."""
        ...

    def service_replicas(self, id: str) -> Sequence[ServiceReplica]:
        """Those that there are now, oldest first."""
        ...

    async def service_changed(self, id: str) -> None:
        """Return at the next change of its replicas."""
        ...

    async def end_service(self, id: str, storage: Path | None) -> None:
        """Return once its replicas are gone, and the storage that is named. Fine when they are."""
        ...

    def forget_service(self, id: str) -> None:
        """Another gateway has ended it: what has its name from now on is another service."""
        ...

    def check_service(self, id: str, storage: Path | None) -> None:
        """InvalidRequest when there can be no service, or no storage, of that name."""
        ...


@dataclass(frozen=True)
class ResourceUsage:
    """What an instance uses now."""

    cpu_seconds: float
    memory_bytes: int
    processes: int


@runtime_checkable
class Measures(Protocol):
    """An engine that knows what its instances use."""

    async def used(self, ids: Sequence[str]) -> Mapping[str, ResourceUsage]:
        """For those of `ids` that run."""
        ...


@runtime_checkable
class Freeze(Protocol):
    """Instances that can be stopped in their tracks, and go on as if nothing had been."""

    async def freeze(self, id: str) -> None:
        """From now on it uses no CPU. NotFound when it does not run."""
        ...

    async def thaw(self, id: str) -> None:
        """It goes on. Fine when it is not frozen."""
        ...


@runtime_checkable
class Warm(Protocol):
    """An engine that can have spare instances ready, so that a create only has to fill one in."""

    async def keep_warm(self, spec: InstanceSpec, count: int) -> None:
        """From now on keep so many for instances like `spec` (its id, variables and arguments do not matter).

        Returns at once; they are made in the background, and made again as they are used. 0 lets them go.
        """
        ...

    def warm(self) -> Mapping[str, int]:
        """How many are ready now, by environment."""
        ...
