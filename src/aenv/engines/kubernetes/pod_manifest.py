"""The manifest of an instance's Pod: a template, filled in with a container plan.

Pure. What the template says stays, where the instance does not say otherwise; variables are merged by name.
"""

from __future__ import annotations

import copy
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from ...base.errors import InvalidRequest
from ...base.pod_claim import MODULE
from ...base.quantities import size_bytes
from ..base import InstanceSpec
from ..containers.container_labels import safe_value
from ..containers.container_plan import (
    FILES,
    PORT,
    PROJECT,
    REQUIREMENTS,
    RUN,
    TEMPORARY,
    WORKSPACE,
    ContainerPlan,
)
from .pod_templates import MAIN, PodTemplate

OWNER = "aenv.owner"
"""A label: which gateways look after the Pod."""
STATE = "aenv.state"
"""A label: one of those below."""
STARTING, RUNNING, SPARE = "starting", "running", "spare"
INSTANCE = "aenv.instance"
"""A label: the id of the instance; a spare has none."""
KIND = "aenv.kind"
"""A label: which instances a spare can become."""
NETWORK = "aenv.network"
"""A label that the network policies of the namespace select by: `none` or `full`."""
TOOLS = "aenv/tools"
"""An annotation: what the instance offers, packed (`pod_notes.py`)."""
NOT_ENFORCED = "aenv/not-enforced"
"""An annotation: which limits the cluster does not enforce, as a list in JSON."""
TOKEN = "aenv/token"
"""An annotation: what a claim must bring."""
DATA = "/data"
FOLDERS = "/folders"
_GPU = "nvidia.com/gpu"
DEADLINE_MARGIN = 300
"""Seconds after its longest life for which a gateway may still end an instance itself."""


@dataclass(frozen=True)
class PodNames:
    """What names a Pod, and whose it is."""

    name: str
    owner: str
    token: str
    """What a claim must bring; empty for a Pod that starts by itself."""
    max_ttl: float | None = None
    """The most that an instance may live, with all its renewals."""


def manifest(
    template: PodTemplate,
    plan: ContainerPlan,
    spec: InstanceSpec,
    names: PodNames,
    storage: Mapping[str, Any] | None = None,
) -> dict[str, Any]:
    """The Pod to create. `storage` is the volume, without its name, that is mounted at the storage place."""
    pod = copy.deepcopy(template)
    _fill_metadata(pod, plan, spec, names)
    inside = pod["spec"]
    main = container_of(inside, MAIN)
    _fill_main(main, plan, names)
    _add_folders(inside, main, plan, spec, is_claimed=bool(names.token))
    if storage:
        mount(inside, main, "storage", dict(storage), spec.storage_place)
    if names.max_ttl is not None:
        inside["activeDeadlineSeconds"] = int(names.max_ttl) + DEADLINE_MARGIN
    return pod


def merged_variables(old: list[dict[str, Any]] | None, new: Mapping[str, str]) -> list[dict[str, Any]]:
    """Each name once: those of the template that the instance does not set, then the instance's."""
    kept = [each for each in old or () if each.get("name") not in new]
    return [*kept, *({"name": name, "value": value} for name, value in new.items())]


def resources(plan: ContainerPlan, spec: InstanceSpec, own: Mapping[str, Any] | None) -> dict[str, dict[str, str]]:
    """Limits and requests. What was asked for is both; the rest is what the template says, then our limits."""
    asked = spec.limits
    wanted: dict[str, str] = {}
    if asked.cpus is not None:
        wanted["cpu"] = f"{round(asked.cpus * 1000)}m"
    if asked.memory_bytes is not None:
        wanted["memory"] = str(asked.memory_bytes)
    if asked.storage_bytes is not None:
        wanted["ephemeral-storage"] = str(asked.storage_bytes)
    if asked.gpus:
        wanted[_GPU] = str(asked.gpus)
    usual = {
        "memory": str(plan.limits.memory_bytes),
        "ephemeral-storage": str(plan.limits.storage_bytes),
    }
    template = {key: dict((own or {}).get(key) or {}) for key in ("limits", "requests")}
    usual = {name: _no_less(limit, template["requests"].get(name)) for name, limit in usual.items()}
    limits = {**usual, **template["limits"], **wanted}
    return {"limits": limits, "requests": {**template["requests"], **wanted}}


def _no_less(limit: str, request: object) -> str:
    """The limit, or what a template requests without a limit, where that is more."""
    if request is None:
        return limit
    try:
        is_less = size_bytes(str(request)) <= int(limit)
    except InvalidRequest:  # a spelling that only Kubernetes knows
        is_less = False
    return limit if is_less else str(request)


