"""A gateway whose store fails, and one whose clock jumps: what runs goes on, and nothing confirmed is lost."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import subprocess
import time
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import pytest

from aenv.base import mcp
from aenv.base.addresses import Origin
from aenv.base.http1 import Pool
from aenv.base.models import CreateInstance
from aenv.control.gateway.gateway_app import gateway
from aenv.control.gateway.parts import Parts
from aenv.control.serving import routes
from aenv.control.serving.accounts import LOCAL, Accounts, Role
from aenv.control.stores.redis import RedisStore
from conformance.engine import opened
from tests.gateways import (
    ECHO,
    Gateway,
    composed,
    gateway_settings,
    instance_processes,
    leftovers,
    make_project,
    new_id,
    running_gateway,
)
from tests.redis_server import RedisServer, redis_server
from tests.test_gateway_process import Program
from tests.test_gateway_races import held
from tests.test_store_faults import _cutting_proxy

pytestmark = pytest.mark.slow  # servers are killed and started again

DAY = 86400.0


@pytest.fixture
def server(tmp_path: Path) -> Iterator[RedisServer]:
    folder = tmp_path / "redis"
    folder.mkdir()
    with redis_server(folder) as server:
        yield server


@pytest.fixture
def home(tmp_path: Path) -> Path:
    return tmp_path / "home"


@contextlib.asynccontextmanager
async def served(home: Path, *projects: Path, **settings: Any) -> AsyncIterator[tuple[Gateway, Parts]]:
    """A gateway with its parts; nothing of it is left afterwards."""
    known = gateway_settings(home, *projects, **settings)
    async with Pool() as pool, gateway(known) as (address, made):
        yield Gateway(address, pool, home), made
    assert leftovers(home) == []


async def refusal(gateway: Gateway, method: str, target: str, body: Any = None, **headers: str) -> float:
    """How long a request that the store stands in the way of shall wait before it is sent again."""
    content = body if isinstance(body, bytes) else b"" if body is None else mcp.dumps(body)
    response = await gateway.pool.request(gateway.control, method, target, list(headers.items()), content)
    reply = mcp.loads(await response.read())
    assert (response.status, reply["error"]) == (503, "unavailable"), (method, target, reply)
    return float(response.header(b"retry-after") or "nan")


# Redis


async def test_a_gateway_starts_without_redis_and_serves_when_it_is_there(
    home: Path, tmp_path: Path, server: RedisServer
) -> None:
    await asyncio.to_thread(server.stop)
    async with running_gateway(home, make_project(tmp_path), store=server.url) as gateway:
        assert (await gateway.ask("GET", "/health"))[0] == 200
        assert (await gateway.ask("GET", "/health", origin=gateway.data))[0] == 200
        assert await refusal(gateway, "GET", "/env-instance/*/list") > 0
        wait = await refusal(gateway, "POST", "/env-instance", {"envName": "echo"})
        await asyncio.to_thread(server.start)
        while (reply := await gateway.ask("POST", "/env-instance", {"envName": "echo"}))[0] == 503:
            await asyncio.sleep(wait)  # as the client was told to
        assert reply[0] == 200
        assert await gateway.call(reply[1]["data"]["id"], "echo", text="hello") == "hello"


async def test_a_second_gateway_on_the_same_home_starts_without_redis_too(
    home: Path, tmp_path: Path, server: RedisServer
) -> None:
    project = make_project(tmp_path)
    await asyncio.to_thread(server.stop)
    async with (
        served(home, project, store=server.url) as (one, _),
        served(home, project, store=server.url) as (two, _),
    ):
        for gateway in (one, two):
            assert (await gateway.ask("GET", "/health"))[0] == 200
            wait = await refusal(gateway, "POST", "/env-instance", {"envName": "echo"})
        await asyncio.to_thread(server.start)
        for gateway in (one, two):
            while (status := (await gateway.ask("POST", "/env-instance", {"envName": "echo"}))[0]) == 503:
                await asyncio.sleep(wait)  # as the client was told to
            assert status == 200
        for row in (await one.ask("GET", "/env-instance/*/list"))[1]["data"]:
            assert (await one.ask("DELETE", f"/env-instance/{row['id']}"))[0] == 200


async def test_a_gateway_for_others_that_started_without_redis_lets_nobody_in_without_an_account(
    home: Path, server: RedisServer
) -> None:
    await asyncio.to_thread(server.stop)
    async with running_gateway(home, store=server.url, host="0.0.0.0") as gateway:
        local = Origin("127.0.0.1", gateway.address.port)
        assert (await gateway.ask("GET", "/health", origin=local))[0] == 200
        await asyncio.to_thread(server.start)
        for method, target in (("GET", "/env-instance/*/list"), ("POST", "/token"), ("POST", "/env-instance")):
            assert (await gateway.ask(method, target, {}, origin=local))[0] == 401, target
        async with RedisStore(server.url) as store:
            _, token = await Accounts(store).create("root", Role.ADMIN)
        root = [("authorization", f"Bearer {token}")]
        assert (await gateway.ask("GET", "/env-instance/*/list", headers=root, origin=local))[0] == 200


async def test_while_redis_is_away_instances_answer_and_all_that_must_be_recorded_is_refused(
    home: Path, tmp_path: Path, server: RedisServer
) -> None:
    async with served(home, make_project(tmp_path), store=server.url) as (gateway, made):
        lasting, crashing = await gateway.create(), await gateway.create(labels={"experiment": "a"})
        instance = made.supervisor[crashing["id"]]
        await asyncio.to_thread(server.kill)
        at = f"/env-instance/{lasting['id']}"
        for method, target, body in (
            ("POST", "/env-instance", {"envName": "echo"}),
            ("PUT", f"/env-instance/{new_id()}", {"envName": "echo"}),
            ("POST", "/env-instances", {"envName": "echo", "count": 2}),
            ("PUT", f"{at}/ttl", {"ttl": "2h"}),
            ("DELETE", at, None),
            ("DELETE", "/env-instances?label=experiment=a", None),
            ("POST", "/env", {"name": "pushed", "version": "1.0.0"}),
            ("POST", "/bundles", {"digest": "0" * 64, "size_bytes": 1}),
            ("POST", "/env-service", {"envName": "echo"}),
            ("POST", "/token", {"user": "alice"}),
        ):
            assert await refusal(gateway, method, target, body) > 0
        assert await gateway.call(lasting["id"], "echo", text="still here") == "still here"
        by_token = [("authorization", f"Bearer {lasting['token']}")]
        assert (await gateway.ask("GET", "/health", headers=by_token, origin=gateway.data))[0] == 200
        await gateway.ask("POST", f"/instances/{crashing['id']}/tools/die", {}, origin=gateway.data)
        await instance.ended.wait()
        assert len(instance_processes(home)) == 1
        await asyncio.to_thread(server.start)
        await made.upkeep.tend()
        shown = (await gateway.ask("GET", f"/env-instance/{crashing['id']}"))[1]["data"]
        assert (shown["status"], shown["reason"]) == ("Failed", "its process was killed by signal 9")
        shown = (await gateway.ask("GET", at))[1]["data"]
        assert (shown["status"], shown["ttl"]) == ("Running", "30m")
        listed = (await gateway.ask("GET", "/env-instance/*/list"))[1]["data"]
        assert [row["id"] for row in listed] == [lasting["id"]]
        assert await made.shared.store.totals("instances", "label=experiment=a") == [1, 0]
        assert (await gateway.create())["status"] == "Running"


async def test_a_request_waits_once_for_a_store_that_hangs_however_often_it_asks(
    home: Path, tmp_path: Path, server: RedisServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(routes, "STORE_PATIENCE", 0.5)  # the store alone would wait for 20 s, each time
    async with served(home, make_project(tmp_path), store=server.url) as (gateway, made):
        at = f"/env-instance/{(await gateway.create())['id']}"
        monkeypatch.setattr(made.shared.store, "_timeout", 20.0)
        with server.paused():
            for method, target in (("POST", "/env-instance"), ("GET", at), ("GET", "/env-instance/*/list")):
                assert await refusal(gateway, method, target, {"envName": "echo"}) > 0


async def test_an_instance_that_could_not_be_recorded_does_not_run_and_may_be_asked_for_again(
    home: Path, tmp_path: Path, server: RedisServer
) -> None:
    pipe, go = tmp_path / "pipe", tmp_path / "go"
    os.mkfifo(pipe)
    os.mkfifo(go)
    code = ECHO + "".join(f"os.close(os.open({str(path)!r}, os.O_WRONLY))\n" for path in (pipe, go))
    async with served(home, make_project(tmp_path, code=code), store=server.url) as (gateway, made):
        id = new_id()
        creating = asyncio.create_task(refusal(gateway, "PUT", f"/env-instance/{id}", {"envName": "echo"}))
        await opened(pipe)
        await asyncio.to_thread(server.kill)
        await opened(go)  # it is ready, and nobody can be told
        assert await creating > 0
        assert leftovers(home) == []
        await asyncio.to_thread(server.start)
        repeated = asyncio.create_task(gateway.create("echo", id=id))
        await opened(pipe)
        await opened(go)
        assert (await repeated)["status"] == "Running"
        assert await made.shared.store.totals("instances") == [1]


async def test_a_record_whose_confirmation_is_lost_is_taken_back(
    home: Path, tmp_path: Path, server: RedisServer
) -> None:
    async with (
        _cutting_proxy(server.port, b"Creating") as port,
        served(home, make_project(tmp_path), store=f"redis://127.0.0.1:{port}") as (gateway, made),
        RedisStore(server.url) as store,
    ):
        for method, target in (("POST", "/env-instance"), ("PUT", f"/env-instance/{new_id()}")):
            assert await refusal(gateway, method, target, {"envName": "echo"}) > 0
        assert leftovers(home) == []
        assert await store.totals("instances") == [0]
        assert (await store.page("instances", "live", limit=1)).total == 0
        assert made.supervisor == {}


async def test_deleted_while_redis_goes_away_an_instance_is_gone_and_said_to_be_listed_still(
    home: Path, tmp_path: Path, server: RedisServer
) -> None:
    async with served(home, make_project(tmp_path), store=server.url) as (gateway, made):
        instance = await gateway.create()
        with held(made.engine, "destroy") as destroying:
            deleting = asyncio.create_task(refusal(gateway, "DELETE", f"/env-instance/{instance['id']}"))
            await destroying.reached.wait()
            await asyncio.to_thread(server.kill)
        assert await deleting > 0
        assert leftovers(home) == []
        await asyncio.to_thread(server.start)
        await made.transitions.save_rest()
        shown = (await gateway.ask("GET", f"/env-instance/{instance['id']}"))[1]["data"]
        assert (shown["status"], shown["reason"]) == ("Terminated", "deleted")


async def test_a_gateway_that_stops_without_redis_ends_its_instances(
    home: Path, tmp_path: Path, server: RedisServer
) -> None:
    project = make_project(tmp_path)
    program = Program(home, project, store=server.url)
    async with Pool() as pool:
        instance = await (await program.ready(pool, home)).create()
        await asyncio.to_thread(server.kill)
        assert await program.end(signal.SIGTERM) == 0
    assert leftovers(home) == []
    await asyncio.to_thread(server.start)
    async with served(home, project, store=server.url) as (gateway, made):
        shown = (await gateway.ask("GET", f"/env-instance/{instance['id']}"))[1]["data"]
        assert (shown["status"], shown["reason"]) == ("Failed", "it ended while no gateway looked after it")
        assert await made.shared.store.totals("instances") == [0]


async def test_with_accounts_and_without_redis_instances_answer_for_longer_than_tokens_are_believed(
    home: Path, tmp_path: Path, server: RedisServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with RedisStore(server.url) as store:
        _, token = await Accounts(store).create("alice", Role.USER)
    async with served(home, make_project(tmp_path), store=server.url, require_data_token=True) as (gateway, _):
        body = {"envName": "echo"}
        alice = [("authorization", f"Bearer {token}")]
        instance = (await gateway.ask("POST", "/env-instance", body, alice))[1]["data"]
        by_token = [("authorization", f"Bearer {instance['token']}")]
        at = f"/instances/{instance['id']}/health"
        assert (await gateway.ask("GET", at, headers=by_token, origin=gateway.data))[0] == 200
        await asyncio.to_thread(server.kill)
        now = time.monotonic()
        monkeypatch.setattr("aenv.control.serving.accounts.time.monotonic", lambda: now + 3600)
        assert (await gateway.ask("GET", at, headers=by_token, origin=gateway.data))[0] == 200
        assert await refusal(gateway, "POST", "/env-instance", body, authorization=f"Bearer {token}") > 0


async def test_without_redis_an_instance_answers_through_another_gateway_that_knows_it(
    home: Path, tmp_path: Path, server: RedisServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    project = make_project(tmp_path)
    async with (
        composed(home, project, store=server.url) as one,
        composed(home, project, store=server.url) as two,
    ):
        record = await one.creator.create(CreateInstance(env_name="echo"), LOCAL)
        assert await two.instances.address(record.id) == record.address
        await asyncio.to_thread(server.kill)
        now = time.monotonic()
        monkeypatch.setattr("aenv.control.instances.instance_access.time.monotonic", lambda: now + 60)
        assert await two.instances.address(record.id) == record.address


# SQLite


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of 2 MiB."""
    folder = tmp_path / "disk"
    folder.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=2m", "tmpfs", str(folder)]
    if os.geteuid() or subprocess.run(mount, capture_output=True).returncode:
        pytest.skip("may not mount a file system")
    try:
        yield folder
    finally:
        subprocess.run(["umount", str(folder)], check=True)


