"""Environment variables to frozen dataclasses: the only place that reads `os.environ`.

Each process reads its settings once and hands them down; the SDK reads its own whenever an
`Environment` is constructed, because users set variables just before.
"""

from __future__ import annotations

import functools
import logging
import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

logger = logging.getLogger("aenv.base.settings")

KNOWN = {
    "AENV_SYSTEM_URL": "address of a gateway; chooses remote mode. Set inside an instance that has a grant",
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
    "AENV_PARTS": "inside an instance: the parts that its environment is composed of",
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
    instance_id: str | None = None
    """Set for a program inside an instance."""


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
class GatewayOption:
    """How the command line asks for a setting; its name and default are the field's unless told here."""

    help: str
    kind: str | tuple[str, ...]
    """A kind of value that `cli/settings_options.py` knows, or the words to choose from."""
    name: str = ""
    default: str = ""
    """As people write it, where that is another value."""


def option(default: Any, help: str, kind: str | tuple[str, ...] = "", name: str = "", written: str = "") -> Any:
    """A field that is an option of `aenv serve`; a `default` that can be called makes it."""
    told = {"option": GatewayOption(help, kind, name, written)}
    return (
        field(default_factory=default, metadata=told)
        if callable(default)
        else field(default=default, metadata=told)
    )


@dataclass(frozen=True)
class GatewaySettings:
    """Every knob of the gateway. Read once by `aenv serve`; passed down, never looked up."""

    host: str = option("127.0.0.1", "Address to listen on.")
    port: int | None = option(8080, "Control port; 0 picks a free port.", "port")
    data_port: int | None = option(8081, "Data port; 0 picks a free port.", "port")
    """None for either listens on no port."""
    public_url: str = option(
        "",
        "Address for calls that the gateway gives to clients, where a proxy stands before it.  "
        "[default: the data port at the address that the client used]",
        "origin",
    )
    workers: int = 1
    """Processes that serve the data port; with 1, the gateway's own process does."""
    metrics_address: tuple[str, int] | None = option(
        None, "Serve /metrics without a token at this address as well.  [default: none]", "address"
    )
    socket: Path | None = None
    """A unix socket for control and data, which only this user can open."""
    projects: tuple[Path, ...] = ()
    home: Path = Path("~/.aenv")
    engine: str = option(
        "native",
        "Engine that makes instances. The process engine does not isolate them.",
        ("native", "process", "docker", "kubernetes", "http"),
    )
    engine_url: str = option("", "Address of the server that the http engine uses.")
    docker_host: str = "unix:///var/run/docker.sock"
    """The socket of the engine that makes containers, as in DOCKER_HOST."""
    docker_network: str = option("bridge", "Docker network for instances with full network access.")
    kubeconfig: Path | None = None
    """Where the cluster is; None for that of the Pod that the gateway runs in, else the user's own."""
    kube_namespace: str = option("", "Kubernetes namespace for instances.  [default: that of the kubeconfig]")
    kube_name: str = option(
        "aenv", "Name of this installation in the cluster. Gateways that share a store have the same name."
    )
    kube_templates: str = option("", "ConfigMap that contains templates of Pods.  [default: none]")
    kube_storage_class: str = option(
        "", "Storage class for the files of services.  [default: that of the cluster]"
    )
    kube_gateways: str = option(
        "",
        "Labels of Pods, or networks, that may connect to instances, as in 10.0.0.0/8.  [default: the gateways]",
    )
    base_image: str = option(
        "", "Container image for environments that name none.  [default: aenv-base:VERSION-py{python}]"
    )
    """`{python}` stands for the version of the environment's Python."""
    max_body_bytes: int = 64 << 20
    insecure: bool = option(False, "Allow other machines to connect although there are no accounts.")
    store: str = ""
    """Where records are kept: empty for SQLite in `home`, or redis://…"""
    blobs: str = ""
    """Where bundles are kept: empty for a folder in `home`, or s3://bucket/prefix"""
    self_check: bool = option(
        True, "Give rewards without waiting for the self-check of their tasks.", name="--no-self-check"
    )
    require_data_token: bool = option(False, "Require a token for calls to an instance; its id is not enough.")
    rate_limit: float = option(
        1000.0, "Maximum number of requests per second for each token; 0 means no limit.", "rate"
    )
    route_limits: Mapping[str, float] = option(
        dict,
        "Requests per second for one route, as in 'POST /env-instance=10'; repeatable.",
        "ROUTE=N",
        "--route-limit",
    )
    max_instances: int | None = option(None, "Maximum number of running instances.  [default: no limit]", "count")
    max_instances_by_label: Mapping[str, int] = option(
        dict,
        "Maximum number of instances for each value of a label, as in experiment=100; repeatable.",
        "LABEL=N",
        "--max-per-label",
    )
    capacity_cpus: float | None = option(
        None, "CPUs that all instances may request together.  [default: no limit]", "cpus", "--capacity-cpu"
    )
    capacity_memory_bytes: int | None = option(
        None,
        "Memory that all instances may request together, as in 32Gi.  [default: no limit]",
        "size",
        "--capacity-memory",
    )
    allow_network: Literal["none", "egress", "full"] = option(
        "full", "Largest network access that an instance may have.", ("none", "egress", "full")
    )
    model_urls: frozenset[str] = option(
        frozenset,
        "Model that instances may use without network access, as in http://10.0.0.5:8000/v1; repeatable. "
        "'loopback' allows every model on this host's loopback address.",
        "urls",
        "--model-url",
    )
    model_key: str = field(default="", repr=False)
    """What is sent to those models where a request brings no key."""
    data_roots: tuple[Path, ...] = option(
        tuple, "Folder whose subfolders instances may read as datasource; repeatable.", "folders", "--data-root"
    )
    data_folders: Mapping[str, Path] = option(
        dict,
        "Folder for a data variable of pushed environments, as in KIT_DATA_DIR=/srv/kit; repeatable.",
        "VARIABLE=PATH",
        "--data-folder",
    )
    pull: Literal["", "skopeo", "podman"] = option(
        "", "Program that fetches missing images.  [default: images are not fetched]", ("skopeo", "podman")
    )
    freeze_after: float = option(
        60.0,
        "Freeze an instance after this long without a call; 0 turns freezing off.",
        "duration",
        written="60s",
    )
    reclaim_below: int | None = option(
        None,
        "Available memory below which frozen instances are ended, if they allow it.  [default: 5 % of the host]",
        "size",
    )
    warm_memory: int | None = option(
        None, "Memory for spare instances; 0 makes none.  [default: 10 % of the host]", "size"
    )
    allow_origins: frozenset[str] = option(
        frozenset,
        "Allow requests from web pages of this origin, as in http://localhost:6274; repeatable.",
        "origins",
        "--allow-origin",
    )
    keep_history: bool = option(True, "Do not record the last calls of instances.", name="--no-history")
    keep_instances: bool = option(False, "Leave instances running when the gateway stops, for the next gateway.")
    start_timeout: float = option(
        60.0, "Maximum time for an instance to become ready, once its root is made.", "duration", written="60s"
    )
    idle_exit: float | None = option(
        None, "Stop after this long without an instance.  [default: never]", "duration"
    )


def client_settings(environ: Mapping[str, str] | None = None) -> ClientSettings:
    env = _checked(environ)
    return ClientSettings(
        system_url=env.get("AENV_SYSTEM_URL") or None,
        direct_address=env.get(DIRECT_MODE_VARIABLE) or None,
        api_key=env.get("AENV_API_KEY") or None,
        hub_url=env.get(HUB_VARIABLE) or None,
        home=home(env),
        allow_unisolated=env.get("AENV_ALLOW_UNISOLATED") == "1",
        instance_id=env.get("AENV_INSTANCE_ID") or None,
    )


def runtime_settings(environ: Mapping[str, str] | None = None) -> RuntimeSettings:
    env = _checked(environ)
    timeout = env.get("AENV_CALL_TIMEOUT")
    return RuntimeSettings(
        instance_id=env.get("AENV_INSTANCE_ID") or "local",
        environment=env.get("AENV_ENVIRONMENT") or None,
        workspace=_folder(env["AENV_WORKSPACE"]) if env.get("AENV_WORKSPACE") else None,
        call_timeout=float(timeout) if timeout else None,
        sidecar=env.get("AENV_SIDECAR") or None,
        start=env.get("AENV_START") or None,
    )


_folder = functools.lru_cache(maxsize=4)(Path)  # which costs an instance a tenth of what it is told


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
