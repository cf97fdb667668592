"""Who may see and change which environment: nobody else's private one shows anywhere."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from aenv.base import refs
from aenv.base.errors import NotFound
from aenv.control.serving.accounts import ANONYMOUS, Role
from tests.hubs import RunningHub, running_hub


@dataclass
class People:
    """Tokens."""

    alice: str
    bob: str
    viewer: str
    admin: str
    nobody: str = ""


@pytest.fixture
async def hub(tmp_path: Path) -> AsyncIterator[RunningHub]:
    async with running_hub(tmp_path / "home") as running:
        yield running


@pytest.fixture
async def people(hub: RunningHub) -> People:
    return People(
        alice=await hub.user("alice"),
        bob=await hub.user("bob"),
        viewer=await hub.user("viewer", Role.VIEWER),
        admin=await hub.user("admin", Role.ADMIN),
    )


# Every way to look at a version, and what it answers to those who may not.
LOOKS = {
    ("GET", "/env/mine/1.0.0"): 404,
    ("GET", "/env/mine/latest"): 404,
    ("GET", "/env/mine"): 404,
    ("GET", "/env/mine/1.0.0/status"): 404,
    ("GET", "/env/mine/1.0.0/bundle"): 404,
    ("POST", "/env/mine/1.0.0/sign?style=read"): 404,
    ("GET", "/env/mine/access"): 404,
    ("GET", "/env/mine/audit"): 404,
    ("PUT", "/env/mine/1.0.0"): 404,
    ("DELETE", "/env/mine/1.0.0"): 404,
    ("POST", "/env/mine/1.0.0/release"): 404,
    ("PUT", "/env/mine/access"): 404,
}


class TestPrivate:
    @pytest.fixture(autouse=True)
    async def _private(self, hub: RunningHub, people: People) -> None:
        assert (await hub.push("mine", "1.0.0", people.alice, access="private")).status == 200

    @pytest.mark.parametrize(("look", "status"), LOOKS.items(), ids=str)
    async def test_is_invisible_to_others(self, hub, people, look, status):
        answer = await hub.ask(*look, {} if look[0] != "GET" else None, token=people.bob)
        assert (answer.status, "nothing of a similar name" in answer.message) == (status, True)
        assert b"alice" not in answer.body

    async def test_does_not_exist_for_others(self, hub, people):
        for token in (people.bob, people.viewer, people.nobody):
            assert await hub.get("/env/mine/1.0.0/exists", token) == {"exists": False}
            assert await hub.get("/env?q=mine", token) == []
            listed = await hub.ask("GET", "/env", token=token)
            assert (listed.data, listed.envelope["total"]) == ([], 0)
            assert await hub.get("/env?name=mine", token) == []
            assert await hub.get("/env?tags=demo", token) == []
            assert "mine" not in (await hub.ask("GET", "/env/mina/1.0.0", token=token)).message

    async def test_is_seen_by_its_owner_and_administrators(self, hub, people):
        for token in (people.alice, people.admin):
            assert (await hub.get("/env/mine/1.0.0", token))["access"] == "private"
            assert len(await hub.get("/env", token)) == 1

    async def test_keeps_its_name_from_others_without_telling_whose_it_is(self, hub, people):
        for body in ({"name": "mine", "version": "9"}, {"name": "mine", "version": "1.0.0"}):
            answer = await hub.ask("POST", "/env", body, people.bob)
            assert answer.status == 403
            assert b"alice" not in answer.body
        assert (await hub.ask("POST", "/env/mine/9/sign", token=people.bob)).status == 403

    async def test_cannot_be_read_by_naming_its_digest(self, hub, people):
        digest = (await hub.get("/env/mine/1.0.0", people.alice))["digest"]
        size = (await hub.get("/env/mine/1.0.0", people.alice))["size_bytes"]
        announced = await hub.ask("POST", "/bundles", {"digest": digest, "size_bytes": size}, people.bob)
        assert announced.data == {"exists": False, "offset": 0}
        answer = await hub.ask("POST", "/env", {"name": "stolen", "version": "1", "bundle": digest}, people.bob)
        assert answer.status == 400

    async def test_readers_see_it_and_writers_change_it(self, hub, people):
        policy = {"readers": ["viewer"], "writers": ["bob"]}
        assert (await hub.ask("PUT", "/env/mine/access", policy, people.alice)).status == 200
        assert len(await hub.get("/env", people.viewer)) == 1
        assert (await hub.get("/env/mine/latest", people.viewer))["version"] == "1.0.0"
        assert (await hub.ask("PUT", "/env/mine/1.0.0", {"description": "x"}, people.viewer)).status == 403
        assert (await hub.ask("PUT", "/env/mine/1.0.0", {"description": "x"}, people.bob)).status == 200
        assert (await hub.push("mine", "1.1.0", people.bob)).status == 200
        assert [env["version"] for env in await hub.get("/env", people.viewer)] == ["1.0.0", "1.1.0"]
        assert (await hub.ask("PUT", "/env/mine/access", {"access": "public"}, people.bob)).status == 403
        assert (await hub.get("/env/mine", people.viewer))["writers"] == []
        assert (await hub.get("/env/mine", people.bob))["writers"] == ["bob"]

    async def test_is_hidden_again_from_those_who_lost_access(self, hub, people):
        await hub.ask("PUT", "/env/mine/access", {"access": "public"}, people.alice)
        assert len(await hub.get("/env", people.nobody)) == 1
        await hub.ask("PUT", "/env/mine/access", {"access": "team"}, people.alice)
        assert await hub.get("/env", people.nobody) == []
        assert len(await hub.get("/env", people.bob)) == 1
        await hub.ask("PUT", "/env/mine/access", {"access": "private"}, people.alice)
        assert await hub.get("/env", people.bob) == []

    async def test_a_new_owner_has_it_and_the_old_one_has_not(self, hub, people):
        await hub.ask("PUT", "/env/mine/access", {"owner": "bob"}, people.alice)
        assert (await hub.get("/env/mine/1.0.0", people.bob))["owner"] == "bob"
        assert (await hub.ask("GET", "/env/mine/1.0.0", token=people.alice)).status == 404

    async def test_the_gateway_does_not_find_it_for_others(self, hub, people):
        bob = (await hub.accounts.authenticate(people.bob)).caller()
        alice = (await hub.accounts.authenticate(people.alice)).caller()
        assert (await hub.hub.find(refs.parse("mine"), alice)).version == "1.0.0"
        for caller in (bob, ANONYMOUS):
            for ref in ("mine", "mine@1.0.0", "mine@^1"):
                with pytest.raises(NotFound):
                    await hub.hub.find(refs.parse(ref), caller)


class TestTeam:
    async def test_every_account_sees_it_and_nobody_without_one(self, hub, people):
        await hub.push("shared", "1.0.0", people.alice)
        for token in (people.bob, people.viewer):
            assert (await hub.get("/env/shared/1.0.0", token))["owner"] == "alice"
            assert (await hub.ask("GET", "/env/shared/1.0.0/bundle", token=token)).status == 200
        assert (await hub.ask("GET", "/env/shared/1.0.0")).status == 404
        assert (await hub.ask("GET", "/env/shared/1.0.0/bundle")).status == 404

    async def test_others_see_but_do_not_change_it(self, hub, people):
        await hub.push("shared", "1.0.0", people.alice)
        changes = [("PUT", "", {"description": "x"}), ("DELETE", "", {}), ("POST", "/release", {})]
        for method, end, body in [*changes, ("POST", "/aci_trigger", {"image": "x"})]:
            assert (await hub.ask(method, f"/env/shared/1.0.0{end}", body, people.bob)).status == 403
        assert (await hub.ask("GET", "/env/shared/audit", token=people.bob)).status == 403
        assert (await hub.push("shared", "2.0.0", people.bob)).status == 403

    async def test_reserved_names_are_the_administrators_on_a_hub_that_stands_alone(self, hub, people):
        for name in ("python", "tau2-env", "aenv-x"):
            pushed = [(await hub.push(name, "7.0.0", who)).status for who in (people.bob, people.admin)]
            assert pushed == [403, 200]
            assert (await hub.ask("GET", f"/env/{name}/7.0.0", token=people.bob)).data["owner"] == "admin"

    async def test_a_viewer_only_reads(self, hub, people):
        await hub.push("shared", "1.0.0", people.alice)
        assert (await hub.ask("POST", "/env", {"name": "x", "version": "1"}, people.viewer)).status == 403
        assert (
            await hub.ask("POST", "/bundles", {"digest": "0" * 64, "size_bytes": 1}, people.viewer)
        ).status == 403
        assert (await hub.ask("PUT", f"/bundles/{'0' * 64}", b"x", people.viewer)).status == 403
        assert (await hub.ask("POST", "/env/new/1/sign", token=people.viewer)).status == 403
        assert (await hub.ask("POST", "/env/shared/1.0.0/sign?style=read", token=people.viewer)).status == 200

    async def test_only_administrators_read_the_whole_log_and_delete_released_versions(self, hub, people):
        await hub.push("shared", "1.0.0", people.alice)
        await hub.ask("POST", "/env/shared/1.0.0/release", token=people.alice)
        assert (await hub.ask("GET", "/audit", token=people.alice)).status == 403
        assert (await hub.ask("DELETE", "/env/shared/1.0.0?force=true", token=people.alice)).status == 409
        assert (await hub.ask("DELETE", "/env/shared/1.0.0?force=true", token=people.admin)).status == 200
        assert (await hub.get("/audit", people.admin))[0]["user"] == "admin"

    async def test_a_name_stays_its_owners_when_all_versions_are_deleted(self, hub, people):
        await hub.push("shared", "1.0.0", people.alice)
        await hub.ask("DELETE", "/env/shared/1.0.0", token=people.alice)
        assert (await hub.push("shared", "1.0.0", people.bob)).status == 403
        assert (await hub.push("shared", "1.0.0", people.alice)).status == 200

    async def test_the_access_of_what_exists_is_not_changed_by_a_push(self, hub, people):
        await hub.push("shared", "1.0.0", people.alice)
        answer = await hub.push("shared", "1.1.0", people.alice, access="public")
        assert (answer.status, "'access'" in answer.message) == (400, True)


class TestPublic:
    async def test_anybody_reads_it_without_an_account(self, hub, people):
        await hub.push("open", "1.0.0", people.alice, access="public")
        await hub.push("closed", "1.0.0", people.alice, access="private")
        assert [env["name"] for env in await hub.get("/env")] == ["open"]
        assert (await hub.get("/env/open/latest"))["access"] == "public"
        assert (await hub.ask("GET", "/env/open/1.0.0/bundle")).status == 200

    @pytest.mark.parametrize("token", ["wrong", "aenv-aaaaaaaaaaaaaaaa-" + "a" * 32])
    async def test_a_wrong_token_is_worse_than_none(self, hub, people, token):
        await hub.push("open", "1.0.0", people.alice, access="public")
        assert (await hub.ask("GET", "/env/open/latest", token=token)).status == 401

    async def test_nobody_changes_anything_without_an_account(self, hub, people):
        await hub.push("open", "1.0.0", people.alice, access="public")
        for route in hub.hub.routes():
            if route.access in (None, Role.ANONYMOUS):
                assert route.method == "GET" or route.path.startswith("/signed/")
                continue
            target = route.path.format(name="open", version="1.0.0", digest="0" * 64)
            assert (await hub.ask(route.method, target, {})).status == 401, route.path


async def test_a_push_during_a_change_of_access_ends_up_under_the_new_policy(hub, people):
    await hub.ask("POST", "/env", {"name": "mine", "version": "0"}, people.alice)
    for n, access in enumerate(("private", "public", "private", "team", "private"), 1):
        answers = await asyncio.gather(
            hub.ask("POST", "/env", {"name": "mine", "version": str(n)}, people.alice),
            hub.ask("PUT", "/env/mine/access", {"access": access}, people.alice),
        )
        assert [answer.status for answer in answers] == [200, 200]
        assert (await hub.get("/env/mine/access", people.alice))["access"] == access
        assert len(await hub.get("/env", people.alice)) == n + 1
        assert len(await hub.get("/env", people.bob)) == (0 if access == "private" else n + 1)
        assert len(await hub.get("/env")) == (n + 1 if access == "public" else 0)
