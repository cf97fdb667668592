"""What the Kubernetes engine makes is legal in a cluster of today, and not only in the old one of the tests."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("lightkube", reason="the extra 'kubernetes' is not installed")

import kubernetes_validate

from aenv.base.config import Network
from aenv.engines.base import InstanceSpec, LazySidecar, ResourceLimits, WantedService
from aenv.engines.containers.container_plan import plan
from aenv.engines.kubernetes import pod_network, service_manifests
from aenv.engines.kubernetes.kubernetes_options import claim_volume
from aenv.engines.kubernetes.pod_manifest import PodNames, manifest
from aenv.engines.kubernetes.pod_sidecar import add_sidecar
from aenv.engines.kubernetes.pod_templates import PodTemplates

NEWEST = "1.34"
PLAIN = InstanceSpec("x-1", "x@1.0", Path("/nowhere"))
SPECS = {
    "waits for a claim": PLAIN,
    "with everything that it may ask for": replace(
        PLAIN,
        requirements=Path("/packages"),
        data=Path("/data"),
        folders={"MORE_DIR": Path("/more")},
        limits=ResourceLimits(cpus=0.5, memory_bytes=1 << 30, storage_bytes=2 << 30, gpus=1),
        labels={"experiment": "a/b", "odd label!": "ü"},
        owner="ada@example.org",
        network=Network("full"),
    ),
    "with an image and storage": replace(PLAIN, image="own:1", storage=Path("/storage/=/notes")),
    "with a sidecar of an image": replace(PLAIN, image="own:1", sidecar="other:1"),
    "with a sidecar like the base image": replace(PLAIN, sidecar=LazySidecar()),
}


def pod(spec: InstanceSpec) -> dict[str, Any]:
    names = PodNames("x-1", "here", "" if spec.image else "token", 3600)
    template = PodTemplates().get(spec.pod_template, is_dual=bool(spec.sidecar))
    made = manifest(template, plan(spec), spec, names, dict(claim_volume(spec)) if spec.storage else None)
    if spec.sidecar:
        add_sidecar(made, plan(spec), spec, "base:py{python}")
    return made


@pytest.mark.parametrize("name", SPECS)
def test_a_pod_is_legal(name: str) -> None:
    kubernetes_validate.validate(pod(SPECS[name]), NEWEST, strict=True)


@pytest.mark.parametrize("name", SPECS)
def test_the_objects_of_a_service_are_legal(name: str) -> None:
    spec = replace(SPECS[name], drain=30.0)
    wanted = WantedService("notes", 1, 1, spec, port=9000, storage_bytes=1 << 30)
    made = [service_manifests.deployment(wanted, "here", pod(spec)), service_manifests.service(wanted, "here")]
    if spec.storage:
        made.append(service_manifests.storage_claim(wanted, "here", "fast"))
    for each in made:
        kubernetes_validate.validate(each, NEWEST, strict=True)


@pytest.mark.parametrize("kind", pod_network.KINDS)
@pytest.mark.parametrize("gateways", ["app=aenv,tier=control", "10.0.0.0/8,192.0.2.7"])
def test_a_network_policy_is_legal(kind: Any, gateways: str) -> None:
    peers = pod_network.peers_of(gateways, "https://192.0.2.1", "instances")
    kubernetes_validate.validate(pod_network.policy(kind, "here", peers), NEWEST, strict=True)
