"""Accounts: who may call what, whose things are whose, and how long a token is good."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from aenv.base.errors import Forbidden, InvalidRequest, NotFound, Unauthenticated
from aenv.control.gateway.tokens import Tokens
from aenv.control.hub.access import EnvironmentAccess
from aenv.control.hub.environment_records import EnvironmentRecord
from aenv.control.serving import accounts as accounts_module
from aenv.control.serving.accounts import Accounts, Role
from aenv.control.stores.base import Put
from aenv.control.stores.sqlite import SqliteStore
from tests.gateways import Gateway, make_project, new_id, running_gateway


@pytest.fixture
async def accounts(tmp_path: Path) -> AsyncIterator[Accounts]:
    async with SqliteStore(tmp_path / "accounts.db") as store:
        yield Accounts(store)


# Tokens


async def test_a_token_is_shown_once_and_kept_as_a_hash(tmp_path: Path) -> None:
    path = tmp_path / "aenv.db"
    async with SqliteStore(path) as store:
        account, token = await Accounts(store).create("alice")
        assert (await Accounts(store).authenticate(token)) == account
    kept = b"".join(file.read_bytes() for file in tmp_path.glob("aenv.db*"))
    assert account.id.encode() in kept
    assert token.rpartition("-")[2].encode() not in kept


async def test_a_token_that_is_brought_makes_its_account_once(accounts: Accounts) -> None:
    token = f"aenv-{'a' * 16}-{'b' * 32}"
    made = await asyncio.gather(*(accounts.ensure("root", Role.ADMIN, token) for _ in range(3)))
    assert await accounts.list() == [made[0]] == [await accounts.authenticate(token)]
    for user, other, why in (
        ("root", "secret", "must have the form aenv-ID-SECRET"),
        ("root", f"aenv-{'a' * 16}-{'c' * 32}", "another token has the id"),
        ("ada", token, "is the token of 'root'"),
    ):
        with pytest.raises(InvalidRequest, match=why):
            await accounts.ensure(user, Role.ADMIN, other)
    await accounts.revoke(made[0].id)
    assert (await accounts.ensure("root", Role.ADMIN, token)).revoked_at


async def test_a_token_that_nobody_has_opens_nothing(accounts: Accounts) -> None:
    account, token = await accounts.create("alice")
    for other in ("", "nonsense", token[:-1], token[:-1] + ("a" if token[-1] != "a" else "b"), account.id):
        with pytest.raises(Unauthenticated, match="does not exist"):
            await accounts.authenticate(other)


async def test_a_token_is_good_until_it_expires(accounts: Accounts, monkeypatch: pytest.MonkeyPatch) -> None:
    _, token = await accounts.create("alice", expires=60)
    now = accounts_module.time.time()
    monkeypatch.setattr(accounts_module.time, "time", lambda: now + 59)
    assert (await accounts.authenticate(token)).user == "alice"
    monkeypatch.setattr(accounts_module.time, "time", lambda: now + 61)
    with pytest.raises(Unauthenticated, match="expired"):
        await accounts.authenticate(token)


async def test_a_revoked_token_opens_nothing_here_at_once_and_elsewhere_within_half_a_minute(
    accounts: Accounts, monkeypatch: pytest.MonkeyPatch
) -> None:
    account, token = await accounts.create("alice")
    elsewhere = Accounts(accounts._store)
    await elsewhere.authenticate(token)
    await accounts.revoke(account.id)
    with pytest.raises(Unauthenticated, match="revoked"):
        await accounts.authenticate(token)
    assert (await elsewhere.authenticate(token)).user == "alice"  # as of a moment ago
    now = accounts_module.time.monotonic()
    monkeypatch.setattr(accounts_module.time, "monotonic", lambda: now + 31)
    with pytest.raises(Unauthenticated, match="revoked"):
        await elsewhere.authenticate(token)


async def test_revoking_the_last_account_does_not_open_the_door_to_everyone(accounts: Accounts) -> None:
    assert not await accounts.exist()
    account, _ = await accounts.create("alice")
    await accounts.revoke(account.id)
    assert await Accounts(accounts._store).exist()


@pytest.mark.parametrize("user", ["", " ", "a\nb", "x" * 129, " alice"])
async def test_a_name_that_cannot_be_shown_is_refused(accounts: Accounts, user: str) -> None:
    with pytest.raises(InvalidRequest, match="'user'"):
        await accounts.create(user)


async def test_nobody_is_given_an_account_to_be_anonymous(accounts: Accounts) -> None:
    with pytest.raises(InvalidRequest, match="'role'"):
        await accounts.create("alice", Role.ANONYMOUS)
    with pytest.raises(NotFound):
        await accounts.revoke("none")


# On a gateway


@dataclass
class Team:
    """A gateway with accounts, and the headers of their tokens."""

    gateway: Gateway
    root: list[tuple[str, str]]
    alice: list[tuple[str, str]]
    bob: list[tuple[str, str]]
    viewer: list[tuple[str, str]]

    async def create(self, who: list[tuple[str, str]], **body: Any) -> dict[str, Any]:
        target = f"/env-instance/{new_id()}"
        status, reply = await self.gateway.ask("PUT", target, {"envName": "echo", **body}, who)
        assert status == 200, reply
        data: dict[str, Any] = reply["data"]
        return data

    async def status(self, who: list[tuple[str, str]], method: str, target: str, body: Any = None) -> int:
        return (await self.gateway.ask(method, target, body, who))[0]


async def make_accounts(home: Path) -> dict[str, list[tuple[str, str]]]:
    tokens = {}
    async with SqliteStore(home / "aenv.db") as store:
        for user, role in (
            ("root", Role.ADMIN),
            ("alice", Role.USER),
            ("bob", Role.USER),
            ("viewer", Role.VIEWER),
        ):
            owner = "alice" if user == "viewer" else user
            _, token = await Accounts(store).create(owner, role)
            tokens[user] = [("authorization", f"Bearer {token}")]
    return tokens


@pytest.fixture
async def team(tmp_path: Path) -> AsyncIterator[Team]:
    home = tmp_path / "home"
    home.mkdir()
    tokens = await make_accounts(home)
    async with running_gateway(home, make_project(tmp_path)) as gateway:
        yield Team(gateway, **tokens)


async def test_with_accounts_nobody_is_anonymous(team: Team) -> None:
    gateway = team.gateway
    for headers, message in (
        ([], "missing Authorization header"),
        ([("authorization", "Basic YWxhZGRpbg==")], "should be 'Bearer <token>'"),
        ([("authorization", "Bearer ")], "should be 'Bearer <token>'"),
        ([("authorization", "Bearer made-up")], "does not exist"),
    ):
        status, reply = await gateway.ask("GET", "/env-instance/*/list", headers=headers)
        assert (status, reply["error"]) == (401, "unauthenticated")
        assert message in reply["message"]
    assert (await gateway.ask("GET", "/health"))[0] == 200
    bearer = [("AUTHORIZATION", team.alice[0][1].replace("Bearer", "bEARER"))]
    assert (await gateway.ask("GET", "/env-instance/*/list", headers=bearer))[0] == 200


async def test_a_user_sees_and_touches_only_their_own_instances(team: Team) -> None:
    mine = await team.create(team.alice, owner="somebody else")
    assert mine["owner"] == "alice"
    at = f"/env-instance/{mine['id']}"
    for method, target, body in (
        ("GET", at, None),
        ("DELETE", at, None),
        ("PUT", f"{at}/ttl", {"ttl": "1h"}),
        ("GET", f"{at}/events", None),
        ("GET", f"{at}/history", None),
        ("GET", f"{at}/logs", None),
        ("POST", f"{at}/exec", {"command": "true"}),
        ("GET", f"{at}/files", None),
        ("PUT", f"{at}/files/x", None),
        ("GET", f"{at}/files/x", None),
        ("DELETE", f"{at}/files/x", None),
        ("POST", f"{at}/presign-url", {"port": 80}),
    ):
        assert await team.status(team.bob, method, target, body) == 404, (method, target)
        assert await team.status([], method, target, body) == 401, (method, target)
    for who, seen in ((team.bob, 0), (team.alice, 1), (team.viewer, 1), (team.root, 1)):
        listed = (await team.gateway.ask("GET", "/env-instance/*/list", headers=who))[1]["data"]
        assert len(listed) == seen
    asked = (await team.gateway.ask("GET", "/env-instance/*/list?owner=alice", headers=team.bob))[1]["data"]
    assert asked == []
    assert await team.status(team.root, "DELETE", at) == 200


async def test_a_viewer_reads_what_its_user_has_and_changes_nothing(team: Team) -> None:
    mine = await team.create(team.alice)
    at = f"/env-instance/{mine['id']}"
    assert await team.status(team.viewer, "GET", at) == 200
    for method, target in (("DELETE", at), ("PUT", at), ("PUT", f"{at}/ttl"), ("POST", f"{at}/exec")):
        status, reply = await team.gateway.ask(method, target, {}, team.viewer)
        assert (status, reply["error"]) == (403, "forbidden")
        assert "'viewer' may not do this; it needs the role 'user'" in reply["message"]


async def test_deleting_by_label_ends_only_ones_own(team: Team) -> None:
    label = {"labels": {"experiment": "a"}}
    mine, other = await team.create(team.alice, **label), await team.create(team.bob, **label)
    target = "/env-instances?label=experiment=a"
    assert (await team.gateway.ask("DELETE", target, headers=team.alice))[1]["data"] == {"deleted": 1}
    assert (await team.gateway.ask("GET", f"/env-instance/{mine['id']}", headers=team.alice))[1]["data"][
        "status"
    ] == "Terminated"
    assert (await team.gateway.ask("GET", f"/env-instance/{other['id']}", headers=team.bob))[1]["data"][
        "status"
    ] == "Running"


async def test_the_same_id_of_another_user_is_a_conflict_without_details(team: Team) -> None:
    mine = await team.create(team.alice)
    status, reply = await team.gateway.ask("PUT", f"/env-instance/{mine['id']}", {"envName": "echo"}, team.bob)
    assert (status, reply["error"], reply["data"]) == (409, "conflict", None)
    assert "alice" not in reply["message"]


async def test_an_idempotency_key_belongs_to_its_user(team: Team) -> None:
    async def post(who: list[tuple[str, str]]) -> str:
        headers = [*who, ("idempotency-key", "k")]
        reply = (await team.gateway.ask("POST", "/env-instance", {"envName": "echo"}, headers))[1]
        return str(reply["data"]["id"])

    first = await post(team.alice)
    assert await post(team.alice) == first
    assert await post(team.bob) != first


async def test_published_clients_reach_an_instance_by_its_id_alone(team: Team) -> None:
    _, reply = await team.gateway.ask("POST", "/env-instance", {"envName": "echo"}, team.alice)
    assert await team.gateway.call(reply["data"]["id"], "echo", text="no token") == "no token"


async def test_an_instance_token_that_was_made_for_a_viewer_opens_nothing(team: Team) -> None:
    mine = await team.create(team.alice)
    tokens = Tokens()
    async with SqliteStore(team.gateway.home / "aenv.db") as store:
        await tokens.load(store)
    at = f"/instances/{mine['id']}/health"
    for who, expected in ((team.alice, 200), (team.viewer, 401)):
        account = (await team.gateway.ask("GET", "/whoami", headers=who))[1]["data"]["account"]
        token = [("authorization", f"Bearer {tokens.sign(mine['id'], account)}")]
        status, _ = await team.gateway.ask("GET", at, headers=token, origin=team.gateway.data)
        assert status == expected
        port = f"/ports/{tokens.sign(mine['id'], account, port=9)}/"
        status, reply = await team.gateway.ask("GET", port, origin=team.gateway.data)
        assert (status == 401) == (expected == 401), reply


async def test_a_token_revoked_in_the_middle_of_a_call_stops_the_next_one(team: Team) -> None:
    mine = await team.create(team.alice)
    ids = (await team.gateway.ask("GET", "/token", headers=team.root))[1]["data"]
    account = next(row["id"] for row in ids if row["user"] == "alice" and row["role"] == "user")
    token = [("authorization", f"Bearer {mine['token']}")]
    status, _ = await team.gateway.ask("GET", "/health", headers=token, origin=team.gateway.data)
    assert status == 200
    assert await team.status(team.alice, "DELETE", f"/token/{account}") == 200
    assert await team.status(team.alice, "GET", f"/env-instance/{mine['id']}") == 401
    status, reply = await team.gateway.ask("GET", "/health", headers=token, origin=team.gateway.data)
    assert (status, reply["error"]) == (401, "unauthenticated")
    assert "revoked" in reply["message"]


# Names of built-in environments


async def test_what_took_a_built_in_name_before_it_was_reserved_is_found_by_its_owner_alone(
    tmp_path: Path,
) -> None:
    home = tmp_path / "home"
    home.mkdir()
    tokens = await make_accounts(home)
    async with SqliteStore(home / "aenv.db") as store:
        for name, owner in (("python", "bob"), ("gsm-tools", "root"), ("browser", "local")):
            policy = EnvironmentAccess(owner)
            taken = EnvironmentRecord(name, "1.0.0", policy, description=f"of {owner}", pushed_by=owner)
            await store.write(taken.put(0), Put("policies", name, policy.value(), 0))
    async with running_gateway(home) as gateway:

        async def found(name: str, who: str) -> str:
            _, reply = await gateway.ask("GET", f"/env/{name}/1.0.0", headers=tokens[who])
            return str(reply["data"]["owner"])

        assert [await found("python", who) for who in ("bob", "alice", "root")] == ["bob", "None", "None"]
        assert [await found("gsm-tools", who) for who in ("bob", "root")] == ["root", "root"]
        assert [await found("browser", who) for who in ("bob", "root")] == ["local", "local"]
        body = {"name": "python", "version": "2.0.0"}
        assert [(await gateway.ask("POST", "/env", body, tokens[who]))[0] for who in ("bob", "alice")] == [
            403,
            403,
        ]


# The routes of tokens


async def test_an_administrator_makes_changes_and_revokes_tokens(team: Team) -> None:
    ask = team.gateway.ask
    body = {"user": "carol", "maxInstanceCount": 2}
    status, reply = await ask("POST", "/token/", body, team.root)
    carol = reply["data"]
    assert (status, carol["user"], carol["maxInstanceCount"], carol["role"]) == (200, "carol", 2, "user")
    headers = [("authorization", f"Bearer {carol['token']}")]
    assert (await ask("GET", "/whoami", headers=headers))[1]["data"]["user"] == "carol"
    shown = (await ask("GET", f"/token/validate/{carol['token']}"))[1]
    assert (shown["success"], shown["code"], shown["data"]["id"]) == (True, 0, carol["id"])
    assert (await ask("PUT", "/token", {"user": "carol", "maxInstanceCount": 5}, team.root))[0] == 200
    assert (await ask("GET", f"/token/info/{carol['id']}", headers=headers))[1]["data"]["maxInstanceCount"] == 5
    assert "token" not in (await ask("GET", f"/token/info/{carol['id']}", headers=team.root))[1]["data"]
    assert (await ask("DELETE", f"/token/{carol['id']}", headers=team.root))[0] == 200
    assert (await ask("GET", f"/token/validate/{carol['token']}"))[0] == 404
    assert (await ask("GET", "/whoami", headers=headers))[0] == 401


async def test_only_administrators_make_and_list_tokens(team: Team) -> None:
    for who in (team.alice, team.viewer):
        assert await team.status(who, "POST", "/token", {"user": "mallory", "role": "admin"}) == 403
        assert await team.status(who, "PUT", "/token", {"user": "alice", "maxInstanceCount": 99}) == 403
        assert await team.status(who, "GET", "/token") == 403
    rows = (await team.gateway.ask("GET", "/token", headers=team.root))[1]["data"]
    assert "hash" not in str(rows)
    bobs = next(row["id"] for row in rows if row["user"] == "bob")
    assert await team.status(team.alice, "GET", f"/token/info/{bobs}") == 404
    assert await team.status(team.alice, "DELETE", f"/token/{bobs}") == 403


# Doors


async def test_a_gateway_for_others_starts_only_with_accounts(tmp_path: Path) -> None:
    home = tmp_path / "home"
    with pytest.raises(Forbidden, match="there are no accounts"):
        async with running_gateway(home, host="0.0.0.0"):
            pass
    await make_accounts(home)
    async with running_gateway(home, host="0.0.0.0") as gateway:
        assert (await gateway.ask("GET", "/env-instance/*/list"))[0] == 401


async def test_an_account_made_while_the_gateway_runs_closes_its_door(tmp_path: Path) -> None:
    home = tmp_path / "home"
    async with running_gateway(home) as gateway:
        assert (await gateway.ask("GET", "/env-instance/*/list"))[0] == 200
        _, reply = await gateway.ask("POST", "/token", {"user": "root", "role": "admin"})
        assert (await gateway.ask("GET", "/env-instance/*/list"))[0] == 401
        token = [("authorization", f"Bearer {reply['data']['token']}")]
        assert (await gateway.ask("GET", "/env-instance/*/list", headers=token))[0] == 200


async def test_whoever_may_open_the_unix_socket_needs_no_token(tmp_path: Path, monkeypatch: Any) -> None:
    from aenv.base.addresses import Origin

    monkeypatch.chdir(tmp_path)
    home = tmp_path / "home"
    home.mkdir()
    await make_accounts(home)
    async with running_gateway(home, socket=Path("g.sock")) as gateway:
        local = Origin("localhost", socket="g.sock")
        assert (await gateway.ask("GET", "/whoami", origin=local))[1]["data"]["role"] == "admin"
        assert (await gateway.ask("GET", "/whoami"))[0] == 401


async def test_with_require_data_token_an_id_alone_opens_nothing(tmp_path: Path) -> None:
    home = tmp_path / "home"
    async with running_gateway(home, make_project(tmp_path), require_data_token=True) as gateway:
        instance = await gateway.create()
        at = f"/instances/{instance['id']}/health"
        for headers in ([], [("AEnvCore-EnvInstance-ID", instance["id"])]):
            status, reply = await gateway.ask("GET", at, headers=headers, origin=gateway.data)
            assert (status, reply["error"]) == (401, "unauthenticated")
        good = [("authorization", f"Bearer {instance['token']}")]
        assert (await gateway.ask("GET", at, headers=good, origin=gateway.data))[0] == 200


async def test_an_instance_token_ends_after_five_minutes_and_is_renewed_by_use(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    home = tmp_path / "home"
    async with running_gateway(home, make_project(tmp_path), require_data_token=True) as gateway:
        instance = await gateway.create()
        now = accounts_module.time.time()

        async def health(token: str) -> tuple[int, str | None]:
            headers = [("authorization", f"Bearer {token}")]
            response = await gateway.pool.request(gateway.data, "GET", "/health", headers)
            await response.read()
            return response.status, response.header(b"aenvcore-instance-token")

        assert await health(instance["token"]) == (200, None)
        monkeypatch.setattr(accounts_module.time, "time", lambda: now + 200)
        status, fresh = await health(instance["token"])
        assert status == 200
        assert fresh
        monkeypatch.setattr(accounts_module.time, "time", lambda: now + 301)
        assert (await health(instance["token"]))[0] == 401
        assert (await health(fresh))[0] == 200