async def test_while_the_disk_is_full_instances_answer_and_then_all_is_well(
    home: Path, tmp_path: Path, disk: Path
) -> None:
    async with served(home, make_project(tmp_path), store=f"sqlite:///{disk / 'aenv.db'}") as (gateway, made):
        lasting, crashing = await gateway.create(), await gateway.create()
        instance = made.supervisor[crashing["id"]]
        fill(disk / "ballast")
        at = f"/env-instance/{lasting['id']}"
        for method, target, body in (
            ("POST", "/env-instance", {"envName": "echo"}),
            ("PUT", f"{at}/ttl", {"ttl": "2h"}),
            ("POST", "/env", {"name": "pushed", "version": "1.0.0"}),
        ):
            assert await refusal(gateway, method, target, body) > 0
        assert await gateway.call(lasting["id"], "echo", text="still here") == "still here"
        assert (await gateway.ask("GET", at))[1]["data"]["ttl"] == "30m"
        await gateway.ask("POST", f"/instances/{crashing['id']}/tools/die", {}, origin=gateway.data)
        await instance.ended.wait()
        status, reply = await gateway.ask("DELETE", at)
        assert (status, "has ended, but the store does not answer" in reply["message"]) == (503, True)
        assert leftovers(home) == []
        (disk / "ballast").unlink()
        await made.upkeep.tend()
        for id, ended in ((lasting["id"], "deleted"), (crashing["id"], "its process was killed by signal 9")):
            assert (await gateway.ask("GET", f"/env-instance/{id}"))[1]["data"]["reason"] == ended
        assert await made.shared.store.totals("instances") == [0]
        assert (await gateway.create())["status"] == "Running"


