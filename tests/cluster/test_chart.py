"""The Helm chart on a real cluster: installed, used as in the documents, upgraded, and removed without a trace."""

from __future__ import annotations

import base64
import json
import os
import re
import secrets
import subprocess
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from aenv import Environment
from tests.command_line import aenv, environ
from tests.test_chart import CHART, HELM

from . import chart_images
from .conftest import BASE_IMAGE, LocalCluster

ADMINISTRATOR = 10001
_OF_EVERY_NAMESPACE = {"serviceaccount/default", "configmap/kube-root-ca.crt"}
_KINDS = (
    "all,secrets,configmaps,serviceaccounts,roles,rolebindings,networkpolicies,ingresses,leases,"
    "persistentvolumeclaims,poddisruptionbudgets"
)


@dataclass(frozen=True)
class Release:
    """A namespace of a cluster, and the chart in it under the name `aenv`."""

    cluster: LocalCluster
    namespace: str
    values: Mapping[str, Any]
    """What this cluster needs: its images, addresses and claims."""
    address: str
    """Of the gateway's Service."""

    def helm(self, *words: str | Path, **changes: Any) -> str:
        given = _merged(self.values, changes)
        command = [HELM, *words, "--namespace", self.namespace, "--kubeconfig", self.cluster.kubeconfig]
        done = subprocess.run(
            [*command, *(("--values", "-") if words[0] in ("install", "upgrade", "template") else ())],
            input=json.dumps(given),
            capture_output=True,
            text=True,
        )
        assert done.returncode == 0, done.stderr
        return done.stdout

    def kubectl(self, *words: str) -> str:
        return self.cluster.kubectl("--namespace", self.namespace, *words)

    def rolled_out(self, *names: str) -> None:
        for name in names:
            try:
                self.kubectl("rollout", "status", f"deployment/{name}", "--timeout=150s")
            except AssertionError as error:
                told = self.kubectl("get", "events", "--output=wide")
                raise AssertionError(f"{error}\n{told}\n{self.kubectl('describe', 'pods')}") from None

    @property
    def token(self) -> str:
        secret = json.loads(self.kubectl("get", "secret", "aenv-admin", "--output=json"))
        return base64.b64decode(secret["data"]["token"]).decode()

    def objects(self) -> set[str]:
        """Names of all that is there, without what every namespace has."""
        found = set(self.kubectl("get", _KINDS, "--output=name").split())
        plain = {re.sub(r"^(\w+)[.\w]*/", r"\1/", name) for name in found} - _OF_EVERY_NAMESPACE
        return {name for name in plain if not name.startswith("secret/default-token-")}


def _merged(old: Mapping[str, Any], new: Mapping[str, Any]) -> dict[str, Any]:
    both = {key: _merged(old[key], new[key]) for key in old.keys() & new.keys() if isinstance(old[key], Mapping)}
    return {**old, **new, **both}


@pytest.fixture(scope="module")
def images(cluster: LocalCluster, tmp_path_factory: pytest.TempPathFactory) -> None:
    """The cluster has them; one that was given has them already."""
    if os.environ.get("AENV_TEST_KUBECONFIG"):
        return
    folder = tmp_path_factory.mktemp("images")
    for archive in (chart_images.gateway(folder), chart_images.redis(folder)):
        cluster.say(f"load {archive}")
        archive.unlink()


@pytest.fixture
def release(cluster: LocalCluster, images: None, tmp_path: Path) -> Iterator[Release]:
    """Nothing is installed yet. The address of the Service leads into the cluster from here, until the end."""
    config = json.loads(cluster.kubeconfig.read_text())
    node = config["clusters"][0]["cluster"]["server"].split("//")[1].split(":")[0]
    services = f"10.96.{node.split('.')[2]}"
    addresses = [f"{services}.{number}" for number in (80, 81, 82)]
    namespace = f"chart-{secrets.token_hex(4)}"
    cluster.kubectl("create", "namespace", namespace)
    routes = [["ip", "route", verb, f"{services}.80/30", "via", node] for verb in ("replace", "delete")]
    subprocess.run(routes[0], check=True)
    claims = [_claim(cluster, namespace, tmp_path / name) for name in ("home", "bundles")]
    values = {
        "image": {"repository": chart_images.GATEWAY.partition(":")[0], "tag": "1", "pullPolicy": "Never"},
        "baseImage": BASE_IMAGE,
        "gateway": {
            "service": {"clusterIP": addresses[0]},
            "persistence": {"existingClaim": claims[0]},
            "resources": {"requests": {"cpu": "50m", "memory": "64Mi"}},
        },
        "bundles": {"claim": claims[1]},
        "hub": {"service": {"clusterIP": addresses[1]}, "resources": {"requests": {"cpu": "50m"}}},
        "redis": {
            "bundled": {
                "image": chart_images.REDIS,
                "pullPolicy": "Never",
                "clusterIP": addresses[2],  # there is no DNS in the cluster
                "persistence": {"enabled": False},
            }
        },
    }
    try:
        yield Release(cluster, namespace, values, addresses[0])
    finally:
        cluster.kubectl("delete", "namespace", namespace)
        cluster.kubectl("delete", "persistentvolume", *(f"{namespace}-{name}" for name in ("home", "bundles")))
        subprocess.run(routes[1], check=True)


