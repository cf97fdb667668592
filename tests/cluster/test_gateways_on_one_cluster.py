"""Several gateways, each with a home of its own, share a cluster's instances by one Redis."""

from __future__ import annotations

import asyncio
import contextlib
import json
import secrets
import signal
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from aenv.base.errors import Conflict
from aenv.base.http1 import Pool
from aenv.base.models import CreateInstance
from aenv.control.gateway.gateway_app import gateway
from aenv.control.serving.accounts import LOCAL
from tests.gateways import Gateway, gateway_settings, make_project, new_id
from tests.redis_server import RedisServer, redis_server
from tests.test_gateway_process import Program

from .conftest import BASE_IMAGE, LocalCluster


@pytest.fixture
def server(tmp_path: Path) -> Iterator[RedisServer]:
    folder = tmp_path / "redis"
    folder.mkdir()
    with redis_server(folder) as server:
        yield server


@pytest.fixture
def owner() -> str:
    return f"test-{secrets.token_hex(6)}"


@pytest.fixture
def settings(cluster: LocalCluster, server: RedisServer, owner: str) -> dict[str, Any]:
    return {
        "engine": "kubernetes",
        "kubeconfig": str(cluster.kubeconfig),
        "kube_namespace": "default",
        "kube_name": owner,
        "base_image": BASE_IMAGE,
        "store": server.url,
        "start_timeout": 120.0,
    }


class Gateways:
    """Programs of gateways, by the name of their home."""

    def __init__(self, folder: Path, pool: Pool, settings: dict[str, Any], project: Path) -> None:
        self._folder, self._pool, self._settings, self._project = folder, pool, settings, project
        self._programs: dict[str, Program] = {}

    async def start(self, name: str) -> Gateway:
        home = self._folder / name
        program = self._programs[name] = Program(home, self._project, **self._settings)
        return await program.ready(self._pool, home)

    async def end(self, name: str, number: signal.Signals) -> None:
        await self._programs.pop(name).end(number)

    async def close(self) -> None:
        await asyncio.gather(*(self.end(name, signal.SIGTERM) for name in list(self._programs)))


@contextlib.asynccontextmanager
async def gateways(folder: Path, settings: dict[str, Any], project: Path) -> AsyncIterator[Gateways]:
    async with Pool() as pool:
        made = Gateways(folder, pool, settings, project)
        try:
            yield made
        finally:
            await made.close()


def listed(cluster: LocalCluster, kind: str, owner: str) -> list[dict[str, Any]]:
    found = json.loads(cluster.kubectl("get", kind, "-l", f"aenv.owner={owner}", "-o", "json"))
    return list(found["items"])


def states(cluster: LocalCluster, owner: str) -> list[str]:
    return sorted(pod["metadata"]["labels"]["aenv.state"] for pod in listed(cluster, "pods", owner))


async def until(is_so: Callable[[], bool]) -> None:
    """The cluster tells this test of no change: it asks."""
    while not await asyncio.to_thread(is_so):
        await asyncio.sleep(0.5)


def looked_after_by(server: RedisServer, id: str) -> str:
    """The name of the gateway that supervises it."""
    document = server.command("HGET", "{aenv}:documents:instances", id)
    return str(json.loads(document.partition(b" ")[2])["gateway"])


async def shown(gateway: Gateway, id: str) -> dict[str, Any]:
    status, reply = await gateway.ask("GET", f"/env-instance/{id}")
    assert status == 200, reply
    data: dict[str, Any] = reply["data"]
    return data


