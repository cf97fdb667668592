"""Gateways with homes of their own share one engine: what runs there outlives the gateway that made it."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from pathlib import Path

import pytest

from aenv.base.models import CreateInstance
from aenv.control.instances import strays, upkeep
from aenv.control.serving.accounts import LOCAL
from aenv.engines.base import InstanceSpec
from aenv.engines.process import ProcessEngine
from tests.gateways import composed, instance_processes, make_project, new_id
from tests.redis_server import RedisServer, redis_server

pytestmark = pytest.mark.slow  # several gateways at a time

ASKED = CreateInstance(env_name="echo")


class SharedEngine(ProcessEngine):
    """One home for all gateways, as a cluster is."""

    node = "shared"
    is_only = False

    async def join(self, installation: str, place: str) -> bool:
        return self.is_only

    def present(self) -> Collection[str]:
        return [path.name for path in (self.home / "run" / "instances").glob("*")]

    def __init__(self, home: Path) -> None:
        super().__init__(home)
        self.home = home


@pytest.fixture
def server(tmp_path: Path) -> Iterator[RedisServer]:
    folder = tmp_path / "redis"
    folder.mkdir()
    with redis_server(folder) as server:
        yield server


@pytest.fixture(autouse=True)
def rounds_only_when_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(upkeep, "_PERIOD", 3600.0)


async def test_a_gateway_with_another_home_finds_takes_over_and_ends_what_a_silent_one_made(
    tmp_path: Path, server: RedisServer
) -> None:
    engine, project = SharedEngine(tmp_path / "cluster"), make_project(tmp_path)
    async with (
        composed(tmp_path / "one", project, engine=engine, store=server.url) as one,
        composed(tmp_path / "two", project, engine=engine, store=server.url) as two,
    ):
        record = await one.creator.create(ASKED, LOCAL)
        assert (one.home.node, two.home.node, record.node) == ("shared", "shared", "shared")
        assert await two.instances.address(record.id) == await one.instances.address(record.id)
        assert (await two.instances.running(record.id)).id == record.id
        server.command("DEL", f"{{aenv}}:lease:gateway {record.gateway}", "{aenv}:lease:upkeep shared")
        await two.upkeep.tend()
        await two.upkeep.tend()
        assert record.id in two.supervisor
        await two.instances.delete(record.id)
    assert instance_processes(tmp_path / "cluster") == []


async def test_an_instance_without_a_record_is_ended_once_it_was_seen_for_long_enough(
    tmp_path: Path, server: RedisServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    engine, project = SharedEngine(tmp_path / "cluster"), make_project(tmp_path)
    async with composed(tmp_path / "one", project, engine=engine, store=server.url) as one:
        kept, stray = await one.creator.create(ASKED, LOCAL), new_id()
        await engine.create(InstanceSpec(stray, "echo@1.0.0", project))
        await one.upkeep.tend()
        assert {*await engine.running()} == {kept.id, stray}  # its gateway may be about to record it
        monkeypatch.setattr(strays, "PATIENCE", 0.0)
        await one.upkeep.tend()
        assert {*await engine.running()} == {kept.id}


async def test_a_gateway_takes_over_at_its_start_only_where_no_other_one_lives(
    tmp_path: Path, server: RedisServer
) -> None:
    engine, project = SharedEngine(tmp_path / "cluster"), make_project(tmp_path)
    settings = {"engine": engine, "store": server.url, "keep_instances": True}
    async with composed(tmp_path / "one", project, **settings) as one:
        record = await one.creator.create(ASKED, LOCAL)
    async with composed(tmp_path / "two", project, **settings) as two:
        assert record.id not in two.supervisor
    engine.is_only = True
    async with composed(tmp_path / "three", project, **{**settings, "keep_instances": False}) as three:
        assert record.id in three.supervisor
    assert instance_processes(tmp_path / "cluster") == []