def _fill_metadata(pod: dict[str, Any], plan: ContainerPlan, spec: InstanceSpec, names: PodNames) -> None:
    metadata = pod.setdefault("metadata", {})
    for field in ("namespace", "generateName", "uid", "resourceVersion"):
        metadata.pop(field, None)
    metadata["name"] = names.name
    metadata["labels"] = {
        **(metadata.get("labels") or {}),
        **pod_labels(plan.labels),
        OWNER: names.owner,
        STATE: STARTING,
        NETWORK: spec.network.kind,
    }
    token = {TOKEN: names.token} if names.token else {}
    metadata["annotations"] = {**(metadata.get("annotations") or {}), **_EVICTION, **token}


_EVICTION = {
    # An instance holds state that cannot be moved: neither autoscaler ends it to save a node.
    "cluster-autoscaler.kubernetes.io/safe-to-evict": "false",
    "karpenter.sh/do-not-disrupt": "true",
}


def _fill_main(main: dict[str, Any], plan: ContainerPlan, names: PodNames) -> None:
    main["image"] = plan.image
    main.setdefault("imagePullPolicy", "IfNotPresent")
    if names.token:
        main["command"] = ["python3", "-m", MODULE, f"--token={names.token}", "--port", str(PORT)]
        main.pop("args", None)
        main.setdefault("securityContext", {}).setdefault("readOnlyRootFilesystem", True)
        main["env"] = merged_variables(main.get("env"), {"HOME": WORKSPACE, "LANG": "C.UTF-8"})
    else:
        if plan.command:
            main["command"] = list(plan.command)
        main["env"] = merged_variables(main.get("env"), plan.variables)
    ports = [each for each in main.get("ports") or () if each.get("containerPort") != PORT]
    main["ports"] = [*ports, {"name": "aenv", "containerPort": PORT}]


def _add_folders(
    inside: dict[str, Any], main: dict[str, Any], plan: ContainerPlan, spec: InstanceSpec, *, is_claimed: bool
) -> None:
    main["resources"] = resources(plan, spec, main.get("resources"))
    limit = {"sizeLimit": main["resources"]["limits"]["ephemeral-storage"]}
    places = {"temporary": TEMPORARY, "run": RUN}
    if is_claimed:
        places |= {"environment": PROJECT}
        if spec.requirements:
            places["requirements"] = REQUIREMENTS
        if spec.data:
            places["data"] = DATA
        if spec.folders:
            places["folders"] = FOLDERS
    for name, place in places.items():
        mount(inside, main, name, {"emptyDir": limit}, place)
    if mount(inside, main, "files", {"emptyDir": limit}, WORKSPACE, sub_path="workspace"):
        # The folder above it, too: there a file is written before it is moved to its place.
        mount(inside, main, "files", {"emptyDir": limit}, FILES)


def mount(
    inside: dict[str, Any],
    container: dict[str, Any],
    name: str,
    volume: dict[str, Any],
    place: str,
    *,
    sub_path: str = "",
    is_writable: bool = True,
) -> bool:
    """Unless the template mounts something there already: then False."""
    mounts = container.setdefault("volumeMounts", [])
    if any(mount.get("mountPath") == place for mount in mounts):
        return False
    volumes = inside.setdefault("volumes", [])
    if not any(each.get("name") == f"aenv-{name}" for each in volumes):
        volumes.append({"name": f"aenv-{name}", **volume})
    entry: dict[str, Any] = {"name": f"aenv-{name}", "mountPath": place}
    if sub_path:
        entry["subPath"] = sub_path
    if not is_writable:
        entry["readOnly"] = True
    mounts.append(entry)
    return True


def container_of(inside: dict[str, Any], name: str) -> dict[str, Any]:
    for container in inside["containers"]:
        if container.get("name") == name:
            return dict_of(container)
    inside["containers"].append({"name": name})
    return dict_of(inside["containers"][-1])


def dict_of(container: Any) -> dict[str, Any]:
    assert isinstance(container, dict)
    return container


def pod_labels(given: Mapping[str, str]) -> dict[str, str]:
    """The labels as Kubernetes takes them."""
    return {_key(name): safe_value(value) for name, value in given.items()}


def _key(name: str) -> str:
    """A legal key of a label: what its creator chose may have any characters."""
    prefix, mark, rest = name.partition("/") if "/" in name else ("", "", name)
    return f"{prefix}{mark}{safe_value(rest) or 'x'}"
