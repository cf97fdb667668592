"""A home folder that an earlier version has used serves on with this one: nothing that its users rely on is lost.

The earlier version was asked, as `alice`: POST /bundles and PUT /bundles/{digest}; POST /env (kept@1.0.0,
private); POST /env/kept/1.0.0/release; POST /env-instance and DELETE of it; POST /env-service (steady).
"""

from __future__ import annotations

import contextlib
import json
import sqlite3
import tarfile
import tempfile
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from aenv.base import wire
from aenv.base.http1 import Pool
from aenv.base.models import CreateInstance
from aenv.control.gateway.gateway_app import gateway
from aenv.control.gateway.parts import Parts
from aenv.control.serving.accounts import LOCAL
from aenv.engines.folder import InstanceFolder
from aenv.engines.native import sidecars
from aenv.isolation.sandbox import probe
from tests.gateways import Gateway, gateway_settings, make_project, running_gateway
from tests.native import traces
from tests.wheels import make_wheel

HOMES = Path(__file__).parent / "homes"
# Of accounts that exist in these folders alone.
ROOT = "aenv-7b4kjy7fvfgaqxly-s2z5oeci5jcmxxnopro4rpywq5vcwvqs"
ALICE = "aenv-u3fdcddphzmemehc-poygtev6b4pmb22kmxdd5klusbidpey4"
DIGEST = "45768bea7b43eaa08ae826724395632ef85c7722416028d853d021a7da297667"


def unpacked(version: str, home: Path) -> Path:
    with tarfile.open(HOMES / f"{version}.tar.gz") as archive:
        archive.extractall(home, filter="data")
    return home


async def ask(gateway: Gateway, method: str, target: str, body: Any = None, token: str = ALICE) -> Any:
    headers = [("authorization", f"Bearer {token}")]
    status, reply = await gateway.ask(method, target, body, headers=headers)
    assert status == 200, (method, target, reply)
    return reply["data"]


async def check_all_is_there(home: Path) -> None:
    """Accounts, environments with their code, and services, as their users left them."""
    async with running_gateway(home) as gateway:
        assert (await gateway.ask("GET", "/env-instance/*/list"))[0] == 401
        users = {row["user"]: row["maxInstanceCount"] for row in await ask(gateway, "GET", "/token", token=ROOT)}
        assert users == {"root": None, "alice": 5}
        kept = await ask(gateway, "GET", "/env/kept/1.0.0")
        assert (kept["digest"], kept["owner"], kept["access"], kept["status"]) == (DIGEST, "alice", "private", 7)
        instance = await ask(gateway, "PUT", f"/env-instance/{wire.new_instance_id('kept')}", {"envName": "kept"})
        headers = [("authorization", f"Bearer {instance['token']}")]
        status, reply = await gateway.ask(
            "POST", f"/instances/{instance['id']}/tools/seen", {}, headers=headers, origin=gateway.data
        )
        assert (status, reply["data"]["structured"]["variables"]["A"]) == (200, "1")
        while (await ask(gateway, "GET", "/env-service/steady"))["available_replicas"] == 0:
            pass  # the gateway starts it on its own
        headers = [("authorization", f"Bearer {ALICE}")]
        status, reply = await gateway.ask("POST", "/services/steady/tools/seen", {}, headers=headers)
        assert (status, reply["data"]["structured"]["variables"]["C"]) == (200, "3")


@pytest.mark.parametrize("version", sorted(path.name.removesuffix(".tar.gz") for path in HOMES.glob("*.tar.gz")))
async def test_a_home_of_an_earlier_version_serves_on(version: str, tmp_path: Path) -> None:
    home = unpacked(version, tmp_path / "home")
    await check_all_is_there(home)
    await check_all_is_there(home)  # what was brought up to date stays good


# An instance that runs, with a sidecar and requirements

