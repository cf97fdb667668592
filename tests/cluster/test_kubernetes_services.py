"""Services on a real cluster: what the gateway makes there, and what its replicas do over changes."""

from __future__ import annotations

import asyncio
import json
import secrets
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.gateways import Gateway, running_gateway
from tests.service_gateway import make_project

from .conftest import BASE_IMAGE, LocalCluster

BROKEN = "print('about to fail')\nraise RuntimeError('the database is missing')\n"


@pytest.fixture
def settings(cluster: LocalCluster, owner: str) -> dict[str, Any]:
    return {
        "engine": "kubernetes",
        "kubeconfig": cluster.kubeconfig,
        "kube_namespace": "default",
        "kube_name": owner,
        "base_image": BASE_IMAGE,
        "start_timeout": 120.0,
    }


@pytest.fixture
def owner(cluster: LocalCluster) -> Iterator[str]:
    name = f"test-{secrets.token_hex(6)}"
    yield name
    cluster.kubectl("delete", "networkpolicies", "-l", f"aenv.owner={name}")
    assert objects(cluster, name, "deployments,services,persistentvolumeclaims,pods") == []


@pytest.fixture
def service() -> str:
    return f"notes-{secrets.token_hex(4)}"


@pytest.fixture
def volume(cluster: LocalCluster, tmp_path: Path) -> Iterator[str]:
    """A volume that no other claim takes: its class is its name."""
    name, folder = f"test-{secrets.token_hex(6)}", tmp_path / "volume"
    folder.mkdir()
    folder.chmod(0o777)  # a replica is not root
    made = {
        "apiVersion": "v1",
        "kind": "PersistentVolume",
        "metadata": {"name": name},
        "spec": {
            "capacity": {"storage": "1Gi"},
            "accessModes": ["ReadWriteOnce"],
            "hostPath": {"path": str(folder)},
            "storageClassName": name,
            "persistentVolumeReclaimPolicy": "Retain",
        },
    }
    cluster.kubectl("create", "-f", "-", stdin=json.dumps(made))
    yield name
    cluster.kubectl("delete", "persistentvolume", name)


def objects(cluster: LocalCluster, owner: str, kinds: str) -> list[str]:
    found = json.loads(cluster.kubectl("get", kinds, "-l", f"aenv.owner={owner}", "-o", "json"))
    return [f"{each['kind']}/{each['metadata']['name']}" for each in found["items"]]


async def shown(gateway: Gateway, id: str) -> dict[str, Any]:
    status, reply = await gateway.ask("GET", f"/env-service/{id}")
    assert status == 200, reply
    return dict(reply["data"])


async def until(gateway: Gateway, id: str, **wanted: Any) -> dict[str, Any]:
    async with asyncio.timeout(200):
        while True:
            data = await shown(gateway, id)
            if all(data[name] == value for name, value in wanted.items()):
                return data
            await asyncio.sleep(0.2)  # a client that wants to know asks again


async def say(gateway: Gateway, id: str, tool: str, **arguments: Any) -> tuple[int, Any]:
    status, reply = await gateway.ask("POST", f"/services/{id}/tools/{tool}", arguments, origin=gateway.data)
    if status != 200:
        return status, reply
    structured = reply["data"].get("structured")
    return status, reply["data"]["content"][0]["text"] if structured is None else structured


async def version(gateway: Gateway, id: str) -> str:
    status, said = await say(gateway, id, "who")
    return str(said["version"]) if status == 200 else ""


async def versions(gateway: Gateway, id: str) -> AsyncIterator[str]:
    async with asyncio.timeout(200):
        while True:
            yield await version(gateway, id)


async def test_replicas_are_replaced_one_by_one_and_live_without_a_gateway(
    settings: dict[str, Any], cluster: LocalCluster, owner: str, service: str, tmp_path: Path
) -> None:
    projects = [make_project(tmp_path, number) for number in ("1.0.0", "2.0.0", "3.0.0")]
    (projects[2] / "src" / "environment.py").write_text(BROKEN)
    with next((projects[0] / "src").glob("*.py")).open("a") as code:
        code.write('\nprint("notes were loaded", flush=True)\n')
    asked = {"envName": "notes@1.0.0", "service_name": service, "replicas": 2}
    async with running_gateway(tmp_path / "home", *projects, **settings) as gateway:
        status, reply = await gateway.ask("POST", "/env-service", asked)
        assert status == 200, reply
        before = await until(gateway, service, status="Running", available_replicas=2)
        assert objects(cluster, owner, "deployments,services") == [f"Deployment/{service}", f"Service/{service}"]
        target = f"/env-service/{service}/logs?replica={before['instances'][1]}"
        log = await gateway.pool.request(gateway.control, "GET", target)
        assert b"notes were loaded" in await log.read()
        status, reply = await gateway.ask("PUT", f"/env-service/{service}", {"version": "2.0.0"})
        assert status == 200, reply
        seen = set()
        async for found in versions(gateway, service):
            seen.add(found)  # "" would be a moment without a replica
            if (await shown(gateway, service))["status"] == "Running":
                break
        assert seen <= {"1.0.0", "2.0.0"}
        assert await version(gateway, service) == "2.0.0"
        # A version that does not load takes the place of none, and the reason is told.
        await gateway.ask("PUT", f"/env-service/{service}", {"version": "3.0.0"})
        async with asyncio.timeout(200):
            while "the database is missing" not in ((await shown(gateway, service))["reason"] or ""):
                assert await version(gateway, service) == "2.0.0"
        await gateway.ask("PUT", f"/env-service/{service}", {"version": "2.0.0", "replicas": 1})
        await until(gateway, service, status="Running", available_replicas=1, replicas=1)
    assert len(objects(cluster, owner, "deployments")) == 1
    async with running_gateway(tmp_path / "home", *projects, **settings) as gateway:
        await until(gateway, service, status="Running", available_replicas=1)
        assert await version(gateway, service) == "2.0.0"
        assert (await gateway.ask("DELETE", f"/env-service/{service}"))[0] == 200