def _claim(cluster: LocalCluster, namespace: str, folder: Path) -> str:
    """A folder of the test as a claim: the cluster makes no volumes, and its only node is this machine."""
    folder.mkdir()
    os.chown(folder, ADMINISTRATOR, ADMINISTRATOR)
    for parent in folder.parents:
        if parent.stat().st_mode & 0o011 != 0o011 and parent.is_relative_to("/tmp"):
            parent.chmod(parent.stat().st_mode | 0o011)
    common = {"accessModes": ["ReadWriteMany"], "storageClassName": ""}
    size, name = {"storage": "1Gi"}, f"{namespace}-{folder.name}"
    volume = {
        "apiVersion": "v1",
        "kind": "PersistentVolume",
        "metadata": {"name": name},
        "spec": {**common, "capacity": size, "hostPath": {"path": str(folder)}},
    }
    claim = {
        "apiVersion": "v1",
        "kind": "PersistentVolumeClaim",
        "metadata": {"name": folder.name, "namespace": namespace},
        "spec": {**common, "volumeName": name, "resources": {"requests": size}},
    }
    for manifest in (volume, claim):
        cluster.kubectl("create", "--filename=-", stdin=json.dumps(manifest))
    return folder.name


async def _echo(env: Environment, text: str) -> Any:
    done = await env.call_tool("my_custom_echo_env", {"content": text})
    return json.loads(done.content[0]["text"])["result"]


def test_what_is_rendered_for_this_old_cluster_has_versions_that_it_knows(release: Release) -> None:
    found = release.helm("template", "aenv", CHART, "--validate", gateway={"autoscaling": {"enabled": True}})
    assert "apiVersion: policy/v1beta1" in found and "apiVersion: policy/v1\n" not in found
    assert "apiVersion: autoscaling/v1" in found and "apiVersion: autoscaling/v2" not in found


@pytest.mark.timeout(600)
async def test_the_documents_workflow_runs_on_an_installed_chart_which_leaves_nothing(
    release: Release, tmp_path: Path
) -> None:
    before = release.objects()
    release.helm("install", "aenv", CHART)
    release.rolled_out("aenv-redis", "aenv")
    url, token = f"http://{release.address}:8080", release.token
    stranger = environ(AENV_SYSTEM_URL=url, AENV_HOME=str(tmp_path / "h"))
    assert aenv("ps", env=stranger).returncode == 1
    variables = environ(AENV_SYSTEM_URL=url, AENV_API_KEY=token, AENV_HOME=str(tmp_path / "h"))

    def run(*words: str | Path) -> str:
        done = aenv(*words, cwd=tmp_path, env=variables)
        assert done.returncode == 0, f"{words}: {done.stderr}"
        return done.stdout

    run("init", "my-env")
    config = tmp_path / "my-env" / "config.json"
    told = json.loads(config.read_text())
    told["deployConfig"] |= {"cpu": "0.1", "memory": "256Mi"}  # the node of the tests is small
    config.write_text(json.dumps(told))
    run("build", "--work-dir", "my-env", "--no-image")
    run("push", "my-env")
    assert "my-env" in run("list").splitlines()[1]
    shown = json.loads(run("instance", "create", "my-env@1.0.0", "--keep-alive", "--json"))
    (made,) = shown if isinstance(shown, list) else [shown]
    assert made["id"] in run("instance", "list")
    assert made["id"] in release.kubectl("get", "pods", "--selector=aenv.owner=aenv", "--output=name")
    called = run("call", "--instance", made["id"], "my_custom_echo_env", "content=hello")
    assert json.loads(called) == {"result": "hello"}

    async with Environment("my-env@1.0.0", aenv_url=url, api_key=token) as env:
        assert await _echo(env, "one") == "one"
        assert await env.call_function("word_count", {"text": "one two three"}) == 3
        # An upgrade: a second gateway and a hub of its own are added, and the first begins anew. Instances go on.
        changes = {"hub": {"separate": True}, "instances": {"maxInstances": 2}, "gateway": {"replicas": 2}}
        release.helm("upgrade", "aenv", CHART, **changes)
        release.rolled_out("aenv", "aenv-hub")
        assert release.token == token
        assert await _echo(env, "two") == "two"
        refused = aenv("instance", "create", "my-env@1.0.0", cwd=tmp_path, env=variables)
        assert refused.returncode == 1 and "2" in refused.stderr  # the new limit

    hub = {**variables, "HUB_BACKEND": f"http://{release.address[:-2]}81:8083"}
    assert "my-env" in aenv("list", env=hub).stdout.splitlines()[1]
    pushed = aenv("push", "my-env", "--version", "1.0.1", cwd=tmp_path, env=hub)
    assert pushed.returncode == 0, pushed.stderr
    async with Environment("my-env@1.0.1", aenv_url=url, api_key=token) as env:  # which the gateway has at once
        assert await env.call_function("word_count", {"text": "one"}) == 1
    run("instance", "delete", made["id"], "--yes")
    assert release.kubectl("get", "pods", "--selector=aenv.owner=aenv", "--output=name") == ""

    run("instance", "create", "my-env@1.0.0", "--keep-alive")  # which an uninstallation ends, too
    release.helm("uninstall", "aenv", "--wait")
    release.kubectl("wait", "--for=delete", "pods", "--all", "--timeout=60s")
    assert release.objects() == before
