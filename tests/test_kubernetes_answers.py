"""How the Kubernetes engine takes the answers of an API server that refuses, forgets, or is away for a moment."""

from __future__ import annotations

import asyncio
import json
import re
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("lightkube", reason="the extra 'kubernetes' is not installed")

import kmock as kmocks

from aenv.base.errors import Conflict, Forbidden, StartFailed, TooManyRequests
from aenv.engines.base import InstanceSpec
from aenv.engines.kubernetes import cluster_client, pod_watch
from aenv.engines.kubernetes.cluster_access import ClusterAccess
from aenv.engines.kubernetes.cluster_client import Cluster, Pods
from aenv.engines.kubernetes.kubernetes_engine import KubernetesEngine
from aenv.engines.kubernetes.kubernetes_options import KubernetesOptions
from aenv.engines.kubernetes.pod_creation import ATTEMPT, create_once
from aenv.engines.kubernetes.pod_watch import PodWatch

pytestmark = pytest.mark.kmock(cls=kmocks.RawHandler)

PODS = "/api/v1/namespaces/default/pods"
POD = {"metadata": {"name": "x", "labels": {"aenv.owner": "me"}, "resourceVersion": "7"}, "spec": {}}
BUSY = {"kind": "Status", "apiVersion": "v1", "status": "Failure", "code": 429, "message": "too many requests"}
EXISTS = {**BUSY, "code": 409, "message": "pods 'x' already exists"}
TOO_OLD = {"type": "ERROR", "object": {**BUSY, "code": 410, "message": "too old resource version"}}