def fill(file: Path) -> None:
    """Write until there is no room for another byte."""
    size = 64 << 10
    with file.open("wb", buffering=0) as ballast:
        while size:
            try:
                ballast.write(b"x" * size)
            except OSError:
                size //= 2


# Clocks


@pytest.mark.parametrize("jump", [DAY, -DAY])
async def test_a_jump_of_the_clock_ends_no_instance_and_lengthens_no_life(
    home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, jump: float
) -> None:
    now = 1000.0
    project = make_project(tmp_path)
    async with (
        composed(home, project, clock=lambda: now) as one,
        composed(home, project, clock=lambda: now) as two,
    ):
        record = await one.creator.create(CreateInstance(env_name="echo", ttl="10m"), LOCAL)
        instance = one.supervisor[record.id]
        later = time.time() + jump
        monkeypatch.setattr(time, "time", lambda: later)
        now += 599
        one.supervisor.check(record.id)
        for made in (two, one, two, two):  # whoever looks first
            await made.upkeep.tend()
        assert (instance.is_live, one.supervisor, two.supervisor) == (True, {record.id: instance}, {})
        now += 2
        one.supervisor.check(record.id)
        await instance.ended.wait()
        assert (await two.instances.get(record.id)).reason == "its time to live of 600 s was over"


