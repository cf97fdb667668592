"""A gateway that cannot make Pods says why in one line, and leaves nothing in the cluster."""

from __future__ import annotations

import asyncio
import base64
import json
import secrets
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest

from aenv.base.errors import StartFailed, TooManyRequests
from aenv.engines.kubernetes.cluster_access import ClusterAccess
from aenv.engines.kubernetes.kubernetes_engine import KubernetesEngine
from conformance.engine import Projects
from tests.command_line import aenv, environ

from .conftest import BASE_IMAGE, LocalCluster
from .test_kubernetes_engine import options, pods


@pytest.fixture
def owner() -> str:
    return f"test-{secrets.token_hex(6)}"


def refusal(home: Path, owner: str, kubeconfig: Path, *arguments: str) -> str:
    """What `aenv serve` says before it ends."""
    done = aenv(
        *("serve", "--port", "0", "--data-port", "0", "--home", home, "--engine", "kubernetes"),
        *("--kubeconfig", kubeconfig, "--kube-name", owner, "--base-image", BASE_IMAGE, *arguments),
        env=environ(HOME=str(home)),
    )
    assert done.returncode == 1, done.stderr
    lines = [line for line in done.stderr.splitlines() if not line.startswith("try: ")]
    assert len(lines) == 1, done.stderr
    return lines[0]


def changed(cluster: LocalCluster, path: Path, **user: str) -> Path:
    """The kubeconfig with another user."""
    config = json.loads(cluster.kubeconfig.read_text())
    config["users"][0]["user"] = user
    path.write_text(json.dumps(config))
    return path


def left(cluster: LocalCluster, owner: str) -> list[str]:
    found = json.loads(
        cluster.kubectl("get", "pods,leases", "--all-namespaces", "-l", f"aenv.owner={owner}", "-o", "json")
    )
    return [each["metadata"]["name"] for each in found["items"]]


def test_a_cluster_that_cannot_be_reached_is_named(cluster: LocalCluster, tmp_path: Path, owner: str) -> None:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        server = f"https://127.0.0.1:{probe.getsockname()[1]}"
        config = json.loads(cluster.kubeconfig.read_text())
        config["clusters"][0]["cluster"]["server"] = server
        (tmp_path / "kubeconfig").write_text(json.dumps(config))
        assert f"the cluster at {server} cannot be reached" in refusal(tmp_path, owner, tmp_path / "kubeconfig")


def test_a_certificate_that_is_over_and_a_token_that_is_not_known_ask_for_a_new_kubeconfig(
    cluster: LocalCluster, tmp_path: Path, owner: str
) -> None:
    expired = cluster.folder / "kubeconfig-expired"
    assert "renew the kubeconfig" in refusal(tmp_path, owner, expired)
    unknown = changed(cluster, tmp_path / "kubeconfig", token="of nobody")
    assert "does not accept our credentials: renew the kubeconfig" in refusal(tmp_path, owner, unknown)
    assert left(cluster, owner) == []


def test_a_template_that_is_not_a_pod_and_a_config_map_that_is_not_there_are_named(
    cluster: LocalCluster, tmp_path: Path, owner: str
) -> None:
    name = f"templates-{owner}"
    entry = "kind: Deployment\napiVersion: apps/v1\n"
    cluster.kubectl("create", "configmap", name, f"--from-literal=mine.yaml={entry}")
    try:
        said = refusal(tmp_path, owner, cluster.kubeconfig, "--kube-templates", name)
        assert (
            f"ConfigMap '{name}', entry 'mine.yaml': a template must be a Pod of apiVersion v1, not 'Deployment'"
            in said
        )
    finally:
        cluster.kubectl("delete", "configmap", name)
    said = refusal(tmp_path, owner, cluster.kubeconfig, "--kube-templates", name)
    assert f"no ConfigMap '{name}' in namespace 'default', for --kube-templates" in said
    assert left(cluster, owner) == []


@pytest.fixture
def namespace(cluster: LocalCluster, owner: str) -> Iterator[str]:
    cluster.kubectl("create", "namespace", owner)
    yield owner
    cluster.kubectl("delete", "namespace", owner, "--wait=false")


def test_a_right_that_is_missing_is_named(
    cluster: LocalCluster, tmp_path: Path, owner: str, namespace: str
) -> None:
    cluster.kubectl("-n", namespace, "create", "serviceaccount", "gateway")
    made = {"apiVersion": "v1", "kind": "Secret", "type": "kubernetes.io/service-account-token"}
    note = {"kubernetes.io/service-account.name": "gateway"}
    made["metadata"] = {"name": "gateway", "annotations": note}  # type: ignore[assignment]
    cluster.kubectl("-n", namespace, "create", "-f", "-", stdin=json.dumps(made))
    token = ""
    while not token:  # a controller fills it in
        secret = json.loads(cluster.kubectl("-n", namespace, "get", "secret", "gateway", "-o", "json"))
        token = base64.b64decode(secret.get("data", {}).get("token", "")).decode()
    kubeconfig = changed(cluster, tmp_path / "kubeconfig", token=token)
    told = ("--kube-namespace", namespace)
    assert f"no rights in namespace '{namespace}' of the cluster: pods is forbidden" in refusal(
        tmp_path, owner, kubeconfig, *told
    )
    rights = "--verb=get,list,watch,create,patch,delete"
    cluster.kubectl("-n", namespace, "create", "role", "gateway", rights, "--resource=pods")
    bound = f"--serviceaccount={namespace}:gateway"
    cluster.kubectl("-n", namespace, "create", "rolebinding", "gateway", "--role=gateway", bound)
    said = refusal(tmp_path, owner, kubeconfig, *told)
    assert f"no rights in namespace '{namespace}' of the cluster: leases.coordination.k8s.io is forbidden" in said
    assert left(cluster, owner) == []


async def test_a_full_namespace_lets_a_gateway_start_and_refuses_its_creates(
    cluster: LocalCluster, tmp_path: Path, owner: str, namespace: str
) -> None:
    cluster.kubectl("-n", namespace, "create", "quota", "full", "--hard=pods=0")
    while "pods" not in cluster.kubectl("-n", namespace, "get", "quota", "full", "-o", "jsonpath={.status.hard}"):
        await asyncio.sleep(0.1)  # a controller counts first
    access = ClusterAccess(cluster.kubeconfig, namespace=namespace)
    async with KubernetesEngine(options(cluster, owner, access=access)) as engine:
        with pytest.raises(TooManyRequests, match=rf"namespace '{namespace}' is full: .*exceeded quota: full"):
            await engine.create(Projects(tmp_path / "projects").spec())
    assert left(cluster, owner) == []


async def test_a_base_image_that_is_not_there_fails_the_create_with_its_name(
    cluster: LocalCluster, tmp_path: Path, owner: str
) -> None:
    spec = Projects(tmp_path / "projects").spec(start_timeout=120.0)
    async with KubernetesEngine(options(cluster, owner, base_image="aenv.test/nothing:1")) as engine:
        with pytest.raises(StartFailed, match=r"its image 'aenv\.test/nothing:1' cannot be pulled"):
            await engine.create(spec)
    assert pods(cluster, owner) == left(cluster, owner) == []