async def test_what_one_gateway_made_another_calls_shows_and_ends_and_an_id_is_one_pod(
    tmp_path: Path, cluster: LocalCluster, settings: dict[str, Any], owner: str
) -> None:
    async with gateways(tmp_path, settings, make_project(tmp_path)) as made:
        a, b = await asyncio.gather(made.start("a"), made.start("b"))
        instance = await a.create(labels={"experiment": "x"})
        assert await b.call(instance["id"], "echo", text="through the other") == "through the other"
        by_token = [("authorization", f"Bearer {instance['token']}")]  # signed by the first
        assert (await b.ask("GET", "/health", headers=by_token, origin=b.data))[0] == 200
        rows = (await b.ask("GET", "/env-instance/*/list"))[1]["data"]
        assert [row["id"] for row in rows] == [instance["id"]]
        assert (await b.ask("DELETE", f"/env-instance/{instance['id']}"))[0] == 200
        assert listed(cluster, "pods", owner) == []
        assert (await shown(a, instance["id"]))["reason"] == "deleted"

        id = new_id()
        same = await asyncio.gather(*(gateway.create(id=id) for gateway in (a, b) * 2))
        assert len({(one["id"], one["created_at"]) for one in same}) == 1
        key = [("idempotency-key", "k")]
        asked = [gateway.ask("POST", "/env-instance", {"envName": "echo"}, key) for gateway in (a, b) * 2]
        by_key = {reply["data"]["id"] for _, reply in await asyncio.gather(*asked)}
        assert len(by_key) == 1
        pods = listed(cluster, "pods", owner)
        assert sorted(pod["metadata"]["name"] for pod in pods) == sorted({id, *by_key})
    assert listed(cluster, "pods", owner) == []
    assert listed(cluster, "leases", owner) == []


async def test_another_gateway_takes_over_what_a_killed_one_made_and_the_warm_pool_is_made_once(
    tmp_path: Path, cluster: LocalCluster, settings: dict[str, Any], owner: str, server: RedisServer
) -> None:
    project = make_project(tmp_path, warmPool=2)
    async with gateways(tmp_path, settings, project) as made:
        a, b = await asyncio.gather(made.start("a"), made.start("b"))
        await until(lambda: states(cluster, owner) == ["spare", "spare"])
        spares = {pod["metadata"]["name"] for pod in listed(cluster, "pods", owner)}
        lasting, _ = await a.create(owner="ada", labels={"experiment": "a/b"}), await b.create()
        await until(lambda: states(cluster, owner) == ["running", "running", "spare", "spare"])
        running = {
            pod["metadata"]["name"]
            for pod in listed(cluster, "pods", owner)
            if pod["metadata"]["labels"]["aenv.state"] == "running"
        }
        assert running == spares  # each of the two filled in a spare one, and not the same
        wanted = f"business/aenv-owner=ada,aenv.label/experiment=a_b,aenv.instance={lasting['id']}"
        assert cluster.kubectl("get", "pods", "-l", wanted, "-o", "name").count("pod/") == 1
        expiring = await a.create(ttl="20s")
        killed = looked_after_by(server, lasting["id"])
        await made.end("a", signal.SIGKILL)
        assert await b.call(lasting["id"], "echo", text="goes on") == "goes on"
        server.command("DEL", f"{{aenv}}:lease:gateway {killed}")  # half a minute later
        await until(lambda: looked_after_by(server, lasting["id"]) != killed)
        await until(lambda: expiring["id"] not in str(listed(cluster, "pods", owner)))
        assert (await shown(b, expiring["id"]))["reason"] == "its time to live of 20 s was over"
        cluster.kubectl("delete", "pod", "-l", f"aenv.instance={lasting['id']}", "--grace-period=1")
        await until(lambda: states(cluster, owner) == ["running", "spare", "spare"])
        ended = await shown(b, lasting["id"])
        assert (ended["status"], ended["reason"]) == ("Failed", "its Pod was deleted")
    assert listed(cluster, "pods", owner) == []


async def test_a_gateway_with_another_store_does_not_touch_the_instances_of_a_living_one(
    tmp_path: Path, cluster: LocalCluster, settings: dict[str, Any], owner: str
) -> None:
    project = make_project(tmp_path)
    settings = {**settings, "kubeconfig": cluster.kubeconfig}
    async with gateway(gateway_settings(tmp_path / "a", project, **settings)) as (_, one):
        record = await one.creator.create(CreateInstance(env_name="echo"), LOCAL)
        other = gateway_settings(tmp_path / "b", project, **{**settings, "store": ""})
        with pytest.raises(Conflict, match=r"belong to another gateway .* --kube-name"):
            async with gateway(other):
                pass
        assert len(listed(cluster, "leases", owner)) == 1
        assert list(await one.engine.running()) == [record.id]
