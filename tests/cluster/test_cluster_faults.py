"""What happens to a cluster, for real: each is reported with its reason as soon as the cluster tells it."""

from __future__ import annotations

import asyncio
import contextlib
import json
import secrets
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from aenv.base.errors import NetworkError, StartFailed
from aenv.base.http1 import Pool
from aenv.engines.base import InstanceSpec, ResourceLimits
from aenv.engines.kubernetes.cluster_access import ClusterAccess
from aenv.engines.kubernetes.kubernetes_engine import KubernetesEngine
from conformance.engine import Projects, call

from .conftest import LocalCluster
from .test_kubernetes_engine import options, pods

GREEDY = '''
from pathlib import Path

from aenv import register_tool

kept = []


@register_tool
def remember(mebibytes: int) -> int:
    """Take memory, and use it."""
    kept.append(bytearray(b"x") * (mebibytes << 20))
    return len(kept)


@register_tool
def write(mebibytes: int) -> int:
    """Fill the workspace."""
    return Path("big").write_bytes(b"x" * (mebibytes << 20))
'''


@pytest.fixture
def projects(tmp_path: Path) -> Projects:
    return Projects(tmp_path / "projects")


@pytest.fixture
def owner() -> str:
    return f"test-{secrets.token_hex(6)}"


@pytest.fixture
async def engine(cluster: LocalCluster, owner: str) -> AsyncIterator[KubernetesEngine]:
    async with KubernetesEngine(options(cluster, owner)) as engine:
        yield engine


def patient(spec: InstanceSpec, **changes: Any) -> InstanceSpec:
    return InstanceSpec(**{**vars(spec), "start_timeout": 120.0, **changes})


async def until_listed(engine: KubernetesEngine, times: int) -> None:
    """Return when the watch has listed all Pods so often."""
    while engine._watch.lists < times:
        await asyncio.sleep(0.1)


async def use_up(engine: KubernetesEngine, spec: InstanceSpec, tool: str, mebibytes: int) -> str:
    """Why the instance has ended after a call of a greedy tool."""
    address = await engine.create(spec)
    ending = asyncio.create_task(engine.ended(spec.id))
    async with Pool() as pool:
        with contextlib.suppress(NetworkError, AssertionError):  # its end may come before the answer
            await call(pool, address, tool, mebibytes=mebibytes)
        return await ending


async def test_while_the_api_server_restarts_instances_serve_and_a_create_waits(
    cluster: LocalCluster, engine: KubernetesEngine, projects: Projects, owner: str
) -> None:
    first, second = patient(projects.spec()), patient(projects.spec())
    address = await engine.create(first)
    ending = asyncio.create_task(engine.ended(first.id))
    lists = engine._watch.lists
    await asyncio.to_thread(cluster.say, "stop apiserver")
    creating = asyncio.create_task(engine.create(second))
    async with Pool() as pool:
        assert (await call(pool, address, "seen"))["variables"]
        assert not creating.done()
        assert not ending.done()
        await asyncio.to_thread(cluster.say, "start apiserver")
        assert (await call(pool, await creating, "seen"))["variables"]
    await until_listed(engine, lists + 1)
    cluster.kubectl("delete", "pod", first.id, "--wait=false")
    assert await ending == "its Pod was deleted"
    assert [pod["metadata"]["name"] for pod in pods(cluster, owner) if _stays(pod)] == [second.id]
    await asyncio.gather(engine.destroy(first.id), engine.destroy(second.id))
    assert pods(cluster, owner) == []


async def test_what_happens_while_the_watch_is_cut_off_is_noticed_when_it_is_back(
    cluster: LocalCluster, projects: Projects, owner: str, tmp_path: Path
) -> None:
    async with Cable(cluster, tmp_path) as cable:
        access = ClusterAccess(cable.kubeconfig, namespace="default")
        async with KubernetesEngine(options(cluster, owner, access=access)) as engine:
            spec = patient(projects.spec())
            await engine.create(spec)
            ending = asyncio.create_task(engine.ended(spec.id))
            lists = engine._watch.lists
            cable.cut()
            cluster.kubectl("delete", "pod", spec.id, "--grace-period=1")
            assert not ending.done()
            cable.mend()
            assert await ending == "its Pod was deleted"
            assert engine._watch.lists > lists
    assert pods(cluster, owner) == []


async def test_an_image_that_cannot_be_pulled_ends_the_create_at_once(
    cluster: LocalCluster, engine: KubernetesEngine, projects: Projects, owner: str
) -> None:
    with pytest.raises(StartFailed, match=r"its image 'aenv\.test/no-such:1' cannot be pulled: .+") as caught:
        async with asyncio.timeout(30):  # the node itself needs 40 s to say that it has ended such a Pod
            await engine.create(patient(projects.spec(), image="aenv.test/no-such:1"))
    assert "\n" not in caught.value.message
    assert pods(cluster, owner) == []


