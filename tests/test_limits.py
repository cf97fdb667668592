"""Limits: how many instances, how much of the machine, how many requests; exact across gateways."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from aenv.control.serving.accounts import Accounts, Role
from aenv.control.stores.sqlite import SqliteStore
from tests.gateways import Gateway, leftovers, make_project, new_id, running_gateway
from tests.redis_server import redis_server

pytestmark = pytest.mark.slow


@pytest.fixture
def home(tmp_path: Path) -> Path:
    return tmp_path / "home"


async def refused(gateway: Gateway, headers: list[tuple[str, str]] | None = None, **body: Any) -> dict[str, Any]:
    """The reply to a create that there is no room for."""
    status, reply = await gateway.ask("POST", "/env-instance", {"envName": "echo", **body}, headers or [])
    assert (status, reply["error"]) == (429, "too_many_requests"), reply
    assert reply["queue"]["position"] >= 1
    assert reply["queue"]["estimate_seconds"] > 0
    return dict(reply)


# How many instances


async def test_beyond_the_limit_a_create_is_refused_until_one_has_ended(home: Path, tmp_path: Path) -> None:
    async with running_gateway(home, make_project(tmp_path), max_instances=2) as gateway:
        one, _ = await asyncio.gather(gateway.create(), gateway.create())
        reply = await refused(gateway)
        assert "instances is at 2 of 2" in reply["message"]
        response = await gateway.pool.request(gateway.control, "POST", "/env-instance", (), b'{"envName": "echo"}')
        await response.read()
        assert int(response.header(b"retry-after") or 0) >= 1
        await gateway.ask("DELETE", f"/env-instance/{one['id']}")
        await gateway.create()


async def test_who_waits_gets_in_when_there_is_room(home: Path, tmp_path: Path) -> None:
    async with running_gateway(home, make_project(tmp_path), max_instances=1) as gateway:
        first = await gateway.create()
        waiting = asyncio.create_task(gateway.create(wait="60s"))
        by_query = asyncio.create_task(gateway.ask("POST", "/env-instance?wait=60s", {"envName": "echo"}))
        await asyncio.wait({waiting}, timeout=0.05)
        assert not waiting.done()
        await gateway.ask("DELETE", f"/env-instance/{first['id']}")
        second = await waiting
        assert second["status"] == "Running"
        await gateway.ask("DELETE", f"/env-instance/{second['id']}")
        assert (await by_query)[1]["data"]["status"] == "Running"


async def test_a_wait_that_is_over_says_so_and_leaves_nothing(home: Path, tmp_path: Path) -> None:
    async with running_gateway(home, make_project(tmp_path), max_instances=1) as gateway:
        await gateway.create()
        id = new_id()
        status, reply = await gateway.ask("PUT", f"/env-instance/{id}?wait=50ms", {"envName": "echo"})
        assert (status, reply["queue"]["position"]) == (429, 1)
        assert (await gateway.ask("GET", f"/env-instance/{id}"))[0] == 404
        assert len(leftovers(home)) == 2  # the folder and the process of the one that runs
        for wait in ("soon", "2h"):
            status, reply = await gateway.ask("POST", "/env-instance", {"envName": "echo", "wait": wait})
            assert (status, reply["error"]) == (400, "invalid_request")


async def test_a_client_that_leaves_the_queue_is_not_served_any_more(home: Path, tmp_path: Path) -> None:
    async with running_gateway(home, make_project(tmp_path), max_instances=1) as gateway:
        first = await gateway.create()
        leaving = asyncio.create_task(gateway.create(wait="60s"))
        staying = asyncio.create_task(gateway.create(wait="60s"))
        await asyncio.wait({leaving}, timeout=0.05)
        leaving.cancel()
        await asyncio.wait({leaving})
        while (await refused(gateway))["queue"]["waiting"] == 2:
            pass  # a closed connection counts after a moment: a client may close its side and still read
        await gateway.ask("DELETE", f"/env-instance/{first['id']}")
        await staying
        assert len(leftovers(home)) == 2


async def test_each_token_and_each_experiment_has_a_quota_of_its_own(home: Path, tmp_path: Path) -> None:
    home.mkdir()
    async with SqliteStore(home / "aenv.db") as store:
        accounts = Accounts(store)
        _, narrow = await accounts.create("alice", max_instances=1)
        _, wide = await accounts.create("bob", Role.USER)
    alice, bob = ([("authorization", f"Bearer {token}")] for token in (narrow, wide))
    limits = {"max_instances_by_label": {"experiment": 2}}
    async with running_gateway(home, make_project(tmp_path), **limits) as gateway:

        async def create(who: list[tuple[str, str]], **body: Any) -> None:
            status, reply = await gateway.ask("POST", "/env-instance", {"envName": "echo", **body}, who)
            assert status == 200, reply

        await create(alice)
        assert "account=" in (await refused(gateway, alice))["message"]
        for _ in range(2):
            await create(bob, labels={"experiment": "a"})
        assert "experiment=a is at 2 of 2" in (await refused(gateway, bob, labels={"experiment": "a"}))["message"]
        await create(bob, labels={"experiment": "b"})
        await create(bob)


async def test_instances_together_ask_for_no_more_than_the_capacity(home: Path, tmp_path: Path) -> None:
    project = make_project(tmp_path, cpu="500m", memory="1Gi")
    async with running_gateway(home, project, capacity_cpus=1.0, capacity_memory_bytes=3 << 30) as gateway:
        await gateway.create()
        await gateway.create(resources={"cpu": "100m"})
        assert "cpu is at 600 of 1000" in (await refused(gateway))["message"]
        await gateway.create(resources={"cpu": "100m"})
        assert "memory" in (await refused(gateway, resources={"cpu": "100m"}))["message"]
        status, reply = await gateway.ask(
            "POST", "/env-instance", {"envName": "echo", "resources": {"memory": "2Gi"}}
        )
        assert (status, "allows '1Gi' at most" in reply["message"]) == (400, True)


async def test_a_crash_gives_room_back(home: Path, tmp_path: Path) -> None:
    async with running_gateway(home, make_project(tmp_path), max_instances=1) as gateway:
        instance = await gateway.create()
        waiting = asyncio.create_task(gateway.create(wait="60s"))
        await gateway.ask("POST", f"/instances/{instance['id']}/tools/die", {}, origin=gateway.data)
        assert (await waiting)["status"] == "Running"


# Batches


async def test_a_batch_is_created_whole_or_not_at_all(home: Path, tmp_path: Path) -> None:
    async with running_gateway(home, make_project(tmp_path), max_instances=3) as gateway:
        status, reply = await gateway.ask("POST", "/env-instances", {"envName": "echo", "count": 4})
        assert (status, reply["error"]) == (429, "too_many_requests")
        assert leftovers(home) == []
        status, reply = await gateway.ask("POST", "/env-instances", {"envName": "echo", "count": 3})
        assert (status, len({instance["id"] for instance in reply["data"]})) == (200, 3)
        for instance in reply["data"]:
            assert await gateway.call(instance["id"], "echo", text="hi") == "hi"
        for count in (0, 1001, "many", None):
            status, reply = await gateway.ask("POST", "/env-instances", {"envName": "echo", "count": count})
            assert (status, "'count'" in reply["message"]) == (400, True)


async def test_a_client_may_choose_the_ids_of_a_batch(home: Path, tmp_path: Path) -> None:
    async with running_gateway(home, make_project(tmp_path)) as gateway:
        body = {"envName": "echo@1.0.0", "count": 1, "ids": [f"echo-{'c' * 26}"]}
        status, reply = await gateway.ask("POST", "/env-instances", body)
        assert (status, [made["id"] for made in reply["data"]]) == (200, body["ids"])
        status, reply = await gateway.ask("POST", "/env-instances", body)
        assert (status, "is taken" in reply["message"]) == (409, True)
        assert await gateway.call(body["ids"][0], "echo", text="hi") == "hi"
        # Of one that has ended, too: its record says what became of it.
        await gateway.ask("DELETE", f"/env-instance/{body['ids'][0]}")
        status, reply = await gateway.ask("POST", "/env-instances", body)
        assert (status, "is taken" in reply["message"]) == (409, True)
        for wrong in ([], ["short"], [f"echo-{'d' * 26}"] * 2):
            status, reply = await gateway.ask("POST", "/env-instances", {**body, "ids": wrong})
            assert status == 400, reply


async def test_a_batch_of_something_broken_leaves_nothing(home: Path, tmp_path: Path) -> None:
    broken = make_project(tmp_path, "broken", code="raise RuntimeError('no luck')")
    async with running_gateway(home, broken) as gateway:
        status, reply = await gateway.ask("POST", "/env-instances", {"envName": "broken", "count": 3})
        assert (status, "no luck" in reply["message"]) == (500, True)
        assert leftovers(home) == []


# Rates


async def test_too_many_requests_are_refused_with_the_time_to_wait(home: Path) -> None:
    async with running_gateway(home, rate_limit=1.0) as gateway:
        replies = []
        for _ in range(4):
            response = await gateway.pool.request(gateway.control, "GET", "/env-instance/*/list")
            await response.read()
            replies.append(response)
        assert [reply.status for reply in replies] == [200, 200, 429, 429]
        assert [reply.header(b"ratelimit-remaining") for reply in replies] == ["1", "0", "0", "0"]
        assert replies[0].header(b"ratelimit-limit") == "2"
        assert int(replies[2].header(b"retry-after") or 0) >= 1


async def test_one_route_can_have_a_limit_of_its_own(home: Path) -> None:
    limits = {"GET /env-instance/{id}/list": 0.5}
    async with running_gateway(home, route_limits=limits) as gateway:
        assert (await gateway.ask("GET", "/env-instance/*/list"))[0] == 200
        status, reply = await gateway.ask("GET", "/env-instance/*/list")
        assert (status, reply["error"]) == (429, "too_many_requests")
        assert "'GET /env-instance/{id}/list'" in reply["message"]
        assert (await gateway.ask("GET", "/env-instance/none"))[0] == 404


# Several gateways


@pytest.fixture
async def pair(tmp_path: Path) -> AsyncIterator[tuple[Gateway, Gateway]]:
    """Two gateways on one Redis, each with a home of its own."""
    project = make_project(tmp_path)
    with redis_server(tmp_path) as server:
        settings = {"store": server.url, "max_instances": 5, "rate_limit": 5.0}
        async with (
            running_gateway(tmp_path / "one", project, **settings) as one,
            running_gateway(tmp_path / "two", project, **settings) as two,
        ):
            yield one, two


async def test_limits_are_exact_across_gateways(pair: tuple[Gateway, Gateway]) -> None:
    async def create(gateway: Gateway) -> int:
        return (await gateway.ask("POST", "/env-instance", {"envName": "echo"}))[0]

    statuses = await asyncio.gather(*(create(gateway) for gateway in pair * 4))
    assert sorted(statuses) == [200] * 5 + [429] * 3


async def test_rates_are_counted_together(pair: tuple[Gateway, Gateway]) -> None:
    async def look(gateway: Gateway) -> int:
        return (await gateway.ask("GET", "/env-instance/*/list"))[0]

    statuses = await asyncio.gather(*(look(gateway) for gateway in pair * 10))
    assert statuses.count(200) in (10, 11)  # two seconds' worth, and what came while they were sent
    assert statuses.count(429) == 20 - statuses.count(200)


async def test_room_made_through_one_gateway_is_found_by_who_waits_at_another(
    pair: tuple[Gateway, Gateway],
) -> None:
    one, two = pair
    status, reply = await one.ask("POST", "/env-instances", {"envName": "echo", "count": 5})
    assert status == 200
    waiting = asyncio.create_task(two.create(wait="60s"))
    await asyncio.wait({waiting}, timeout=0.05)
    assert (await one.ask("DELETE", f"/env-instance/{reply['data'][0]['id']}"))[0] == 200
    assert (await waiting)["status"] == "Running"
