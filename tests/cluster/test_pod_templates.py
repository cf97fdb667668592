"""Templates of an operator, and what becomes of Pods that the cluster takes away, on a real cluster."""

from __future__ import annotations

import asyncio
import json
import secrets
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from aenv.base.http1 import Pool
from aenv.engines.kubernetes.kubernetes_engine import KubernetesEngine
from conformance.able import result
from conformance.engine import Projects, call
from conformance.files import pieces
from tests.gateways import make_project, running_gateway

from .conftest import BASE_IMAGE, LocalCluster
from .test_kubernetes_engine import options, pods

TEMPLATE = """
apiVersion: v1
kind: Pod
metadata: {labels: {team: sandboxes}}
spec:
  runtimeClassName: NAME
  nodeSelector: {kubernetes.io/os: linux}
  tolerations: [{key: sandboxes, operator: Exists, effect: NoSchedule}]
  imagePullSecrets: [{name: registry}]
  securityContext: {runAsNonRoot: true, runAsUser: 10001, fsGroup: 10001, seccompProfile: {type: RuntimeDefault}}
  containers:
    - name: main
      securityContext: {allowPrivilegeEscalation: false, capabilities: {drop: [ALL]}}
      env: [{name: FROM_TEMPLATE, value: "yes"}]
"""

STARTS_ITSELF = """
apiVersion: v1
kind: Pod
spec:
  securityContext: {runAsUser: 10001, fsGroup: 10001}
  containers:
    - name: main
      command:
        - sh
        - -c
        - mkdir -p /tmp/e/src && echo "$CODE" > /tmp/e/src/e.py && exec python3 -m aenv.main /tmp/e
"""
CODE = """
import os
from aenv import register_tool

@register_tool
def colour() -> list[str]:
    return [os.environ["COLOUR"]]
"""


@pytest.fixture
def owner() -> str:
    return f"test-{secrets.token_hex(6)}"


@pytest.fixture
def template(cluster: LocalCluster, owner: str) -> Iterator[str]:
    """The name of a ConfigMap, and of the runtime class that its template asks for."""
    runtime_class = {
        "apiVersion": "node.k8s.io/v1",
        "kind": "RuntimeClass",
        "metadata": {"name": owner},
        "handler": "runc",
    }
    entries = {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"name": owner},
        "data": {"mine.yaml": TEMPLATE.replace("NAME", owner), "itself.yaml": STARTS_ITSELF},
    }
    for made in (runtime_class, entries):
        cluster.kubectl("create", "-f", "-", stdin=json.dumps(made))
    yield owner
    cluster.kubectl("delete", f"runtimeclass/{owner}", f"configmap/{owner}")
    cluster.kubectl("delete", "networkpolicies", "-l", f"aenv.owner={owner}")
    assert pods(cluster, owner) == []


async def test_an_environment_gets_the_template_that_it_names_and_no_other(
    cluster: LocalCluster, owner: str, template: str, tmp_path: Path
) -> None:
    known = make_project(tmp_path, "echo", "1.0.0", podTemplate="mine")
    unknown = make_project(tmp_path, "other", "1.0.0", podTemplate="theirs")
    outside = make_project(tmp_path, "outside", "1.0.0", podTemplate="../mine")
    settings: dict[str, Any] = {
        "engine": "kubernetes",
        "kubeconfig": cluster.kubeconfig,
        "kube_namespace": "default",
        "kube_name": owner,
        "kube_templates": template,
        "base_image": BASE_IMAGE,
        "start_timeout": 120.0,
    }
    async with running_gateway(tmp_path / "home", known, unknown, outside, **settings) as gateway:
        data = await gateway.create(environment_variables={"COLOUR": "blue"})
        (pod,) = pods(cluster, owner)
        spec, labels = pod["spec"], pod["metadata"]["labels"]
        assert (spec["runtimeClassName"], spec["imagePullSecrets"]) == (owner, [{"name": "registry"}])
        assert spec["nodeSelector"] == {"kubernetes.io/os": "linux"}
        assert "sandboxes" in [each.get("key") for each in spec["tolerations"]]
        assert (labels["team"], labels["business/aenv-name"]) == ("sandboxes", "echo")
        assert (labels["app.kubernetes.io/instance"], labels["aenv.network"]) == (data["id"], "none")
        seen = (await gateway.call(data["id"], "seen"))["variables"]
        assert (seen["FROM_TEMPLATE"], seen["COLOUR"]) == ("yes", "blue")
        for name, words in (("other", "no template 'theirs'; the cluster has dual"), ("outside", "'../mine'")):
            status, reply = await gateway.ask("POST", "/env-instance", {"envName": f"{name}@1.0.0"})
            assert (status, words in reply["message"]) == (400, True), reply


async def test_an_environment_with_an_image_starts_by_itself_and_can_be_given_commands_and_files(
    cluster: LocalCluster, owner: str, template: str, tmp_path: Path
) -> None:
    spec = Projects(tmp_path / "projects").spec(
        image=BASE_IMAGE, pod_template="itself", environment_variables={"COLOUR": "blue", "CODE": CODE}
    )
    async with Pool() as pool, KubernetesEngine(options(cluster, owner, templates=template)) as engine:
        address = await engine.create(spec)
        assert [tool["name"] for tool in address.tools] == ["colour"]
        assert await call(pool, address, "colour") == ["blue"]
        assert await engine.put(spec.id, "folder/it", pieces(b"content")) == 7
        script = "cat folder/it; echo $COLOUR"
        assert await result(engine.exec(spec.id, ["sh", "-c", script])) == (0, b"contentblue\n", b"")
        assert [entry.path for entry in await engine.list(spec.id)] == ["folder"]
        await engine.destroy(spec.id)


async def test_an_eviction_is_told_while_the_pod_is_still_there(
    cluster: LocalCluster, owner: str, tmp_path: Path
) -> None:
    projects = Projects(tmp_path / "projects")
    spec = projects.spec()
    async with KubernetesEngine(options(cluster, owner)) as engine:
        await engine.create(spec)
        held = json.dumps({"metadata": {"finalizers": ["example.org/held"]}})
        cluster.kubectl("patch", "pod", spec.id, "--type=merge", "-p", held)
        waiting = asyncio.create_task(engine.ended(spec.id))
        eviction = {
            "apiVersion": "policy/v1beta1",
            "kind": "Eviction",
            "metadata": {"name": spec.id, "namespace": "default"},
        }
        path = f"/api/v1/namespaces/default/pods/{spec.id}/eviction"
        cluster.kubectl("create", "--raw", path, "-f", "-", stdin=json.dumps(eviction))
        assert await waiting == "its Pod was deleted"
        assert [pod["metadata"]["name"] for pod in pods(cluster, owner)] == [spec.id]
        freed = json.dumps({"metadata": {"finalizers": None}})
        cluster.kubectl("patch", "pod", spec.id, "--type=merge", "-p", freed)
        await engine.destroy(spec.id)
        assert pods(cluster, owner) == []
