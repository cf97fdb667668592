"""A gateway whose instances are containers: the walk of a client, services, images that `aenv build` has made."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from aenv import Environment
from aenv.base.wire import ServiceStatus
from tests import docker
from tests.command_line import aenv, environ
from tests.gateways import Gateway, make_project, running_gateway
from tests.service_gateway import KEEPS

pytestmark = [pytest.mark.slow, pytest.mark.cluster]


@pytest.fixture(scope="module")
def host() -> Iterator[str]:
    with docker.engine_with_base_image() as host:
        yield host


@pytest.fixture
def settings(host: str) -> dict[str, Any]:
    return {"engine": "docker", "docker_host": host, "base_image": docker.BASE_IMAGE}


async def test_the_whole_walk_of_a_client(settings: dict[str, Any], host: str, tmp_path: Path) -> None:
    project = make_project(tmp_path)
    async with running_gateway(tmp_path / "home", project, **settings) as gateway:
        url = f"http://127.0.0.1:{gateway.address.port}"
        async with Environment("echo@1.0.0", aenv_url=url, environment_variables={"COLOUR": "blue"}) as env:
            assert (await env.call_tool("echo", {"text": "hello"})).content[0]["text"] == "hello"
            assert await env.call_function("size", {"text": "four"}) == 4
            done = await env.exec("echo $COLOUR > it; cat it")
            assert (done.exit_code, done.stdout) == (0, "blue\n")
            assert await env.download("it") == b"blue\n"
            shown = await gateway.ask("GET", f"/env-instance/{env.instance_id}")
            assert shown[1]["data"]["engine"] == "docker"
            assert "no capabilities" in shown[1]["data"]["isolation"]
    assert docker.leftovers(host) == []


async def test_a_gateway_takes_over_the_instances_of_the_one_before(
    settings: dict[str, Any], host: str, tmp_path: Path
) -> None:
    project = make_project(tmp_path)
    async with running_gateway(tmp_path / "home", project, keep_instances=True, **settings) as gateway:
        id = (await gateway.create())["id"]
    assert docker.leftovers(host) == [f"container aenv-{id}"]
    async with running_gateway(tmp_path / "home", project, **settings) as gateway:
        assert await gateway.call(id, "echo", text="still here") == "still here"
        await gateway.ask("DELETE", f"/env-instance/{id}")
        assert docker.leftovers(host) == []
