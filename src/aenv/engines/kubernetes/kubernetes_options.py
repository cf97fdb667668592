"""What an operator chooses about the kubernetes engine."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from ..base import InstanceSpec
from ..containers.container_plan import BASE_IMAGE
from .cluster_access import ClusterAccess
from .service_manifests import claim_name

_LONGEST_LIFE = 24 * 3600.0

StorageVolume = Callable[[InstanceSpec], Mapping[str, Any]]


def claim_volume(spec: InstanceSpec) -> Mapping[str, Any]:
    """The storage of an instance as a volume: a claim of the storage's name."""
    assert spec.storage
    return {"persistentVolumeClaim": {"claimName": claim_name(spec.storage)}}


@dataclass(frozen=True)
class KubernetesOptions:
    """What an operator chooses."""

    access: ClusterAccess = field(default_factory=ClusterAccess)
    owner: str = "aenv"
    """Names the installation: gateways of one share all instances, and see no Pods of another."""
    base_image: str = BASE_IMAGE
    templates: str = ""
    """The ConfigMap with the operator's own templates."""
    gateways: str = ""
    """Who may connect to instances, as for `pod_network.peers_of`."""
    longest_life: float = _LONGEST_LIFE
    """Seconds that an instance may live with all its renewals: the cluster ends it then, should no gateway do so.
    At least twice the TTL that it began with."""
    storage_volume: StorageVolume = claim_volume
    storage_class: str = ""
    """Of the claims for storage of services; empty for the cluster's own choice."""
