"""The objects of a service in the cluster: Deployment, Service and claim for storage. Pure.

The Deployment's Pods are like those of instances, but for what they are called, who starts them again, and how the
cluster knows whether they serve.
"""

from __future__ import annotations

import hashlib
import re
from pathlib import Path
from typing import Any

from ...base.errors import InvalidRequest
from ..base import WantedService
from ..containers.container_plan import PORT
from .pod_manifest import INSTANCE, OWNER, STATE, container_of
from .pod_templates import MAIN

SERVICE = "aenv.service"
"""A label: the service that a Pod, or another object, is of."""
GENERATION = "aenv.generation"
"""A label: which setup of the service a Pod runs."""
SERVED = "service"
"""The state (`STATE`) of a Pod that a Deployment has made."""
_DEFAULT_SIZE = 10 << 30
_MARGIN = 5  # seconds for a replica to end, after its requests have
_CLAIM = re.compile(r"[a-z0-9]([a-z0-9.-]{0,235}[a-z0-9])?\Z")
_KEPT_OLD = 2  # ReplicaSets, for who looks at what ran before


def claim_name(storage: Path) -> str:
    """The name of the claim for a storage: its own, and for an owner's something that no other owner's has.

    InvalidRequest when the cluster would not take it.
    """
    name, owner = storage.name, storage.parent.name
    if not _CLAIM.match(name):
        raise InvalidRequest(
            f"field 'pvc_name': the cluster takes no claim {name!r}; use lower-case letters, digits, '-' and '.'"
        )
    return name if owner == "=" else f"{name}-{hashlib.sha256(owner.encode()).hexdigest()[:12]}"


def storage_claim(wanted: WantedService, owner: str, storage_class: str) -> dict[str, Any]:
    """The PersistentVolumeClaim of the service's storage."""
    assert wanted.spec.storage
    size = wanted.storage_bytes or _DEFAULT_SIZE
    return {
        "apiVersion": "v1",
        "kind": "PersistentVolumeClaim",
        "metadata": {"name": claim_name(wanted.spec.storage), "labels": labels(wanted.id, owner)},
        "spec": {
            "accessModes": ["ReadWriteOnce"],
            "resources": {"requests": {"storage": str(size)}},
            **({"storageClassName": storage_class} if storage_class else {}),
        },
    }


def service(wanted: WantedService, owner: str) -> dict[str, Any]:
    """The Service: where other programs in the cluster reach the replicas, as far as policies let them."""
    ports = [{"name": "aenv", "port": PORT, "targetPort": PORT, "protocol": "TCP"}]
    if wanted.port not in (None, PORT):
        ports.append({"name": "own", "port": wanted.port, "targetPort": wanted.port, "protocol": "TCP"})
    return {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": {"name": wanted.id, "labels": labels(wanted.id, owner)},
        "spec": {"selector": {OWNER: owner, SERVICE: wanted.id}, "ports": ports},
    }


def deployment(wanted: WantedService, owner: str, pod: dict[str, Any]) -> dict[str, Any]:
    """The Deployment of Pods like `pod`, the manifest of an instance. With storage the old Pod goes first."""
    metadata, inside = pod["metadata"], pod["spec"]
    for label in (INSTANCE, "app.kubernetes.io/instance"):
        metadata["labels"].pop(label, None)
    metadata["labels"] |= {STATE: SERVED, SERVICE: wanted.id, GENERATION: str(wanted.generation)}
    # Replicas may move to another node: they are made again there.
    annotations = {name: text for name, text in metadata["annotations"].items() if name.startswith("aenv/")}
    inside["restartPolicy"] = "Always"
    inside["terminationGracePeriodSeconds"] = round(wanted.spec.drain) + _MARGIN
    inside.pop("activeDeadlineSeconds", None)
    _add_probes(container_of(inside, MAIN), wanted)
    rolling = {"type": "RollingUpdate", "rollingUpdate": {"maxSurge": 1, "maxUnavailable": 0}}
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {
            "name": wanted.id,
            "labels": {**labels(wanted.id, owner), GENERATION: str(wanted.generation)},
        },
        "spec": {
            "replicas": wanted.replicas,
            "revisionHistoryLimit": _KEPT_OLD,
            "selector": {"matchLabels": {OWNER: owner, SERVICE: wanted.id}},
            "strategy": {"type": "Recreate"} if wanted.spec.storage else rolling,
            "template": {"metadata": {"labels": metadata["labels"], "annotations": annotations}, "spec": inside},
        },
    }


def labels(id: str, owner: str) -> dict[str, str]:
    return {
        OWNER: owner,
        SERVICE: id,
        "app.kubernetes.io/instance": id,
        "app.kubernetes.io/part-of": "aenv",
        "app.kubernetes.io/managed-by": "aenv",
    }


def _add_probes(main: dict[str, Any], wanted: WantedService) -> None:
    """A replica that was never well has the time of a start; one that was is not served while it is not."""
    # Of the runtime alone it is known that it has a status for what is not well.
    path = "/health" if wanted.spec.image else "/healthz"
    asks = {"httpGet": {"path": path, "port": PORT}, "timeoutSeconds": 5}
    patience = max(3, round(wanted.spec.start_timeout))
    main.setdefault("startupProbe", {**asks, "periodSeconds": 1, "failureThreshold": patience})
    main.setdefault("readinessProbe", {**asks, "periodSeconds": 2, "failureThreshold": 1})
    main.setdefault("livenessProbe", {**asks, "periodSeconds": 5, "failureThreshold": 3})
