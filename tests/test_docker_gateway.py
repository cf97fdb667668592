"""A gateway whose instances are containers: the walk of a client, services, images that `aenv build` has made."""

from __future__ import annotations

import asyncio
import json
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from aenv import Environment
from aenv.base.http1 import Pool
from tests import docker
from tests.command_line import aenv, environ
from tests.gateways import Gateway, make_project, running_gateway
from tests.service_gateway import make_project as make_notes
from tests.test_gateway_process import Program

pytestmark = [pytest.mark.slow, pytest.mark.cluster, pytest.mark.timeout(300)]

DOCKERFILE = f"""\
FROM {docker.BASE_IMAGE}
COPY . /app
# The base image has the wheel already; this is what the Dockerfile of 'aenv init' does with pip.
COPY .aenv/*.whl /tmp/
RUN python3 -m zipfile -e /tmp/*.whl /app/site && echo built > /app/mark
ENV PYTHONPATH=/app/site COLOUR=image SHADE=image TINT=image
CMD ["python3", "-m", "aenv.main", "/app"]
"""


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
            await env.download("it", tmp_path / "it")
            assert (tmp_path / "it").read_text() == "blue\n"
            _, shown = await gateway.ask("GET", f"/env-instance/{env.instance_id}")
            assert (shown["data"]["engine"], "no capabilities" in shown["data"]["isolation"]) == ("docker", True)
    assert docker.leftovers(host) == []


async def test_a_gateway_takes_over_the_instances_of_one_that_was_killed(
    settings: dict[str, Any], host: str, tmp_path: Path
) -> None:
    project = make_project(tmp_path)
    program = Program(tmp_path / "home", project, **settings)
    async with Pool() as pool:
        gateway = await program.ready(pool, tmp_path / "home")
        id = (await gateway.create(owner="ada"))["id"]
        labels = docker.ask(host, "inspect", "--format", "{{json .Config.Labels}}", f"aenv-{id}")
        assert json.loads(labels)["business/aenv-owner"] == "ada", (
            "as published clients say it, who have no account"
        )
    await program.end(signal.SIGKILL)
    async with running_gateway(tmp_path / "home", project, **settings) as gateway:
        assert await gateway.call(id, "echo", text="still there") == "still there"
        docker.ask(host, "kill", f"aenv-{id}")
        while (shown := (await gateway.ask("GET", f"/env-instance/{id}"))[1]["data"])["status"] == "Running":
            await asyncio.sleep(0.05)  # a client asks again
        assert shown["reason"] == "its process was killed by signal 9"
    assert docker.leftovers(host) == []


async def test_an_image_that_was_built_starts_our_runtime_and_variables_come_in_their_order(
    settings: dict[str, Any], host: str, tmp_path: Path
) -> None:
    project = make_project(tmp_path, environmentVariables={"COLOUR": "config", "SHADE": "config"})
    (project / "Dockerfile").write_text(DOCKERFILE)
    built = aenv(
        "build", "-w", project, "--image", env=environ(AENV_HOME=str(tmp_path / "home"), DOCKER_HOST=host)
    )
    assert built.returncode == 0, built.stderr
    (project / "src" / "environment.py").write_text("raise RuntimeError('the image is not used')")
    async with running_gateway(tmp_path / "home", project, **settings) as gateway:
        data = await gateway.create(arguments=["--x", "y z"], environment_variables={"COLOUR": "instance"})
        seen = await gateway.call(data["id"], "seen")
        assert seen["arguments"] == ["--x", "y z"]
        assert [seen["variables"][name] for name in ("COLOUR", "SHADE", "TINT")] == ["instance", "config", "image"]
        assert docker.ask(host, "exec", f"aenv-{data['id']}", "cat", "/app/mark") == "built\n"
    assert docker.leftovers(host) == []


async def until_running(gateway: Gateway, name: str) -> dict[str, Any]:
    while True:
        status, reply = await gateway.ask("GET", f"/env-service/{name}")
        assert status == 200, reply
        if reply["data"]["status"] not in ("Creating", "Updating"):
            data: dict[str, Any] = reply["data"]
            return data
        await asyncio.sleep(0.05)  # a client asks again, and not a thousand times a second


async def say(gateway: Gateway, tool: str, **arguments: Any) -> Any:
    status, reply = await gateway.ask("POST", f"/services/notes/tools/{tool}", arguments, origin=gateway.data)
    assert status == 200, reply
    structured = reply["data"].get("structured")
    return reply["data"]["content"][0]["text"] if structured is None else structured


