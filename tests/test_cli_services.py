"""`aenv service`: what it asks of a gateway, and a service's whole life on a real one."""

from __future__ import annotations

import asyncio
import json
import subprocess
from pathlib import Path
from typing import Any

import pytest

from aenv.base.addresses import parse_url
from aenv.client.api import Api
from aenv.inside.runtime.messages import Reply, Request
from tests.command_line import aenv, environ
from tests.gateways import make_project, running_gateway
from tests.test_api import gateway as scripted
from tests.test_api import success

pytestmark = pytest.mark.slow  # each test runs several commands

SERVICE = {"id": "s-1", "status": "Running", "replicas": 2, "available_replicas": 1, "service_url": "http://x/s-1"}
DEPLOY: dict[str, Any] = {
    "cpu": "2",
    "memory": "4Gi",
    "memoryLimit": "8Gi",
    "environmentVariables": {"A": "config", "B": "config"},
    "replicas": 5,
    "port": 9000,
    "service": {"replicas": 3, "storageName": "kept", "storageSize": "20Gi"},
}


async def run(url: str, folder: Path, *words: str) -> subprocess.CompletedProcess[str]:
    env = environ(AENV_SYSTEM_URL=url, AENV_HOME=str(folder / "cli-home"))
    return await asyncio.to_thread(aenv, "service", *words, cwd=folder, env=env)


async def asked(folder: Path, *words: str) -> Any:
    """The body that a command sends."""
    bodies: list[Any] = []

    def answer(request: Request) -> Reply:
        if request.body:
            bodies.append(json.loads(request.body))
        return success(SERVICE)

    async with scripted(answer) as (url, _):
        done = await run(url, folder, *words)
    assert done.returncode == 0, done.stderr
    return bodies[0]


class TestWhatIsAsked:
    async def test_the_service_block_wins_over_the_flat_fields(self, tmp_path: Path) -> None:
        project = make_project(tmp_path, "notes", "2.0.0", **DEPLOY)
        assert await asked(project, "create") == {
            "envName": "notes@2.0.0",
            "replicas": 3,
            "port": 9000,
            "cpu_request": "2",
            "cpu_limit": "2",
            "memory_request": "4Gi",
            "memory_limit": "8Gi",
            "environment_variables": {"A": "config", "B": "config"},
        }

    async def test_options_win_over_the_file(self, tmp_path: Path) -> None:
        project = make_project(tmp_path, "notes", "2.0.0", **DEPLOY)
        options = ["-s", "mine", "-r", "1", "-p", "8000", "-e", "B=given", "-e", "C=new", "--enable-storage"]
        body = await asked(project, "create", *options, "--owner", "ada")
        assert (body["service_name"], body["replicas"], body["port"], body["owner"]) == ("mine", 1, 8000, "ada")
        assert body["environment_variables"] == {"A": "config", "B": "given", "C": "new"}
        assert (body["pvc_name"], body["storage_size"], body["mount_path"]) == ("kept", "20Gi", "/home/admin/data")

    async def test_another_environment_takes_nothing_from_the_file_here(self, tmp_path: Path) -> None:
        project = make_project(tmp_path, "notes", "2.0.0", **DEPLOY)
        assert await asked(project, "create", "other@1.0.0") == {"envName": "other@1.0.0"}

    async def test_an_update_sends_what_was_said(self, tmp_path: Path) -> None:
        options = ["-r", "2", "--image", "i:1", "--version", "1.1.0", "-e", "A=1"]
        assert await asked(tmp_path, "update", "s-1", *options) == {
            "replicas": 2,
            "image": "i:1",
            "version": "1.1.0",
            "environment_variables": {"A": "1"},
        }

    async def test_the_table_shows_how_many_of_the_replicas_serve(self, tmp_path: Path) -> None:
        env = {"name": "notes", "version": "2.0.0"}
        async with scripted(lambda request: success([{**SERVICE, "env": env}])) as (url, seen):
            header, row = (await run(url, tmp_path, "list", "-n", "notes")).stdout.splitlines()
        assert header.split() == ["ID", "Environment", "Version", "Owner", "Status", "Replicas", "URL", "Created"]
        assert row.split() == ["s-1", "notes", "2.0.0", "-", "Running", "1/2", "http://x/s-1"]
        assert seen.seen == ["GET /env-service/notes/list"]

    async def test_nothing_is_ended_where_nobody_can_be_asked(self, tmp_path: Path) -> None:
        methods: list[str] = []

        def answer(request: Request) -> Reply:
            methods.append(request.method)
            return success(SERVICE)

        async with scripted(answer) as (url, _):
            done = await run(url, tmp_path, "delete", "s-1")
        assert done.stderr.startswith("aenv: cannot ask for confirmation to end s-1")
        assert (done.returncode, set(methods)) == (1, {"GET"})

    @pytest.mark.parametrize(
        ("words", "code", "message"),
        [
            (["create"], 3, "aenv: no config.json in"),
            (["update", "s"], 2, "aenv: no change is given"),
            (["update", "s", "-r", "0"], 2, "aenv: invalid value for '-r' / '--replicas'"),
        ],
        ids=lambda value: " ".join(value) if isinstance(value, list) else "",
    )
    async def test_a_misuse_is_one_line(self, tmp_path: Path, words: list[str], code: int, message: str) -> None:
        done = await run("http://127.0.0.1:1", tmp_path, *words)
        assert done.stderr.splitlines()[0].startswith(message)
        assert (done.returncode, done.stdout) == (code, "")


async def test_a_service_lives_from_create_to_delete(tmp_path: Path) -> None:
    projects = [make_project(tmp_path, version=version) for version in ("1.0.0", "1.1.0")]
    async with running_gateway(tmp_path / "home", *projects) as running:

        async def service(*words: str) -> Any:
            done = await run(running.address.url, tmp_path, *words, "--json")
            assert done.returncode == 0, done.stderr
            return json.loads(done.stdout)

        made = await service("create", "echo@1.0.0", "-s", "echoes", "-e", "A=1")
        origin, target = parse_url(made["service_url"])
        async with Api(origin) as api:  # which tries again while the replica starts
            seen = await api.call("POST", f"{target}/tools/seen", {})
        assert seen["structured"]["variables"]["A"] == "1"
        assert [one["id"] for one in await service("list")] == [made["id"]]
        changed = await service("update", made["id"], "--version", "1.1.0", "-e", "B=2")
        assert (changed["env"]["version"], sorted(changed["environment_variables"])) == ("1.1.0", ["A", "B"])
        assert (await service("get", made["id"]))["id"] == made["id"]
        done = await run(running.address.url, tmp_path, "delete", made["id"], "-y")
        assert (done.returncode, done.stderr) == (0, f"ended {made['id']}\n")
        assert await service("list") == []
