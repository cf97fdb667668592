"""The Kubernetes engine on a real cluster."""

from __future__ import annotations

import asyncio
import json
import secrets
from collections.abc import AsyncIterator
from typing import Any

import pytest

from aenv.engines.base import InstanceSpec
from aenv.engines.kubernetes.cluster_access import ClusterAccess
from aenv.engines.kubernetes.kubernetes_engine import KubernetesEngine
from aenv.engines.kubernetes.kubernetes_options import KubernetesOptions
from conformance.capabilities import CapabilityConformance
from conformance.engine import EngineConformance, Leftovers, MakeEngine

from .conftest import BASE_IMAGE, LocalCluster

MAKES: Any = None


def host_volume(spec: InstanceSpec) -> dict[str, Any]:
    """The test's own folder: the cluster's only node is this machine."""
    assert spec.storage
    for path in (spec.storage, *spec.storage.iterdir()):
        path.chmod(0o777)  # an instance is not root
    return {"hostPath": {"path": str(spec.storage)}}


def options(cluster: LocalCluster, owner: str, **changes: Any) -> KubernetesOptions:
    access = ClusterAccess(cluster.kubeconfig, namespace="default")
    given: dict[str, Any] = {"access": access, "owner": owner, "base_image": BASE_IMAGE}
    return KubernetesOptions(**{**given, "storage_volume": host_volume, **changes})


def pods(cluster: LocalCluster, owner: str) -> list[dict[str, Any]]:
    found = json.loads(cluster.kubectl("get", "pods", "-l", f"aenv.owner={owner}", "-o", "json"))
    return list(found["items"])


class TestKubernetesEngine(EngineConformance, CapabilityConformance):
    @pytest.fixture
    def owner(self) -> str:
        return f"test-{secrets.token_hex(6)}"

    @pytest.fixture
    async def make_engine(self, cluster: LocalCluster, owner: str) -> AsyncIterator[MakeEngine]:
        made: list[KubernetesEngine] = []

        def make() -> KubernetesEngine:
            made.append(KubernetesEngine(options(cluster, owner)))
            return made[-1]

        yield make
        await asyncio.gather(*(engine.__aexit__(None, None, None) for engine in made))

    @pytest.fixture
    def leftovers(self, cluster: LocalCluster, owner: str) -> Leftovers:
        return lambda: [pod["metadata"]["name"] for pod in pods(cluster, owner)]

    @pytest.fixture
    async def another(self, make_engine: MakeEngine) -> KubernetesEngine:
        engine = make_engine()
        await engine.running()  # it watches from now on, so that what it opens for that is open already
        assert isinstance(engine, KubernetesEngine)
        return engine