async def test_a_service_keeps_its_storage_over_an_update_until_it_is_deleted_with_it(
    settings: dict[str, Any], host: str, tmp_path: Path
) -> None:
    projects = [make_notes(tmp_path, "1.0.0"), make_notes(tmp_path, "2.0.0")]
    asked = {"envName": "notes@1.0.0", "service_name": "notes", "storage_size": "1Gi", "mount_path": "/notes"}
    async with running_gateway(tmp_path / "home", *projects, **settings) as gateway:
        refused, reply = await gateway.ask("POST", "/env-service", {**asked, "replicas": 2})
        assert (refused, "replica" in reply["message"]) == (400, True)
        status, reply = await gateway.ask("POST", "/env-service", asked)
        assert status == 200, reply
        assert (await until_running(gateway, "notes"))["status"] == "Running"
        assert (await say(gateway, "keep", text="for long"))["size"] == 8
        status, reply = await gateway.ask("PUT", "/env-service/notes", {"version": "2.0.0"})
        assert status == 200, reply
        while (await say_when_there(gateway, "who"))["version"] != "2.0.0":
            await until_running(gateway, "notes")
        assert await say(gateway, "kept") == "for long"
        (replica,) = docker.ask(host, "ps", "--format", "{{.Names}}").splitlines()
        mounts = json.loads(docker.ask(host, "inspect", replica))[0]["Mounts"]
        assert [mount["RW"] for mount in mounts if mount["Destination"] == "/notes"] == [True]
        assert (await gateway.ask("DELETE", "/env-service/notes"))[0] == 200
        assert (await gateway.ask("POST", "/env-service", {**asked, "envName": "notes@2.0.0"}))[0] == 200
        await until_running(gateway, "notes")
        assert await say(gateway, "kept") == "for long"
        assert (await gateway.ask("DELETE", "/env-service/notes?deleteStorage=true"))[0] == 200
        assert (await gateway.ask("POST", "/env-service", asked))[0] == 200
        await until_running(gateway, "notes")
        status, reply = await gateway.ask("POST", "/services/notes/tools/kept", {}, origin=gateway.data)
        assert "No such file" in str(reply)
        assert (await gateway.ask("DELETE", "/env-service/notes?deleteStorage=true"))[0] == 200
    assert docker.leftovers(host) == []


async def say_when_there(gateway: Gateway, tool: str) -> Any:
    """The same while the only replica is replaced, when there is a moment without one."""
    status, reply = await gateway.ask("POST", f"/services/notes/tools/{tool}", {}, origin=gateway.data)
    return reply["data"]["structured"] if status == 200 else {"version": ""}


async def test_replicas_of_a_service_are_replaced_one_by_one_and_show_what_they_print(
    settings: dict[str, Any], host: str, tmp_path: Path
) -> None:
    projects = [make_notes(tmp_path, "1.0.0"), make_notes(tmp_path, "2.0.0")]
    with (projects[1] / "src" / "environment.py").open("a") as code:
        code.write('\nprint("notes were loaded", flush=True)\n')
    asked = {"envName": "notes@1.0.0", "service_name": "notes", "replicas": 2}
    async with running_gateway(tmp_path / "home", *projects, **settings) as gateway:
        assert (await gateway.ask("POST", "/env-service", asked))[0] == 200
        await until_running(gateway, "notes")
        assert (await gateway.ask("PUT", "/env-service/notes", {"version": "2.0.0"}))[0] == 200
        seen = []
        while (await gateway.ask("GET", "/env-service/notes"))[1]["data"]["status"] != "Running":
            seen.append((await say(gateway, "who"))["version"])  # fails in a moment without a replica
            await asyncio.sleep(0.05)
        assert (set(seen) <= {"1.0.0", "2.0.0"}, (await say(gateway, "who"))["version"]) == (True, "2.0.0")
        while len(replicas := (await gateway.ask("GET", "/env-service/notes"))[1]["data"]["instances"]) > 2:
            await asyncio.sleep(0.05)  # an old one finishes its requests
        names = docker.ask(host, "ps", "--format", "{{.Names}}").split()
        assert sorted(names) == sorted(f"aenv-{id}" for id in replicas)
        log = await gateway.pool.request(gateway.control, "GET", f"/env-service/notes/logs?replica={replicas[1]}")
        assert b"notes were loaded" in await log.read()
        assert (await gateway.ask("DELETE", "/env-service/notes"))[0] == 200
    assert docker.leftovers(host) == []