RUNNING = json.loads((HOMES / "running.json").read_text())
TWO = """
import tiny
from aenv import Sidecar, register_tool


@register_tool
def value() -> str:
    return tiny.value


@register_tool
async def run(command: str, sidecar: Sidecar) -> str:
    return (await sidecar.exec(command)).stdout
"""


@pytest.fixture
def short_home() -> Iterator[Path]:
    with tempfile.TemporaryDirectory(prefix="aenv-up-") as folder:  # a socket's path has at most 107 bytes
        yield Path(folder)


async def called(made: Parts, id: str, name: str, **arguments: str) -> str:
    async with Pool() as pool:
        origin = (await made.engine.running())[id].origin
        head = [("content-type", "application/json")]
        response = await pool.request(origin, "POST", f"/tools/{name}", head, json.dumps(arguments).encode())
        return str(json.loads(await response.read())["data"]["content"][0]["text"])


def as_before(home: Path, id: str) -> None:
    """Bring what is written of an instance into the layout that the earlier build left."""
    (home / "requirements").rename(home / RUNNING["requirements"])
    file = home / "run" / "instances" / id / "state.jsonl"
    lines = [json.loads(line.replace('"sidecar":', '"second":')) for line in file.read_text().splitlines()]
    known = {key for line in RUNNING["state.jsonl"] for key in line}
    lines = [{key: value for key, value in line.items() if key in known} for line in lines]
    file.write_text("".join(f"{json.dumps(line)}\n" for line in lines))
    assert {key for line in lines for key in line} >= {"pid", "start_time", "group", "second", "tools"}
    with contextlib.closing(sqlite3.connect(home / "aenv.db")) as db, db:
        [(text,)] = db.execute("SELECT value FROM documents WHERE kind = 'instances' AND key = ?", (id,))
        record = json.loads(text)
        record["layer"] = record["requirements"]
        record = {key: value for key, value in record.items() if key in RUNNING["record"]}
        assert record.keys() == RUNNING["record"].keys()
        changed = (json.dumps(record), id)
        db.execute("UPDATE documents SET value = ? WHERE kind = 'instances' AND key = ?", changed)


@pytest.mark.slow  # two gateways with the native engine
async def test_a_running_instance_of_an_earlier_build_is_taken_over_with_its_sidecar_and_requirements(
    tmp_path: Path, short_home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if missing := probe.missing_isolation():
        pytest.skip(missing)
    make_wheel(tmp_path / "wheels", "tiny", "1.0", "value = 'from tiny'")
    for name, value in (("FIND_LINKS", tmp_path / "wheels"), ("OFFLINE", "1"), ("CACHE_DIR", tmp_path / "cache")):
        monkeypatch.setenv(f"UV_{name}", str(value))
    home, project = short_home, make_project(tmp_path, "two", code=TWO, sidecar="host")
    (project / "requirements.txt").write_text("tiny")
    settings = gateway_settings(home, project, engine="native", keep_instances=True)
    async with gateway(settings) as (_, made):
        id = (await made.creator.create(CreateInstance(env_name="two"), LOCAL)).id
        assert await called(made, id, "run", command="echo kept > note; cat note") == "kept\n"
    [folder] = [path.parent for path in (home / "requirements").glob("*/tiny.py")]
    as_before(home, id)
    async with gateway(replace(settings, keep_instances=False)) as (_, made):
        assert made.supervisor[id].is_live
        assert made.supervisor[id].record.requirements == folder.name  # which keeps it from being pruned
        assert sidecars.of(InstanceFolder(home / "run" / "instances", id))  # so that it is ended with the instance
        assert await called(made, id, "run", command="cat note") == "kept\n"
        assert await called(made, id, "value") == "from tiny"
        other = (await made.creator.create(CreateInstance(env_name="two"), LOCAL)).id
        assert await called(made, other, "value") == "from tiny"
        assert (home / "requirements").is_dir()
        assert (home / "layers").samefile(home / "requirements")
        assert await called(made, id, "value") == "from tiny"
        await made.instances.delete(id)
    assert traces(home) == []
