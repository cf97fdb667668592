"""A Redis that evicts keys cannot hold records: it is refused, and what it has lost stops no gateway."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest

from aenv.base.errors import Unavailable
from aenv.control.stores.base import Put
from aenv.control.stores.redis import RedisStore
from tests.gateways import make_project, running_gateway
from tests.redis_server import RedisServer, redis_server

pytestmark = pytest.mark.slow  # each test has a redis-server of its own


@pytest.fixture
def server(tmp_path: Path) -> Iterator[RedisServer]:
    (tmp_path / "redis").mkdir()
    with redis_server(tmp_path / "redis") as server:
        yield server


@pytest.fixture
async def store(server: RedisServer) -> AsyncIterator[RedisStore]:
    async with RedisStore(server.url) as store:
        yield store


def warnings(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [record.message for record in caplog.records if record.levelname == "WARNING"]


async def test_a_server_that_may_evict_records_is_refused_until_that_is_changed(
    server: RedisServer, store: RedisStore
) -> None:
    server.command("CONFIG", "SET", "maxmemory", "100mb")
    server.command("CONFIG", "SET", "maxmemory-policy", "allkeys-lru")
    with pytest.raises(Unavailable, match=r"may evict records .*allkeys-lru.*noeviction"):
        await store.write(Put("thing", "a", {}))
    server.command("CONFIG", "SET", "maxmemory-policy", "noeviction")
    await store.write(Put("thing", "a", {}))


@pytest.mark.parametrize(("maxmemory", "policy"), [("0", "allkeys-lru"), ("100mb", "volatile-ttl")])
async def test_a_server_that_cannot_evict_records_as_it_is_set_now_is_warned_about_once(
    server: RedisServer, store: RedisStore, caplog: pytest.LogCaptureFixture, maxmemory: str, policy: str
) -> None:
    server.command("CONFIG", "SET", "maxmemory", maxmemory)
    server.command("CONFIG", "SET", "maxmemory-policy", policy)
    await store.get("thing", "a")
    await store.get("thing", "a")
    assert warnings(caplog) == [f"redis has maxmemory-policy {policy}: set it to noeviction"]


async def test_records_that_were_lost_are_left_out_of_lists_with_a_warning(
    server: RedisServer, store: RedisStore, caplog: pytest.LogCaptureFixture
) -> None:
    for number in range(3):
        await store.write(Put("thing", f"{number}", {}, terms={"all": f"{number}", "odd": f"{number}"}))
    for key in ("documents", "marks"):
        server.command("DEL", f"{{aenv}}:{key}:thing")  # as an eviction does
    await store.write(Put("thing", "3", {"n": 3}, terms={"all": "3"}))
    for terms in (("all",), ("odd", "all"), ("all",)):
        page = await store.page("thing", *terms, limit=10)
        assert [(found.key, found.value) for found in page.documents] == [("3", {"n": 3})]
    [warning] = warnings(caplog)
    assert warning.startswith("redis has lost records of kind 'thing' that it lists, such as '0'")


async def test_a_gateway_starts_on_a_server_that_has_lost_records(server: RedisServer, tmp_path: Path) -> None:
    home, project = tmp_path / "home", make_project(tmp_path)
    async with running_gateway(home, project, store=server.url) as gateway:
        assert (await gateway.ask("POST", "/env-service", {"envName": "echo", "service_name": "steady"}))[0] == 200
    server.command("DEL", "{aenv}:documents:services")
    async with running_gateway(home, project, store=server.url) as gateway:
        assert (await gateway.ask("GET", "/ready"))[0] == 200
        assert (await gateway.create())["status"] == "Running"
