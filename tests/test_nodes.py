"""Several nodes on one Redis: what becomes of the instances of one that is silent, and when it returns."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from aenv.base.errors import TooManyRequests, Unavailable
from aenv.base.models import CreateInstance
from aenv.control.gateway.parts import Parts
from aenv.control.instances import upkeep
from aenv.control.serving.accounts import LOCAL
from tests.gateways import composed, instance_processes, make_project
from tests.redis_server import RedisServer, redis_server

pytestmark = pytest.mark.slow  # several gateways at a time

ASKED = CreateInstance(env_name="echo")


@pytest.fixture
def server(tmp_path: Path) -> Iterator[RedisServer]:
    folder = tmp_path / "redis"
    folder.mkdir()
    with redis_server(folder) as server:
        yield server


@asynccontextmanager
async def two_nodes(
    folder: Path, server: RedisServer, monkeypatch: pytest.MonkeyPatch
) -> AsyncIterator[tuple[Parts, Parts]]:
    """Room for one instance in all. Their upkeep is done when a test says so, in place of time."""
    monkeypatch.setattr(upkeep, "_PERIOD", 3600.0)
    project, settings = make_project(folder), {"store": server.url, "max_instances": 1}
    async with (
        composed(folder / "one", project, **settings) as one,
        composed(folder / "two", project, **settings) as two,
    ):
        await two.upkeep.tend()
        yield one, two


def be_silent(server: RedisServer, made: Parts) -> None:
    """Its leases are over, that for looking after all nodes too."""
    server.command("DEL", f"{{aenv}}:lease:node {made.home.node}", "{aenv}:lease:upkeep of nodes")


async def test_instances_of_a_silent_node_have_failed_and_take_no_room_and_it_ends_them_when_it_returns(
    tmp_path: Path, server: RedisServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with two_nodes(tmp_path, server, monkeypatch) as (one, two):
        lost = await one.creator.create(ASKED, LOCAL)
        with pytest.raises(Unavailable, match="another node"):
            await two.instances.delete(lost.id)
        with pytest.raises(TooManyRequests):
            await two.creator.create(ASKED, LOCAL)
        be_silent(server, one)
        await two.upkeep.tend()
        assert (await two.instances.get(lost.id)).is_live  # it may just be late
        await two.upkeep.tend()
        record = await two.instances.get(lost.id)
        assert (record.status, record.reason) == (
            "Failed",
            f"its node {one.home.node!r} gave no sign of life for 30 s",
        )
        await two.instances.delete(lost.id)
        mine = await two.creator.create(ASKED, LOCAL)

        instance = one.supervisor[lost.id]
        assert len(instance_processes(tmp_path / "one")) == 1
        await one.upkeep.tend()
        await instance.ended.wait()
        assert instance_processes(tmp_path / "one") == []
        assert (await one.instances.get(mine.id)).is_live
        assert (await two.instances.get(lost.id)).status == "Failed"


async def test_a_node_that_was_late_once_keeps_its_instances(
    tmp_path: Path, server: RedisServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with two_nodes(tmp_path, server, monkeypatch) as (one, two):
        record = await one.creator.create(ASKED, LOCAL)
        be_silent(server, one)
        await two.upkeep.tend()
        await one.upkeep.tend()
        await two.upkeep.tend()
        await two.upkeep.tend()
        assert (await two.instances.get(record.id)).is_live
