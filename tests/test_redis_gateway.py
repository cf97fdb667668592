"""Two gateways on one Redis and one home: whichever a client reaches, it finds the same instances."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import time
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from aenv.base.errors import Conflict, NotFound, StartFailed
from aenv.base.http1 import Pool
from aenv.base.models import CreateInstance
from aenv.control.gateway.gateway_app import gateway
from aenv.control.gateway.parts import Parts
from aenv.control.serving.accounts import LOCAL
from aenv.engines import proc
from conformance.engine import NEVER_READY, opened
from tests.gateways import (
    ECHO,
    Gateway,
    composed,
    gateway_settings,
    instance_processes,
    leftovers,
    make_project,
    new_id,
)
from tests.redis_server import RedisServer, redis_server
from tests.test_gateway_process import Program
from tests.test_gateway_races import held, writes

pytestmark = pytest.mark.slow  # several gateways at a time

ASKED = CreateInstance(env_name="echo")


@pytest.fixture
def server(tmp_path: Path) -> Iterator[RedisServer]:
    folder = tmp_path / "redis"
    folder.mkdir()
    with redis_server(folder) as server:
        yield server


@pytest.fixture
def home(tmp_path: Path) -> Path:
    return tmp_path / "home"


@pytest.fixture
def project(tmp_path: Path) -> Path:
    return make_project(tmp_path)


@pytest.fixture
def pipe(tmp_path: Path) -> Path:
    path = tmp_path / "pipe"
    os.mkfifo(path)
    return path


@dataclass
class Two:
    """Two gateways, as clients see them."""

    one: Gateway
    two: Gateway


@pytest.fixture
async def both(home: Path, project: Path, server: RedisServer) -> AsyncIterator[Two]:
    settings = gateway_settings(home, project, store=server.url)
    async with Pool() as pool, gateway(settings) as (one, _), gateway(settings) as (two, _):
        yield Two(Gateway(one, pool, home), Gateway(two, pool, home))
    assert leftovers(home) == []


@contextlib.asynccontextmanager
async def pair(
    home: Path, *projects: Path, server: RedisServer, **options: Any
) -> AsyncIterator[tuple[Parts, Parts]]:
    """The parts of two gateways that listen nowhere."""
    async with (
        composed(home, *projects, store=server.url, **options) as one,
        composed(home, *projects, store=server.url, **options) as two,
    ):
        yield one, two


async def test_what_one_gateway_made_the_other_shows_calls_renews_and_ends(both: Two, home: Path) -> None:
    one, two = both.one, both.two
    made = await one.create(labels={"experiment": "a"})
    at = f"/env-instance/{made['id']}"
    shown = (await two.ask("GET", at))[1]["data"]
    assert {**shown, "token": "", "mcp_url": "", "socket": ""} == {
        **made,
        "token": "",
        "mcp_url": "",
        "socket": "",
    }
    assert shown["mcp_url"].startswith(two.address.data_url)
    for target in ("/env-instance/*/list", "/env-instance/*/list?label=experiment=a", "/env-instance/echo/list"):
        assert [row["id"] for row in (await two.ask("GET", target))[1]["data"]] == [made["id"]]
    assert await two.call(made["id"], "echo", text="through the other") == "through the other"
    by_token = [("authorization", f"Bearer {made['token']}")]  # signed by the first
    assert (await two.ask("GET", "/health", headers=by_token, origin=two.data))[0] == 200
    assert (await two.ask("PUT", f"{at}/ttl", {"ttl": "2h"}))[1]["data"]["ttl"] == "2h"
    assert (await one.ask("GET", at))[1]["data"]["ttl"] == "2h"
    assert (await two.ask("DELETE", at))[0] == 200
    assert leftovers(home) == []
    for each in (one, two):
        ended = (await each.ask("GET", at))[1]["data"]
        assert (ended["status"], ended["reason"]) == ("Terminated", "deleted")
        assert (await each.ask("GET", "/env-instance/*/list"))[1]["data"] == []
        assert (await each.ask("DELETE", at))[0] == 200
    status, reply = await one.ask("GET", f"/instances/{made['id']}/health", origin=one.data)
    assert (status, "not found" in reply["message"]) == (404, True)


async def test_the_other_gateway_demands_the_token_that_an_instance_demands(both: Two) -> None:
    _, reply = await both.one.ask("POST", "/token", {"user": "a", "role": "admin"})
    account = [("authorization", f"Bearer {reply['data']['token']}")]
    for method, target, alone in (("PUT", f"/env-instance/{new_id()}", 401), ("POST", "/env-instance", 200)):
        status, reply = await both.one.ask(method, target, {"envName": "echo"}, account)
        assert status == 200
        by_token = [("authorization", f"Bearer {reply['data']['token']}")]
        at = f"/instances/{reply['data']['id']}/health"
        for each in (both.two, both.one):
            assert (await each.ask("GET", at, origin=each.data))[0] == alone
            for headers in (by_token, account):
                assert (await each.ask("GET", at, headers=headers, origin=each.data))[0] == 200


async def test_the_same_id_at_both_at_once_is_one_instance(both: Two, home: Path) -> None:
    id = new_id()
    made = await asyncio.gather(*(each.create(id=id) for each in (both.one, both.two) * 4))
    assert {(each["id"], each["status"], each["created_at"]) for each in made} == {
        (id, "Running", made[0]["created_at"])
    }
    assert len(instance_processes(home)) == 1
    status, reply = await both.two.ask("PUT", f"/env-instance/{id}", {"envName": "echo", "ttl": "5m"})
    assert (status, reply["error"], reply["data"]) == (409, "conflict", None)


async def test_the_same_idempotency_key_at_both_at_once_is_one_instance(both: Two, home: Path) -> None:
    async def post(gateway: Gateway, key: str) -> str:
        body, headers = {"envName": "echo@1.0.0"}, [("idempotency-key", key)]
        status, reply = await gateway.ask("POST", "/env-instance", body, headers)
        assert status == 200, reply
        return str(reply["data"]["id"])

    made = await asyncio.gather(*(post(each, key) for each in (both.one, both.two) * 3 for key in "ab"))
    assert len(set(made)) == 2
    assert len(instance_processes(home)) == 2
    status, reply = await both.two.ask(
        "POST", "/env-instance", {"envName": "echo@1.0.0", "ttl": "5m"}, [("idempotency-key", "a")]
    )
    assert (status, reply["error"]) == (409, "conflict")


async def test_a_create_is_repeated_at_the_other_while_the_first_attempt_is_undone(
    home: Path, tmp_path: Path, server: RedisServer, pipe: Path
) -> None:
    again = tmp_path / "again"
    stuck = "".join(f"    {line}\n" for line in NEVER_READY.format(pipe=str(pipe)).splitlines())
    project = make_project(tmp_path, code=ECHO + f"if not Path({str(again)!r}).exists():\n{stuck}")
    async with pair(home, project, server=server) as (one, two):
        for asked in ({"id": new_id()}, {"key": "k"}):
            again.unlink(missing_ok=True)
            first = asyncio.create_task(one.creator.create(ASKED, LOCAL, **asked))
            await opened(pipe)
            repeated = asyncio.create_task(two.creator.create(ASKED, LOCAL, **asked))
            again.touch()
            first.cancel()
            record = await repeated
            assert (record.status, (await two.instances.get(record.id)).status) == ("Running", "Running")
            await two.instances.delete(record.id)


async def test_an_instance_is_deleted_through_the_other_while_it_starts(
    home: Path, tmp_path: Path, server: RedisServer, pipe: Path
) -> None:
    slow = make_project(tmp_path, "slow", code=NEVER_READY.format(pipe=str(pipe)))
    async with pair(home, slow, server=server) as (one, two):
        id = new_id()
        creating = asyncio.create_task(one.creator.create(CreateInstance(env_name="slow"), LOCAL, id=id))
        await opened(pipe)
        await asyncio.gather(two.instances.delete(id), two.instances.delete(id))
        with pytest.raises((Conflict, StartFailed)):
            await creating
        assert leftovers(home) == []
        assert (await two.instances.get(id)).reason == "deleted"
        assert await one.shared.store.totals("instances") == [0]


async def test_a_batch_of_which_one_is_deleted_through_the_other_before_it_is_recorded_is_not_made(
    home: Path, project: Path, server: RedisServer
) -> None:
    async with pair(home, project, server=server) as (one, two):
        with held(one.shared.store, "write", when=writes("Running")) as saving:
            creating = asyncio.create_task(one.creator.create_many(ASKED, LOCAL, [f"echo-{c * 26}" for c in "ab"]))
            await saving.reached.wait()
            await two.instances.delete(saving.arguments[0].key)
        with pytest.raises(Conflict, match="has ended"):
            await creating
        assert leftovers(home) == []
        assert await two.shared.store.totals("instances") == [0]


async def test_deleted_at_both_at_once_it_is_gone_and_was_deleted(
    home: Path, project: Path, server: RedisServer
) -> None:
    async with pair(home, project, server=server) as (one, two):
        record = await one.creator.create(ASKED, LOCAL)
        await asyncio.gather(*(each.instances.delete(record.id) for each in (one, two) * 3))
        assert leftovers(home) == []
        ended = await one.instances.get(record.id)
        assert (ended.status, ended.reason) == ("Terminated", "deleted")
        assert one.supervisor == two.supervisor == {}


# Deadlines


async def test_a_renewal_through_the_other_counts(home: Path, project: Path, server: RedisServer) -> None:
    now = 1000.0
    async with pair(home, project, server=server, clock=lambda: now) as (one, two):
        record = await one.creator.create(CreateInstance(env_name="echo", ttl="10m"), LOCAL)
        instance = one.supervisor[record.id]
        await two.instances.renew(record.id, 7200)
        now += 601
        one.supervisor.check(record.id)
        await two.instances.get(record.id)  # behind the look that the check takes
        assert instance.is_live
        await two.instances.renew(record.id, 0.001)  # to end it earlier
        await one.upkeep.tend()
        now += 1
        one.supervisor.check(record.id)
        await instance.ended.wait()
        assert (await two.instances.get(record.id)).reason == "its time to live of 0.001 s was over"


async def test_calls_through_the_other_keep_an_instance_from_being_idle(
    home: Path, project: Path, server: RedisServer
) -> None:
    now = 1000.0
    async with pair(home, project, server=server, clock=lambda: now) as (one, two):
        asked = CreateInstance(env_name="echo", idle_timeout="5m")
        used, unused = await one.creator.create(asked, LOCAL), await one.creator.create(asked, LOCAL)
        instances = one.supervisor[used.id], one.supervisor[unused.id]
        await two.instances.address(used.id)  # as every call does
        now += 301
        for record in (used, unused):
            one.supervisor.check(record.id)
        await instances[1].ended.wait()
        assert instances[0].is_live
        server.command("DEL", f"{{aenv}}:lease:use {used.id}")  # five minutes later, by the clock of Redis
        now += 301
        one.supervisor.check(used.id)
        await instances[0].ended.wait()
        assert (await two.instances.get(used.id)).reason == "it was not used for 300 s"


# Gateways that end


def lapse(server: RedisServer, gateway: str, node: str) -> None:
    """Half a minute later, as far as the leases of a gateway are concerned."""
    server.command("DEL", f"{{aenv}}:lease:gateway {gateway}", f"{{aenv}}:lease:upkeep {node}")


async def test_exactly_one_of_the_gateways_leads_and_the_other_follows_when_it_stops(
    home: Path, project: Path, server: RedisServer
) -> None:
    async with composed(home, project, store=server.url) as two:
        async with composed(home, project, store=server.url) as one:
            record = await one.creator.create(ASKED, LOCAL)
            await asyncio.gather(one.upkeep.tend(), two.upkeep.tend())
            node = one.home.node
            assert two.home.node == node
            leader = server.command("GET", f"{{aenv}}:lease:upkeep {node}").decode()
            alive = {key.decode().rpartition(" ")[2] for key in server.command("KEYS", "*lease:gateway*")}
            assert len(alive) == 2
            assert leader in alive
            assert record.gateway in alive
        await two.upkeep.tend()
        (rest,) = alive - {record.gateway}
        assert server.command("GET", f"{{aenv}}:lease:upkeep {node}").decode() == rest


async def test_a_gateway_takes_over_what_a_killed_one_left(
    home: Path, project: Path, tmp_path: Path, server: RedisServer, pipe: Path
) -> None:
    slow = make_project(tmp_path, "slow", code=NEVER_READY.format(pipe=str(pipe)))
    program = Program(home, project, slow, store=server.url)
    async with Pool() as pool, contextlib.AsyncExitStack() as stack:
        gateway = await program.ready(pool, home)
        lasting, expiring, crashing = await asyncio.gather(*(gateway.create() for _ in range(3)))
        half_made = new_id()
        asking = asyncio.create_task(gateway.create("slow", id=half_made))
        await opened(pipe)
        other = await stack.enter_async_context(composed(home, project, slow, store=server.url))
        await other.instances.renew(expiring["id"], 0.001)
        victim = next(p for p in instance_processes(home) if p.environ()["AENV_INSTANCE_ID"] == crashing["id"])
        await program.end(signal.SIGKILL)
        victim.kill()
        await proc.ended(victim.pid)
        await asyncio.gather(asking, return_exceptions=True)

        async def shown(id: str) -> tuple[str, str | None]:
            record = await other.instances.get(id)
            return str(record.status), record.reason

        await other.upkeep.tend()
        assert other.supervisor == {}  # the lease of the dead one is not over yet
        address = await other.instances.address(lasting["id"])  # and all the time it can be called
        lapse(server, (await other.instances.get(lasting["id"])).gateway, other.home.node)
        await other.upkeep.tend()
        # The gateway may just be late; but what is over is over.
        assert lasting["id"] not in other.supervisor
        if late := other.supervisor.get(expiring["id"]):
            await late.ended.wait()
        repeated = asyncio.create_task(other.creator.create(CreateInstance(env_name="slow"), LOCAL, id=half_made))
        for begun in (True, False):  # it tries, and then waits for the one that was killed
            while (half_made in other.supervisor) is not begun:
                await asyncio.sleep(0)
        await other.upkeep.tend()
        assert await other.instances.address(lasting["id"]) == address
        instance = other.supervisor[lasting["id"]]
        assert await shown(expiring["id"]) == ("Terminated", "its time to live of 0.001 s was over")
        assert await shown(crashing["id"]) == ("Failed", "it ended while no gateway looked after it")
        await opened(pipe)  # it begins again, and is not asked for any more
        again = other.supervisor[half_made]
        repeated.cancel()
        await asyncio.wait({repeated})
        await again.ended.wait()
        (process,) = instance_processes(home)
        process.kill()  # it is looked after again: its end is noticed
        await instance.ended.wait()
        assert (await shown(lasting["id"]))[0] == "Failed"
        assert await other.shared.store.totals("instances") == [0]
        assert leftovers(home) == []


async def test_a_gateway_whose_lease_has_only_lapsed_keeps_its_instances(
    home: Path, project: Path, server: RedisServer
) -> None:
    async with pair(home, project, server=server) as (one, two):
        record = await one.creator.create(ASKED, LOCAL)
        await one.upkeep.resign()  # as when Redis was away for longer than leases last
        await two.upkeep.tend()
        await one.upkeep.tend()
        await two.upkeep.tend()
        assert (record.id in one.supervisor, two.supervisor) == (True, {})


async def test_records_that_are_over_are_forgotten_by_the_leader_alone(
    home: Path, project: Path, server: RedisServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with pair(home, project, server=server) as (one, two):
        record = await one.creator.create(ASKED, LOCAL)
        await one.instances.delete(record.id)
        leader, other = (one, two) if await leads(server, one) else (two, one)
        later = time.time() + 3700
        monkeypatch.setattr(time, "time", lambda: later)
        await other.upkeep.tend()
        assert (await other.instances.get(record.id)).status == "Terminated"
        await leader.upkeep.tend()
        with pytest.raises(NotFound):
            await other.instances.get(record.id)


async def leads(server: RedisServer, made: Parts) -> bool:
    """Whether it holds the lease, which it takes when nobody does."""
    await made.upkeep.tend()
    holder = server.command("GET", f"{{aenv}}:lease:upkeep {made.home.node}").decode()
    record = await made.creator.create(ASKED, LOCAL)
    await made.instances.delete(record.id)
    return bool(holder == record.gateway)