@pytest.fixture
def access(kmock: kmocks.RawHandler, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> ClusterAccess:
    monkeypatch.setattr(cluster_client, "_FIRST_PAUSE", 0.01)
    config = {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": "mocked", "cluster": {"server": str(kmock.url).rstrip("/")}}],
        "users": [{"name": "me", "user": {}}],
        "contexts": [{"name": "it", "context": {"cluster": "mocked", "user": "me", "namespace": "default"}}],
        "current-context": "it",
    }
    (tmp_path / "kubeconfig").write_text(json.dumps(config))
    return ClusterAccess(tmp_path / "kubeconfig")


@pytest.fixture
def cluster(access: ClusterAccess) -> Cluster:
    return Cluster(access)


def pods(*found: dict[str, Any], version: str = "5") -> dict[str, Any]:
    return {"kind": "PodList", "apiVersion": "v1", "metadata": {"resourceVersion": version}, "items": [*found]}


async def test_a_busy_server_is_asked_again_also_where_its_answer_has_no_body(
    kmock: kmocks.RawHandler, cluster: Cluster
) -> None:
    kmock[f"post {PODS}"][:1] << 429
    kmock[f"post {PODS}"][1:2] << 429 << BUSY
    kmock[f"post {PODS}"] << POD
    async with cluster:
        assert (await cluster.create(Pods, POD))["metadata"]["name"] == "x"
    assert len(kmock[f"post {PODS}"]) == 3


async def test_a_server_that_stays_busy_is_given_up_with_its_words(
    kmock: kmocks.RawHandler, cluster: Cluster
) -> None:
    kmock[f"post {PODS}"] << 429 << BUSY
    async with cluster:
        with pytest.raises(TooManyRequests, match="too many requests"):
            await cluster.create(Pods, POD)
    assert len(kmock[f"post {PODS}"]) == cluster_client._ATTEMPTS


async def test_a_create_whose_answer_was_lost_finds_its_own_pod(
    kmock: kmocks.RawHandler, cluster: Cluster
) -> None:
    kmock[f"post {PODS}"][:1] << 503
    kmock[f"post {PODS}"] << 409 << EXISTS
    kmock[f"get {PODS}/x"] << (lambda request: kmock["post"][0].data)
    async with cluster:
        made = await create_once(cluster, PodWatch(cluster, {}), POD)
        assert made["metadata"]["annotations"][ATTEMPT]


async def test_a_pod_of_another_create_is_a_conflict_and_stays(kmock: kmocks.RawHandler, cluster: Cluster) -> None:
    kmock[f"post {PODS}"] << 409 << EXISTS
    kmock[f"get {PODS}/x"] << POD
    async with cluster:
        with pytest.raises(Conflict):
            await create_once(cluster, PodWatch(cluster, {}), POD)
    assert len(kmock["delete"]) == 0


@pytest.mark.parametrize(
    ("code", "why"), [(503, "answered 503: .*it restarts"), (401, "does not accept our credentials: renew")]
)
async def test_a_create_that_no_server_takes_says_why_when_its_time_is_over(
    kmock: kmocks.RawHandler, access: ClusterAccess, tmp_path: Path, code: int, why: str
) -> None:
    kmock[f"get {PODS}?watch=true"] << (...,)
    kmock[f"get {PODS}/i-1"] << 404 << {**BUSY, "code": 404, "message": "not found"}
    kmock[f"post {PODS}"][:1] << POD  # the dry run of the start
    kmock[f"post {PODS}"] << code << {**BUSY, "code": code, "message": "it restarts"}
    kmock["get"] << pods()
    kmock["post"] << {"metadata": {"name": "made"}}
    kmock["patch"] << POD
    kmock["delete"] << {}
    spec = InstanceSpec("i-1", "echo@1.0.0", tmp_path, start_timeout=1.0)
    async with KubernetesEngine(KubernetesOptions(access, gateways="app=gateway")) as engine:
        with pytest.raises(StartFailed, match=f"was not ready within 1 s: the cluster at .* {why}"):
            await engine.create(spec)


@pytest.mark.parametrize(
    "why",
    [
        "pods 'aenv-probe' is forbidden: failed quota: all: must specify limits.cpu",
        "pods 'aenv-probe' is forbidden: exceeded quota: all, requested: pods=1, used: pods=9, limited: pods=9",
        "pods 'aenv-probe' is forbidden: violates PodSecurity 'restricted:latest': runAsNonRoot != true",
    ],
)
async def test_a_namespace_that_is_full_or_takes_other_pods_only_is_no_reason_not_to_start(
    kmock: kmocks.RawHandler, cluster: Cluster, why: str
) -> None:
    kmock[f"get {PODS}"] << pods()
    kmock["delete"] << 404 << {**BUSY, "code": 404, "message": "not found"}
    kmock[f"post {PODS}"] << 403 << {**BUSY, "code": 403, "message": why}
    async with cluster:
        await cluster.check()
        with pytest.raises((Forbidden, TooManyRequests), match=r"^(?!no rights).*'default'.*forbidden: "):
            await cluster.create(Pods, POD)


async def test_a_right_to_create_that_is_missing_is_a_reason_not_to_start(
    kmock: kmocks.RawHandler, cluster: Cluster
) -> None:
    why = "pods is forbidden: User 'me' cannot create resource 'pods' in API group ''"
    kmock[f"get {PODS}"] << pods()
    kmock["delete"] << 404 << {**BUSY, "code": 404, "message": "not found"}
    kmock[f"post {PODS}"] << 403 << {**BUSY, "code": 403, "message": why}
    async with cluster:
        with pytest.raises(Forbidden, match=r"no rights in namespace 'default' of the cluster: .* cannot create"):
            await cluster.check()


async def test_a_watch_whose_version_the_server_has_forgotten_lists_again(
    kmock: kmocks.RawHandler, cluster: Cluster
) -> None:
    kmock[f"get {PODS}?watch=true"][:1] << (TOO_OLD,)
    kmock[f"get {PODS}?watch=true"] << (...,)
    kmock[f"get {PODS}"][:1] << pods()
    kmock[f"get {PODS}"] << pods(POD, version="9")
    async with cluster, PodWatch(cluster, {"aenv.owner": "me"}) as watch:
        found = await watch.until("x", lambda pod: pod)
        assert (found["metadata"]["resourceVersion"], watch.lists) == ("7", 2)


@pytest.mark.parametrize(
    ("code", "said", "logged", "pause"),
    [
        (429, "too many requests", "interrupted: the cluster at .* has too many requests", 7.0),
        (403, "User 'me' cannot watch resource 'pods'", "no rights in .*: User 'me' cannot watch", 0.2),
        (410, "too old resource version", "begins again: its version is too old", 0.0),
    ],
)
async def test_a_watch_that_the_server_refuses_says_why_in_a_line_and_begins_again_after_the_pause_that_it_names(
    kmock: kmocks.RawHandler,
    cluster: Cluster,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    code: int,
    said: str,
    logged: str,
    pause: float,
) -> None:
    pauses: list[float] = []

    async def sleep(seconds: float) -> None:
        pauses.append(seconds)

    named = {"Retry-After": "7" if code == 429 else "0"}
    kmock[f"get {PODS}?watch=true"][:1] << code << named << {**BUSY, "code": code, "message": said}
    kmock[f"get {PODS}?watch=true"] << (...,)
    kmock[f"get {PODS}"][:1] << pods()
    kmock[f"get {PODS}"] << pods(POD, version="9")
    monkeypatch.setattr(pod_watch, "_rest", sleep)  # how long is the property
    caplog.set_level("INFO", "aenv")
    async with cluster, PodWatch(cluster, {"aenv.owner": "me"}) as watch:
        await watch.until("x", lambda pod: pod)
    assert pauses == [pause]
    (line,) = [record for record in caplog.records if record.name.startswith("aenv")]
    assert re.search(logged, line.getMessage()) and not line.exc_info


async def test_a_server_that_ends_every_watch_is_asked_with_growing_pauses(
    kmock: kmocks.RawHandler, cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    pauses: list[float] = []
    waited = asyncio.Event()

    async def sleep(seconds: float) -> None:
        pauses.append(seconds)
        if len(pauses) == 6:
            waited.set()
            await asyncio.Event().wait()

    kmock[f"get {PODS}?watch=true"] << (TOO_OLD,)
    kmock[f"get {PODS}"] << pods()
    monkeypatch.setattr(pod_watch, "_rest", sleep)  # how long is the property
    async with cluster, PodWatch(cluster, {"aenv.owner": "me"}):
        await waited.wait()
    assert pauses == [0.0, 0.2, 0.4, 0.8, 1.6, 3.2]
