"""The http engine, with a small server of the published contract."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator, Iterator
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest

from aenv.base.errors import StartFailed, Unavailable, Unsupported
from aenv.base.http1 import Pool
from aenv.engines import http_engine
from aenv.engines.base import InstanceSpec, ModelEndpoint, ResourceLimits
from aenv.engines.http_engine import HttpEngine
from conformance.engine import BROKEN, Projects, call
from tests.gateways import make_project, running_gateway
from tests.standard_engine import Instances, standard_engine

pytestmark = pytest.mark.slow  # its instances are processes


@pytest.fixture
def server() -> Iterator[tuple[str, Instances]]:
    with standard_engine() as server:
        yield server


@pytest.fixture
async def engine(server: tuple[str, Instances], tmp_path: Path) -> AsyncIterator[HttpEngine]:
    async with HttpEngine(tmp_path / "home", server[0]) as engine:
        yield engine


@pytest.fixture
def projects(tmp_path: Path) -> Projects:
    return Projects(tmp_path / "projects")


def image_of(spec: InstanceSpec, **changes: Any) -> InstanceSpec:
    return InstanceSpec(**{**vars(spec), "image": str(spec.project), **changes})


async def test_an_instance_is_made_called_found_again_and_ended(
    engine: HttpEngine, server: tuple[str, Instances], projects: Projects, tmp_path: Path
) -> None:
    asked = image_of(
        projects.spec(arguments=("a", "b c")),
        environment_variables={"COLOUR": "blue"},
        limits=ResourceLimits(cpus=0.5, memory_bytes=1 << 30, pids=64),
        call_timeout=90.0,
        ttl=60.0,
    )
    address = await engine.create(asked)
    assert {tool["name"] for tool in address.tools} == {"seen", "note", "start_others", "die"}
    assert address.not_enforced == tuple(
        f"{what}: the engine's contract has no word for it" for what in ("pids", "network")
    )
    async with Pool() as pool:
        seen = await call(pool, address, "seen")
    assert (seen["arguments"], seen["variables"]["COLOUR"]) == (["a", "b c"], "blue")
    own = [seen["variables"][f"AENV_{name}"] for name in ("INSTANCE_ID", "ENVIRONMENT", "CALL_TIMEOUT")]
    assert own == [asked.id, "conformance@1.0", "90"]
    (body,) = server[1].bodies
    assert (body["name"], body["version"]) == ("conformance", "1.0")
    assert body["deployConfig"] == body["deploy_config"]
    assert [body["deployConfig"][key] for key in ("cpu", "memory", "ttl")] == ["500m", str(1 << 30), "60s"]
    assert (body["id"], body["status"], body["tags"]) == ("conformance-1.0", 6, [])
    for key in (
        "created_at",
        "updated_at",
        "createdAt",
        "updatedAt",
    ):  # as servers of the published kind parse them
        assert datetime.fromisoformat(body[key]).tzinfo
    async with HttpEngine(tmp_path / "home", server[0]) as again:
        assert await again.running() == {asked.id: address}
        await again.destroy(asked.id)
        await again.destroy(asked.id)
    assert (await engine.running(), await engine.leftovers(), server[1].shown) == ({}, [], {})


async def test_an_instance_that_fails_is_told_with_the_servers_words_and_leaves_nothing(
    engine: HttpEngine, server: tuple[str, Instances], projects: Projects
) -> None:
    with pytest.raises(StartFailed, match=r"(?s)failed: .*the database is missing"):
        await engine.create(image_of(projects.spec(BROKEN)))
    server[1].refusal = "no room"
    with pytest.raises(StartFailed, match=r"refused with status 429: no room"):
        await engine.create(image_of(projects.spec()))
    assert (await engine.leftovers(), server[1].shown) == ([], {})


async def test_a_cancelled_create_leaves_nothing(
    engine: HttpEngine, server: tuple[str, Instances], projects: Projects
) -> None:
    spec, _ = projects.never_ready()
    variables = {"AENV_STORAGE": str(spec.storage)}
    asked = image_of(spec, storage=None, environment_variables=variables)
    creation = asyncio.create_task(engine.create(asked))
    while not server[1].shown:
        await asyncio.sleep(0.01)
    creation.cancel()
    with pytest.raises(asyncio.CancelledError):
        await creation
    assert (await engine.leftovers(), server[1].shown) == ([], {})


async def test_what_the_contract_has_no_words_for_is_refused(engine: HttpEngine, projects: Projects) -> None:
    with pytest.raises(Unsupported, match=r"images only"):
        await engine.create(projects.spec())
    with pytest.raises(Unsupported, match=r"a model relay, storage"):
        await engine.create(image_of(projects.spec(), model=ModelEndpoint("http://m"), storage=Path("/s")))


async def test_a_server_that_does_not_answer_is_one_clear_line(tmp_path: Path) -> None:
    with pytest.raises(Unavailable, match=r"no engine answers at http://127.0.0.1:9: .*; check --engine-url"):
        async with HttpEngine(tmp_path, "http://127.0.0.1:9"):
            pass


async def test_a_server_that_accepts_and_says_nothing_is_given_up(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(http_engine, "_REPLY_WITHIN", 0.05)
    with socket.create_server(("127.0.0.1", 0)) as silent:
        url = f"http://127.0.0.1:{silent.getsockname()[1]}"
        with pytest.raises(Unavailable, match=rf"the engine at {url} gave no reply within 0.05 s"):
            async with HttpEngine(tmp_path, url):
                pass


async def test_a_gateway_serves_instances_of_the_server(server: tuple[str, Instances], tmp_path: Path) -> None:
    project = make_project(tmp_path)
    config = project / "config.json"
    image = f'"artifacts": [{{"id": "", "type": "image", "content": "{project}"}}], "deployConfig"'
    config.write_text(config.read_text().replace('"deployConfig"', image, 1))
    async with running_gateway(tmp_path / "home", project, engine="http", engine_url=server[0]) as gateway:
        data = await gateway.create()
        assert data["engine"] == "http"
        assert await gateway.call(data["id"], "echo", text="from afar") == "from afar"
    assert server[1].shown == {}
