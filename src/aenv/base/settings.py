"""Environment variables to frozen dataclasses: the only place that reads `os.environ`.

Each process reads its settings once and hands them down; the SDK reads its own whenever an
`Environment` is constructed, because users set variables just before.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

logger = logging.getLogger("aenv.base.settings")

KNOWN = {
    "AENV_SYSTEM_URL": "address of a gateway; chooses remote mode",
    "AENV_API_KEY": "token for the gateway's control port",
    "AENV_HOME": "folder for everything aenv keeps (default ~/.aenv)",
    "AENV_STORE": "where a server keeps records: redis://… (default SQLite)",
    "AENV_BLOBS": "where a server keeps bundles: s3://… (default a folder)",
    "AENV_ALLOW_UNISOLATED": "1 allows instances without isolation where the kernel offers none",
    "AENV_INSTANCE_ID": "inside an instance: its id",
    "AENV_WORKSPACE": "inside an instance: its working folder",
    "AENV_ENVIRONMENT": "inside an instance: name@version of its environment",
    "AENV_CALL_TIMEOUT": "inside an instance: seconds a call may take",
    "AENV_STORAGE": "inside an instance: the folder that outlives it",
    "AENV_SECRET_NAMES": "inside an instance: the names of its variables that hold secrets",
    "AENV_SIDECAR": "inside an instance: the socket of its sidecar",
    "AENV_SECOND_PART": "inside an instance: the old name of AENV_SIDECAR",
    "AENV_VALIDATION": "inside an instance: 1 lets it play its reference solution, for 'aenv validate'",
    "AENV_START": "inside a container: how its runtime begins, as an engine has written it",
    "AENV_SERVICE_ID": "inside a replica of a service: the service's id",
    "AENV_TEST_SHARED": "tests only: the folder with shared test data",
    "AENV_NO_SYSTEM": "tests only: 1 installs no system packages",
}
DIRECT_MODE_VARIABLE = "DUMMY_INSTANCE_IP"
HUB_VARIABLE = "HUB_BACKEND"


@dataclass(frozen=True)
class ClientSettings:
    """What the SDK and the CLI read."""

    system_url: str | None = None
    direct_address: str | None = None
    api_key: str | None = None
    hub_url: str | None = None
    home: Path = Path("~/.aenv")
    allow_unisolated: bool = False


@dataclass(frozen=True)
class RuntimeSettings:
    """What the program inside an instance reads."""

    instance_id: str = "local"
    environment: str | None = None
    workspace: Path | None = None
    call_timeout: float | None = None
    sidecar: str | None = None
    """The socket of the sidecar."""
    start: str | None = None
    """What the engine says to the command of a container."""


@dataclass(frozen=True)
class GatewaySettings:
    """Every knob of the gateway. Read once by `aenv serve`; passed down, never looked up."""

    host: str = "127.0.0.1"
    port: int | None = 8080
    data_port: int | None = 8081
    """Control and data; 0 takes a free port, None none."""
    workers: int = 1
    """Processes that serve the data port; with 1, the gateway's own process does."""
    metrics_address: tuple[str, int] | None = None
    """Host and port where `/metrics` answers without a token; port 0 takes a free one."""
    socket: Path | None = None
    """A unix socket for control and data, which only this user can open."""
    projects: tuple[Path, ...] = ()
    home: Path = Path("~/.aenv")
    engine: str = "native"
    docker_host: str = "unix:///var/run/docker.sock"
    """The socket of the engine that makes containers, as in DOCKER_HOST."""
    docker_network: str = "bridge"
    """The network of containers that may reach everything."""
    kubeconfig: Path | None = None
    """Where the cluster is; None for that of the Pod that the gateway runs in, else the user's own."""
    kube_namespace: str = ""
    """The namespace of instances; empty for that of the kubeconfig or the Pod."""
    kube_name: str = "aenv"
    """Names the installation: gateways that share a store share it, too."""
    kube_templates: str = ""
    """The ConfigMap with templates of Pods."""
    base_image: str = ""
    """The image of environments without one; `{python}` stands for its version. Empty = the engine's default."""
    start_timeout: float = 60.0
    max_body_bytes: int = 64 << 20
    insecure: bool = False
    store: str = ""
    """Where records are kept: empty for SQLite in `home`, or redis://…"""
    blobs: str = ""
    """Where bundles are kept: empty for a folder in `home`, or s3://bucket/prefix"""
    rate_limit: float = 1000.0
    """Requests a second for each account; 0 sets no limit."""
    route_limits: Mapping[str, float] = field(default_factory=dict)
    """The same for some routes, as in {"POST /env-instance": 10}."""
    max_instances: int | None = None
    max_instances_by_label: Mapping[str, int] = field(default_factory=dict)
    """For each value of a label, as in {"experiment": 100}."""
    capacity_cpus: float | None = None
    capacity_memory_bytes: int | None = None
    """What all instances together may ask for."""
    allow_network: Literal["none", "egress", "full"] = "full"
    """What instances may reach at most, whatever their environments ask for."""
    model_urls: frozenset[str] = frozenset()
    """The models that instances may ask; "loopback" is all on this host's loopback."""
    model_key: str = field(default="", repr=False)
    """What is sent to those models where a request brings no key."""
    data_roots: tuple[Path, ...] = ()
    """Below which the folders are that a `datasource` may name."""
    data_folders: Mapping[str, Path] = field(default_factory=dict)
    """Folders by the variables under which published environments may ask for them."""
    pull: Literal["", "skopeo", "podman"] = ""
    """The program that fetches images which are not here; empty = none are fetched."""
    freeze_after: float = 60.0
    """Seconds without a call after which an instance is frozen; 0 = never."""
    reclaim_below: int | None = None
    """Bytes of memory that shall stay available, at the cost of frozen instances; None = a twentieth of it all."""
    warm_memory: int | None = None
    """Bytes that spare instances may take together; None = a tenth of the host's memory."""
    require_data_token: bool = False
    self_check: bool = True
    """Whether rewards of environments that ask for it wait for the self-check of their task."""
    allow_origins: frozenset[str] = frozenset()
    """The pages of others that may call, as in "http://localhost:6274"; a page of the gateway's own always may."""
    keep_history: bool = True
    keep_instances: bool = False
    """Whether instances outlive a gateway that stops, for the next one to take over."""
    idle_exit: float | None = None
    """Seconds without instances after which an embedded platform ends; None = never."""


