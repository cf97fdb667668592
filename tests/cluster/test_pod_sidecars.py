"""Sidecars of Pods on a real cluster."""

from __future__ import annotations

import asyncio
import dataclasses
import secrets
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import pytest

from aenv.base.errors import StartFailed
from aenv.base.http1 import Pool
from aenv.engines.kubernetes.kubernetes_engine import KubernetesEngine
from conformance.engine import ENVIRONMENT, Projects, call

from .conftest import BASE_IMAGE, OTHER_IMAGE, LocalCluster
from .test_kubernetes_engine import options, pods

HAS_SIDECAR = """
import socket, threading
from aenv import Sidecar, register_tool

@register_tool
async def inside(command: str, sidecar: Sidecar) -> list[str]:
    "What a command prints in the sidecar."
    return (await sidecar.exec(command)).stdout.splitlines()

@register_tool
async def sees_main_server(sidecar: Sidecar) -> list[str]:
    "Ask a server of the main part from the sidecar."
    server = socket.create_server(("127.0.0.1", 0))
    def answer():
        client, _ = server.accept()
        client.sendall(b"reached")
        client.close()
    threading.Thread(target=answer, daemon=True).start()
    return [(await sidecar.exec(f"nc 127.0.0.1 {server.getsockname()[1]} </dev/null")).stdout]

@register_tool
def own(path: str) -> list[str]:
    "Lines of a file."
    return open(path).read().splitlines()
"""


@pytest.fixture
def owner() -> str:
    return f"test-{secrets.token_hex(6)}"


@pytest.fixture
async def engine(cluster: LocalCluster, owner: str, projects: Projects) -> AsyncIterator[KubernetesEngine]:
    async with KubernetesEngine(options(cluster, owner)) as engine:
        yield engine
        for id in projects.ids:
            await engine.destroy(id)
        assert pods(cluster, owner) == []


@pytest.fixture
def projects(tmp_path: Path) -> Projects:
    return Projects(tmp_path / "projects")


@pytest.fixture
async def pool() -> AsyncIterator[Pool]:
    async with Pool() as pool:
        yield pool


async def test_a_sidecar_runs_commands_in_an_image_without_python_and_shares_a_folder_and_the_network(
    engine: KubernetesEngine, cluster: LocalCluster, owner: str, projects: Projects, pool: Pool
) -> None:
    spec = projects.spec(HAS_SIDECAR, sidecar=OTHER_IMAGE, environment_variables={"SECRET": "for the main part"})
    address = await engine.create(spec)
    seen = await call(pool, address, "inside", command="cat /etc/mark; id -u; ls /usr/local 2>&1")
    assert seen[:2] == ["marked", "0"]
    assert "No such file" in seen[2]
    assert await call(pool, address, "inside", command="env | grep -c SECRET; exit 3") == ["0"]
    await call(pool, address, "inside", command="echo shared > /shared/it; chmod 644 /shared/it")
    assert await call(pool, address, "own", path="/shared/it") == ["shared"]
    assert await call(pool, address, "sees_main_server") == ["reached"]
    (written,) = await call(pool, address, "inside", command="touch /opt/aenv/lib/x 2>&1")
    assert "Read-only" in written
    async with KubernetesEngine(options(cluster, owner)) as again:
        assert await again.running() == {spec.id: address}
        waiting = asyncio.create_task(again.ended(spec.id))
        cluster.kubectl("exec", spec.id, "-c", "second", "--", "kill", "1")
        assert await waiting == "its sidecar ended"
        assert await again.running() == {}


async def test_the_published_template_has_a_second_container_without_a_datasource(
    engine: KubernetesEngine, cluster: LocalCluster, owner: str, projects: Projects, pool: Pool
) -> None:
    await engine.keep_warm(projects.spec(HAS_SIDECAR, pod_template="DualContainer"), 0)
    spec = projects.spec(HAS_SIDECAR, pod_template="DualContainer")
    address = await engine.create(spec)
    assert await call(pool, address, "inside", command="id -u") == ["0"]
    (pod,) = pods(cluster, owner)
    images = {container["name"]: container["image"] for container in pod["spec"]["containers"]}
    assert images == {"main": BASE_IMAGE, "second": BASE_IMAGE}
    assert not any("hostPath" in volume for volume in pod["spec"]["volumes"])


async def test_a_spare_pod_has_its_sidecar_already(
    engine: KubernetesEngine, cluster: LocalCluster, owner: str, projects: Projects, pool: Pool
) -> None:
    spec = projects.spec(HAS_SIDECAR, sidecar=OTHER_IMAGE)
    spare = dataclasses.replace(spec, id="spare")
    await engine.keep_warm(spare, 1)
    await asyncio.wait_for(_until(engine.warm), 60)
    (before,) = pods(cluster, owner)
    address = await engine.create(spec)
    await engine.keep_warm(spare, 0)
    assert await call(pool, address, "inside", command="cat /etc/mark") == ["marked"]
    assert before["metadata"]["name"] in [pod["metadata"]["name"] for pod in pods(cluster, owner)]
    await engine.destroy(spec.id)
    await asyncio.wait_for(_until(lambda: not pods(cluster, owner)), 60)


async def _until(is_so: Callable[[], object]) -> None:
    while not is_so():
        await asyncio.sleep(0.1)  # of what the cluster does, it tells only the engine


async def test_a_sidecar_whose_image_does_not_exist_leaves_nothing(
    engine: KubernetesEngine, cluster: LocalCluster, owner: str, projects: Projects
) -> None:
    with pytest.raises(StartFailed, match=r"its image '127\.0\.0\.1:9/no/sidecar:1' cannot be pulled"):
        await engine.create(projects.spec(ENVIRONMENT, sidecar="127.0.0.1:9/no/sidecar:1"))
    assert pods(cluster, owner) == []
