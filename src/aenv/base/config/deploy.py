"""`deployConfig`: what instances and services of an environment may use and reach, and how long they live."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import Any

from ..errors import InvalidRequest
from . import values as kinds
from .sections import (
    CONTAINED,
    IMAGES,
    ISOLATED,
    NATIVE,
    NATIVE_PODS,
    PODS,
    ConfigSection,
    ConfigText,
    ValueKind,
    entry,
    read_fields,
)
from .values import Amount, Network, Variables


@dataclass(frozen=True)
class ServiceDefaults(ConfigSection):
    """What `aenv service create` asks for where its options do not say it."""

    unused = ("pvcName",)
    once_unchecked = ("*",)

    replicas: int | None = entry("replicas", kinds.NUMBER, 1, otherwise="1")
    """How many replicas run."""
    port: int | None = entry("port", kinds.NUMBER, 8081, otherwise="the runtime's own, as 8081 is")
    """The port inside a replica that requests go to, where a server of the environment listens."""
    enable_storage: bool = entry("enableStorage", kinds.FLAG, True, default=False)
    """Whether files of the service are kept; needs one replica."""
    storage_name: str = entry("storageName", kinds.TEXT, "notes", default="", otherwise="the environment's name")
    """The name of the storage."""
    storage_size: str = entry("storageSize", kinds.STORAGE_SIZE, "10Gi", NATIVE_PODS, "10Gi")
    """How much the storage may hold."""
    mount_path: str = entry("mountPath", kinds.TEXT, "/data", ISOLATED, "/home/admin/data")
    """Where replicas see the storage."""


@dataclass(frozen=True)
class SidecarSource(ConfigSection):
    """What the root file system of a sidecar is made of; `"host"` in its place is the host's own system."""

    required = ("dockerfile",)
    refuses_unknown = True

    dockerfiles: tuple[str, ...] = entry("dockerfile", kinds.PATHS, ["{TASK}/Dockerfile"], NATIVE, ())
    """Paths below the data folder, of which the first that exists is built; `{TASK}` stands for the instance's
    variable of that name. Where none exists, it is the host's own system."""
    requirements: tuple[str, ...] = entry("requirements", kinds.PACKAGES, ["pytest"], NATIVE, ())
    """Python packages for code that the environment runs in a sidecar that was built."""
    installers: tuple[str, ...] = entry("installers", kinds.PATHS, ["{TASK}/run-tests.sh"], NATIVE, ())
    """Shell scripts below the data folder. What the first that exists would install is required; it is not run."""


def _host_system(value: str) -> SidecarSource:
    if value != "host":
        raise InvalidRequest(f'no sidecar {value!r}; use "host", or {{"dockerfile": ["{{TASK}}/Dockerfile"]}}')
    return SidecarSource()


_SERVICE = ValueKind("object", (dict,), section=ServiceDefaults)
_SIDECAR = ValueKind('`"host"` or object', (str, dict), _host_system, SidecarSource)