def client_settings(environ: Mapping[str, str] | None = None) -> ClientSettings:
    env = _checked(environ)
    return ClientSettings(
        system_url=env.get("AENV_SYSTEM_URL") or None,
        direct_address=env.get(DIRECT_MODE_VARIABLE) or None,
        api_key=env.get("AENV_API_KEY") or None,
        hub_url=env.get(HUB_VARIABLE) or None,
        home=home(env),
        allow_unisolated=env.get("AENV_ALLOW_UNISOLATED") == "1",
    )


def runtime_settings(environ: Mapping[str, str] | None = None) -> RuntimeSettings:
    env = _checked(environ)
    timeout = env.get("AENV_CALL_TIMEOUT")
    return RuntimeSettings(
        instance_id=env.get("AENV_INSTANCE_ID") or "local",
        environment=env.get("AENV_ENVIRONMENT") or None,
        workspace=Path(env["AENV_WORKSPACE"]) if env.get("AENV_WORKSPACE") else None,
        call_timeout=float(timeout) if timeout else None,
        sidecar=env.get("AENV_SIDECAR") or None,
        start=env.get("AENV_START") or None,
    )


def home(environ: Mapping[str, str] | None = None) -> Path:
    """The folder for everything aenv keeps."""
    env = os.environ if environ is None else environ
    return Path(env.get("AENV_HOME") or "~/.aenv").expanduser()


def variables() -> Mapping[str, str]:
    """The variables of this process, for the author's code (`Context.variables`) and for child processes."""
    return os.environ


def forget(name: str) -> None:
    """Remove a variable of this process, which neither the author's code nor child processes shall see."""
    os.environ.pop(name, None)


def give(values: Mapping[str, str]) -> None:
    """Let these be the variables of this process, and no others."""
    for name in list(os.environ):
        del os.environ[name]
    for name, value in values.items():
        os.environ[name] = value


_warned: set[str] = set()


def _checked(environ: Mapping[str, str] | None) -> Mapping[str, str]:
    env = os.environ if environ is None else environ
    for name in env:
        if name.startswith("AENV_") and name not in KNOWN and name not in _warned:
            import difflib  # only for this message

            _warned.add(name)
            near = difflib.get_close_matches(name, KNOWN, n=1)
            hint = f"; did you mean {near[0]}?" if near else ""
            logger.warning("unknown variable %s%s", name, hint)
    return env