async def test_storage_outlives_updates_and_its_service_until_it_is_deleted(
    settings: dict[str, Any], cluster: LocalCluster, owner: str, service: str, volume: str, tmp_path: Path
) -> None:
    projects = [make_project(tmp_path, number) for number in ("1.0.0", "2.0.0")]
    asked = {"envName": "notes@1.0.0", "service_name": service, "storage_size": "1Gi", "pvc_name": service}
    settings |= {"kube_storage_class": volume}
    async with running_gateway(tmp_path / "home", *projects, **settings) as gateway:
        refused, reply = await gateway.ask("POST", "/env-service", {**asked, "replicas": 2})
        assert (refused, "field 'replicas': must be 1 with storage" in reply["message"]) == (400, True)
        refused, reply = await gateway.ask("POST", "/env-service", {**asked, "pvc_name": "Upper"})
        assert (refused, "takes no claim 'Upper'" in reply["message"]) == (400, True)
        refused, reply = await gateway.ask("POST", "/env-service", {**asked, "service_name": "1st"})
        assert (refused, "takes no Service '1st'; begin with a letter" in reply["message"]) == (400, True)
        status, reply = await gateway.ask("POST", "/env-service", asked)
        assert status == 200, reply
        await until(gateway, service, status="Running")
        assert await say(gateway, service, "keep", text="for long") == (200, {"size": 8})
        assert (await gateway.ask("PUT", f"/env-service/{service}", {"version": "2.0.0"}))[0] == 200
        async for found in versions(gateway, service):
            if found == "2.0.0":
                break
        assert await say(gateway, service, "kept") == (200, "for long")
        assert (await gateway.ask("DELETE", f"/env-service/{service}"))[0] == 200
        claim = f"PersistentVolumeClaim/{service}"
        assert objects(cluster, owner, "deployments,persistentvolumeclaims,pods") == [claim]
        assert (await gateway.ask("POST", "/env-service", asked))[0] == 200
        await until(gateway, service, status="Running")
        assert await say(gateway, service, "kept") == (200, "for long")
        assert (await gateway.ask("DELETE", f"/env-service/{service}?deleteStorage=true"))[0] == 200


async def test_a_name_that_the_cluster_has_for_something_else_is_left_alone(
    settings: dict[str, Any], cluster: LocalCluster, service: str, tmp_path: Path
) -> None:
    cluster.kubectl("create", "deployment", service, "--image", "someone/elses:1", "--replicas", "0")
    try:
        async with running_gateway(tmp_path / "home", make_project(tmp_path, "1.0.0"), **settings) as gateway:
            asked = {"envName": "notes@1.0.0", "service_name": service}
            assert (await gateway.ask("POST", "/env-service", asked))[0] == 200
            async with asyncio.timeout(60):
                while "of another owner" not in ((await shown(gateway, service))["reason"] or ""):
                    await asyncio.sleep(0.1)
            assert (await gateway.ask("DELETE", f"/env-service/{service}"))[0] == 200
        left = json.loads(cluster.kubectl("get", "deployment", service, "-o", "json"))
        assert left["spec"]["template"]["spec"]["containers"][0]["image"] == "someone/elses:1"
    finally:
        cluster.kubectl("delete", "deployment", service)


SLOW = """
import os, pathlib, threading
from aenv import register_tool

@register_tool
def wait() -> str:
    "Return when the file 'go' is there."
    pathlib.Path("begun").touch()
    while not pathlib.Path("go").exists():
        threading.Event().wait(0.05)
    return "done"
"""


async def test_a_replica_that_the_cluster_deletes_finishes_its_requests_and_is_replaced(
    settings: dict[str, Any], cluster: LocalCluster, service: str, tmp_path: Path
) -> None:
    project = make_project(tmp_path, "1.0.0", SLOW)
    async with running_gateway(tmp_path / "home", project, **settings) as gateway:
        assert (await gateway.ask("POST", "/env-service", {"envName": "notes@1.0.0", "service_name": service}))[
            0
        ] == 200
        (pod,) = (await until(gateway, service, status="Running"))["instances"]
        waiting = asyncio.create_task(say(gateway, service, "wait"))
        in_pod = ("exec", pod, "-c", "main", "--", "sh", "-c")
        await asyncio.to_thread(cluster.kubectl, *in_pod, "until test -e /workspace/begun; do sleep 0.05; done")
        cluster.kubectl("delete", "pod", pod, "--wait=false")
        while pod in (await shown(gateway, service))["instances"]:
            await asyncio.sleep(0.1)
        assert not waiting.done()
        cluster.kubectl(*in_pod, "touch /workspace/go")
        assert await waiting == (200, "done")
        after = await until(gateway, service, status="Running")
        assert len(after["instances"]) == 1
        assert (await gateway.ask("DELETE", f"/env-service/{service}"))[0] == 200
