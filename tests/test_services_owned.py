"""Services and whose they are: storage that outlives them, accounts that are kept apart."""

from __future__ import annotations

import asyncio
import stat
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from aenv.control.services import storage
from aenv.control.serving.accounts import Role
from conformance.engine import opened
from tests.service_gateway import (
    BROKEN,
    ServiceGateway,
    make_project,
    open_for_both,
    pipes,
    service_gateway,
)

pytestmark = pytest.mark.slow


@pytest.fixture
async def gateway(tmp_path: Path) -> AsyncIterator[ServiceGateway]:
    projects = [
        make_project(tmp_path, "1.0.0"),
        make_project(tmp_path, "1.1.0"),
        make_project(tmp_path, "2.0.0-broken", BROKEN),
        make_project(tmp_path, name="other"),
    ]
    async with service_gateway(tmp_path / "home", *projects) as gateway:
        yield gateway


# Storage


async def test_storage_outlives_the_service_unless_told(gateway: ServiceGateway) -> None:
    made = await gateway.create(service_name="a", storage_size="1Gi")
    assert made["pvc_name"] == "notes"
    await gateway.call("a", "keep", text="for later")
    await gateway.ask("DELETE", "/env-service/a")
    await gateway.create(service_name="b", storage_size="1Gi", mount_path="/home/admin/data")
    assert await gateway.call("b", "kept") == "for later"
    await gateway.ask("DELETE", "/env-service/b?deleteStorage=true")
    await gateway.create(service_name="c", storage_size="1Gi")
    _, reply = await gateway.ask("POST", "/services/c/tools/kept", {})
    assert reply["data"]["is_error"] is True


async def test_storage_belongs_to_one_service_at_a_time(gateway: ServiceGateway) -> None:
    await gateway.create(ready=False, service_name="a", pvc_name="shared")
    status, reply = await gateway.ask("POST", "/env-service", {"envName": "other", "pvc_name": "shared"})
    assert (status, reply["message"]) == (409, "storage 'shared' is in use by service 'a'")
    assert (await gateway.ask("PUT", "/env-service/a", {"replicas": 2}))[0] == 400
    await gateway.ask("DELETE", "/env-service/a")
    assert (await gateway.ask("POST", "/env-service", {"envName": "other", "pvc_name": "shared"}))[0] == 200


async def test_two_versions_never_write_to_the_same_storage(gateway: ServiceGateway, tmp_path: Path) -> None:
    id = (await gateway.create(envName="notes@1.0.0", storage_size="1Gi"))["id"]
    await gateway.call(id, "keep", text="from 1.0.0")
    pipe, go = pipes(tmp_path)
    calling = asyncio.create_task(gateway.call(id, "begin", pipe=str(pipe), go=str(go)))
    await opened(pipe)
    await gateway.ask("PUT", f"/env-service/{id}", {"version": "1.1.0"})
    record = await gateway.store.until(id, lambda record: bool(record and record.status == "Creating"))
    # It still finishes its call, and nobody takes its place.
    assert record
    assert list(record.instances.values()) == [1]
    with open_for_both(go):
        await calling
    await gateway.until(id, good=2)
    assert await gateway.call(id, "kept") == "from 1.0.0"


async def test_with_storage_the_old_version_comes_back_when_the_new_one_fails(gateway: ServiceGateway) -> None:
    id = (await gateway.create(envName="notes@1.0.0", storage_size="1Gi"))["id"]
    await gateway.ask("PUT", f"/env-service/{id}", {"version": "2.0.0-broken"})
    record = await gateway.until(id, "Updating", generation=2, available=1)
    assert "this version is broken" in (record.reason or "")
    assert (await gateway.call(id, "who"))["version"] == "1.0.0"


@pytest.mark.parametrize("owner", ["..", ".", "a/b", "/", "ü" * 128, "=", "%2E", None])
def test_no_owner_leads_out_of_the_storage(tmp_path: Path, owner: str | None) -> None:
    path = storage.folder(tmp_path, owner, "data")
    storage.make(path)
    assert path.resolve().parent.parent == (tmp_path / "storage").resolve()
    assert stat.S_IMODE(path.stat().st_mode) == stat.S_IMODE(path.parent.stat().st_mode) == 0o700


@given(st.lists(st.text(min_size=1, max_size=128).filter(lambda text: text.isprintable()), unique=True))
def test_no_two_owners_share_a_folder(owners: list[str]) -> None:
    folders = {storage.folder(Path("/home"), owner, "data") for owner in [*owners, None]}
    assert len(folders) == len(owners) + 1


# Accounts


async def test_a_user_sees_and_touches_only_their_own_services(gateway: ServiceGateway) -> None:
    tokens = {}
    for user, role in (("ann", Role.USER), ("bob", Role.USER), ("eve", Role.ADMIN), ("ann", Role.VIEWER)):
        tokens[user, role] = (await gateway.accounts.create(user, role))[1]
    ann, bob, eve = tokens["ann", Role.USER], tokens["bob", Role.USER], tokens["eve", Role.ADMIN]
    viewer = tokens["ann", Role.VIEWER]
    made = await gateway.create(token=ann, ready=False, service_name="hers", owner="bob")
    assert made["owner"] == "ann"
    for method, body in (("GET", None), ("PUT", {"replicas": 2}), ("DELETE", None)):
        assert (await gateway.ask(method, "/env-service/hers", body, bob))[0] == 404
        assert (await gateway.ask(method, "/env-service/hers", body))[0] == 401
    seen = {
        name: [
            service["id"] for service in (await gateway.ask("GET", "/env-service/*/list", None, token))[1]["data"]
        ]
        for name, token in (("ann", ann), ("bob", bob), ("eve", eve), ("viewer", viewer))
    }
    assert seen == {"ann": ["hers"], "bob": [], "eve": ["hers"], "viewer": ["hers"]}
    assert (await gateway.ask("GET", "/env-service/hers", None, viewer))[0] == 200
    assert (await gateway.ask("DELETE", "/env-service/hers", None, viewer))[0] == 403
    assert (await gateway.ask("POST", "/env-service", {"envName": "notes"}, viewer))[0] == 403
    assert (await gateway.ask("POST", "/env-service", {"envName": "notes", "service_name": "hers"}, bob))[0] == 409
    assert gateway.services.owner("hers") == "ann"
    assert (await gateway.ask("DELETE", "/env-service/hers", None, eve))[0] == 200


async def test_users_of_the_same_storage_name_have_folders_of_their_own(gateway: ServiceGateway) -> None:
    for user in ("ann", "bob"):
        _, token = await gateway.accounts.create(user)
        await gateway.create(token=token, service_name=user, pvc_name="data")
        await gateway.call(user, "keep", text=user)
    assert [await gateway.call(user, "kept") for user in ("ann", "bob")] == ["ann", "bob"]


async def test_replicas_count_for_the_quota_of_an_account(gateway: ServiceGateway) -> None:
    _, token = await gateway.accounts.create("ann", max_instances=3)
    made = await gateway.create(token=token, ready=False, replicas=2)
    refused = await gateway.ask("POST", "/env-service", {"envName": "notes", "replicas": 2}, token)
    assert refused[0] == 429
    assert (await gateway.ask("PUT", f"/env-service/{made['id']}", {"replicas": 4}, token))[0] == 429
    assert (await gateway.ask("PUT", f"/env-service/{made['id']}", {"replicas": 3}, token))[0] == 200
    await gateway.ask("DELETE", f"/env-service/{made['id']}", None, token)
    assert (await gateway.ask("POST", "/env-service", {"envName": "notes", "replicas": 3}, token))[0] == 200