async def test_an_instance_that_no_node_takes_says_so_when_its_time_is_over(
    cluster: LocalCluster, engine: KubernetesEngine, projects: Projects, owner: str
) -> None:
    spec = projects.spec(limits=ResourceLimits(gpus=1), start_timeout=15.0)
    with pytest.raises(StartFailed, match=r"was not ready within 15 s: no node takes it: .*nvidia.com/gpu"):
        await engine.create(spec)
    assert pods(cluster, owner) == []


async def test_an_instance_that_takes_more_memory_than_its_limit_ends_with_that_reason(
    cluster: LocalCluster, engine: KubernetesEngine, projects: Projects, owner: str
) -> None:
    spec = patient(projects.spec(GREEDY), limits=ResourceLimits(memory_bytes=256 << 20))
    assert await use_up(engine, spec, "remember", 512) == "it used more memory than its limit"
    await engine.destroy(spec.id)
    assert pods(cluster, owner) == []


async def test_an_instance_that_its_node_evicts_ends_with_that_reason(
    cluster: LocalCluster, engine: KubernetesEngine, projects: Projects, owner: str
) -> None:
    spec = patient(projects.spec(GREEDY), limits=ResourceLimits(storage_bytes=4 << 20))
    reason = await use_up(engine, spec, "write", 16)
    assert reason.startswith("it was evicted from its node; ")
    assert "exceeds" in reason
    await engine.destroy(spec.id)
    assert pods(cluster, owner) == []


async def test_an_instance_whose_node_is_lost_ends_with_that_reason_and_leaves_no_record(
    cluster: LocalCluster, engine: KubernetesEngine, projects: Projects, owner: str
) -> None:
    await asyncio.to_thread(cluster.say, "start node2")
    try:
        cluster.kubectl("cordon", "node1")
        spec = patient(projects.spec())
        await engine.create(spec)
        cluster.kubectl("uncordon", "node1")
        ending = asyncio.create_task(engine.ended(spec.id))
        await asyncio.to_thread(cluster.say, "stop kubelet2")
        silent = ("wait", "node/node2", "--for=condition=Ready=Unknown", "--timeout=200s")
        await asyncio.to_thread(cluster.kubectl, *silent)
        assert not ending.done()  # it may come back
        cluster.kubectl("delete", "node", "node2")
        assert await ending == "its node does not answer, and the cluster gave it up"
        await engine.destroy(spec.id)
        assert pods(cluster, owner) == []
    finally:
        await asyncio.to_thread(cluster.say, "stop containerd2")
        cluster.kubectl("uncordon", "node1")
        cluster.kubectl("delete", "node", "node2", "--ignore-not-found")


def _stays(pod: dict[str, Any]) -> bool:
    return "deletionTimestamp" not in pod["metadata"]


class Cable:
    """A connection to the API server that can be cut: a port of this host which leads there."""

    def __init__(self, cluster: LocalCluster, folder: Path) -> None:
        config = json.loads(cluster.kubeconfig.read_text())
        server = config["clusters"][0]["cluster"]
        self._host, _, port = server["server"].removeprefix("https://").partition(":")
        self._port = int(port)
        self._config = config
        self._ends: set[asyncio.StreamWriter] = set()
        self._tasks: set[asyncio.Task[None]] = set()
        self._is_cut = False
        self.kubeconfig = folder / "kubeconfig"

    async def __aenter__(self) -> Cable:
        self._server = await asyncio.start_server(self._connected, "127.0.0.1", 0)
        port = self._server.sockets[0].getsockname()[1]
        self._config["clusters"][0]["cluster"]["server"] = f"https://127.0.0.1:{port}"
        self.kubeconfig.write_text(json.dumps(self._config))
        return self

    async def __aexit__(self, *exc: object) -> None:
        self.cut()
        self._server.close()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    def cut(self) -> None:
        self._is_cut = True
        for end in self._ends:
            end.transport.abort()

    def mend(self) -> None:
        self._is_cut = False

    async def _connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if self._is_cut:
            writer.transport.abort()
            return
        theirs, there = await asyncio.open_connection(self._host, self._port)
        self._ends |= {writer, there}
        for source, target in ((reader, there), (theirs, writer)):
            task = asyncio.create_task(_pump(source, target))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)


async def _pump(source: asyncio.StreamReader, target: asyncio.StreamWriter) -> None:
    with contextlib.suppress(OSError):
        while piece := await source.read(1 << 16):
            target.write(piece)
            await target.drain()
    target.close()