async def test_a_renewal_after_a_jump_of_the_clock_counts_from_now(
    home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = 1000.0
    async with composed(home, make_project(tmp_path), clock=lambda: now) as made:
        record = await made.creator.create(CreateInstance(env_name="echo", ttl="10m"), LOCAL)
        for jump in (DAY, -DAY):
            later = time.time() + jump
            monkeypatch.setattr(time, "time", lambda later=later: later)
            await made.instances.renew(record.id, 60)
            assert made.supervisor[record.id].due == pytest.approx(now + 60)


async def test_an_accounts_token_ends_by_the_clock_on_the_wall_and_its_instances_go_on(
    home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with served(home, make_project(tmp_path)) as (gateway, made):
        _, token = await made.shared.accounts.create("alice", expires=DAY / 2)
        alice = [("authorization", f"Bearer {token}")]
        _, reply = await gateway.ask("POST", "/env-instance", {"envName": "echo"}, alice)
        later = time.time() + DAY
        monkeypatch.setattr(time, "time", lambda: later)
        status, refused = await gateway.ask("GET", "/env-instance/*/list", headers=alice)
        assert (status, "expired" in refused["message"]) == (401, True)
        assert await gateway.call(reply["data"]["id"], "echo", text="on") == "on"  # by the id alone
        (process,) = instance_processes(home)
        assert process.is_running()
        monkeypatch.undo()
        assert (await gateway.ask("GET", "/env-instance/*/list", headers=alice))[0] == 200