@dataclass(frozen=True)
class Deploy(ConfigSection):
    """What instances of the environment may use and reach. All of it may be left out."""

    unused = ("resource", "arcaTemplateId")
    old_names = MappingProxyType({"secondPart": "sidecar"})  # bundles that were pushed cannot change

    cpu: Amount | None = entry("cpu", kinds.CPU, "500m", ISOLATED, otherwise="no limit")
    """CPU time of an instance, in cores."""
    memory: Amount | None = entry("memory", kinds.SIZE, "2Gi", ISOLATED, otherwise="4Gi")
    """Memory of an instance. One that uses more ends, and the call says `it used more memory than its limit`."""
    ephemeral_storage: Amount | None = entry("ephemeralStorage", kinds.SIZE, "5Gi", ISOLATED, otherwise="1Gi")
    """Disk space for what an instance writes. The docker engine limits `/tmp` alone."""
    pids: Amount | None = entry("pids", kinds.COUNT, 256, CONTAINED, otherwise="1024")
    """Processes of an instance."""
    open_files: Amount | None = entry("openFiles", kinds.COUNT, 1024, CONTAINED, otherwise="4096")
    """Open files of each process."""
    gpu: Amount | None = entry("gpu", kinds.COUNT, 1, IMAGES, otherwise="none")
    """GPUs of an instance. An engine that gives none refuses the create."""
    allow_more_resources: bool = entry("allowMoreResources", kinds.FLAG, True, default=False)
    """Whether a create may ask for more than these limits with its `resources`; else only for less."""
    network: Network = entry("network", kinds.NETWORK, "full", ISOLATED, Network(), otherwise='`"none"`')
    """What an instance may reach: `"none"`, `"full"`, or `{"egress": [...]}` with hosts, each with a port or with
    all, and domains (`*.data.example`) with all below them. The kubernetes engine refuses `egress`."""
    isolation: str = entry("isolation", kinds.ISOLATION, "gvisor", CONTAINED, "", otherwise="the engine's own")
    """For hostile code: [gVisor](gvisor.md) between instance and host. Other engines refuse it."""
    ttl: float | None = entry("ttl", kinds.DURATION, "2h", otherwise="30m")
    """How long an instance lives."""
    idle_timeout: float | None = entry("idleTimeout", kinds.DURATION, "10m", otherwise="no limit")
    """How long an instance lives without a call; 0 means no limit."""
    call_timeout: float | None = entry("callTimeout", kinds.DURATION, "5m", otherwise="1h")
    """How long a call may take."""
    freeze_after: float | None = entry("freezeAfter", kinds.DURATION, 0, CONTAINED, otherwise="the gateway's, 60s")
    """After how long without a call an instance is [frozen](gateway.md#frozen-instances); 0 is never. Set 0 where
    work goes on between calls."""
    reclaim: bool = entry("reclaim", kinds.FLAG, True, CONTAINED, False)
    """Whether a frozen instance may be ended when memory is short."""
    warm_pool: int = entry("warmPool", kinds.NUMBER, 4, NATIVE_PODS, 0)
    """How many [spare instances](gateway.md#warm-instances) are kept ready at least."""
    preload: tuple[str, ...] = entry("preload", kinds.MODULES, ["numpy"], NATIVE, ())
    """Modules that are the same for all instances: loaded once, before there is an instance."""
    environment_variables: Variables = entry(
        "environmentVariables", kinds.VARIABLES, {"A": "1"}, default=Variables()
    )
    """Variables of an instance; a create adds to them. A [secret](gateway.md#secrets) of the user who runs the
    environment is named, never written down: `{"API_KEY": {"secret": "OPENAI_API_KEY"}}`."""
    image_prefix: str = entry("imagePrefix", kinds.TEXT, "registry.example/t", ISOLATED, "docker.io/library/aenv")
    """What a `datasource` that is only a tag is joined to, with `:` unless it ends in `:` or `/`."""
    sidecar: SidecarSource | None = entry("sidecar", _SIDECAR, "host", ISOLATED, otherwise="none")
    """The [sidecar](authoring.md#made-at-its-first-use) of every instance. The docker and kubernetes engines take
    `"host"` alone. Its old name is `secondPart`."""
    service: ServiceDefaults = entry("service", _SERVICE, {"replicas": 2}, default=ServiceDefaults())
    """Defaults of [services](services.md). Old projects have these fields in `deployConfig` itself."""
    os: str = entry("os", kinds.TEXT, "linux", default="linux")
    """The operating system; there is no other."""
    pod_template: str = entry("podTemplate", kinds.TEXT, "dualContainer", PODS, default="singleContainer")
    """The [template](kubernetes.md#templates) of its Pod: `singleContainer`, `dualContainer`, or one that the
    cluster's operator has made. With other engines a create or `sidecar` asks for a sidecar."""
    cpu_request: Amount | None = entry("cpuRequest", kinds.CPU, "1C", ())
    """Legacy: what a service asks for instead of `cpu`."""
    cpu_limit: Amount | None = entry("cpuLimit", kinds.CPU, "1C", ISOLATED)
    """Legacy: the limit of an instance without `cpu`."""
    memory_request: Amount | None = entry("memoryRequest", kinds.SIZE, "2G", ())
    """Legacy: what a service asks for instead of `memory`."""
    memory_limit: Amount | None = entry("memoryLimit", kinds.SIZE, "2G", ISOLATED)
    """Legacy: the limit of an instance without `memory`."""
    ephemeral_storage_request: Amount | None = entry("ephemeralStorageRequest", kinds.SIZE, "5Gi", ())
    """Legacy: what a service asks for instead of `ephemeralStorage`."""
    ephemeral_storage_limit: Amount | None = entry("ephemeralStorageLimit", kinds.SIZE, "5Gi", ISOLATED)
    """Legacy: the limit of an instance without `ephemeralStorage`."""


def parse_deploy(raw: Mapping[str, Any], text: ConfigText | None = None) -> Deploy:
    """A deployConfig that stands in config.json, or in the record of a hub. InvalidRequest names a wrong field."""
    text = text or ConfigText()
    old = {key: raw[key] for key in (*ServiceDefaults.entries(), *ServiceDefaults.unused) if key in raw}
    rest = {key: value for key, value in raw.items() if key not in old}
    found = read_fields(Deploy, rest, text, "deployConfig.")
    service = found.get("service", ServiceDefaults())
    flat = read_fields(ServiceDefaults, old, text, "deployConfig.")
    said = read_fields(ServiceDefaults, service.raw, text, "deployConfig.service.")
    return Deploy(raw=raw, **{**found, "service": replace(service, **{**flat, **said})})
