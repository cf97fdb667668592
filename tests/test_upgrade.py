"""A home folder that an earlier version has used serves on with this one: nothing that its users rely on is lost.

The earlier version was asked, as `alice`: POST /bundles and PUT /bundles/{digest}; POST /env (kept@1.0.0,
private); POST /env/kept/1.0.0/release; POST /env-instance and DELETE of it; POST /env-service (steady).
"""

from __future__ import annotations

import tarfile
from pathlib import Path
from typing import Any

import pytest

from aenv.base import wire
from tests.gateways import Gateway, running_gateway

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
