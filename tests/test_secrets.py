"""Secrets by name: given to instances as variables, and shown in no reply, record, history or log."""

from __future__ import annotations

import contextlib
import hashlib
import json
import logging
import sqlite3
import tempfile
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import pytest

from aenv.artifacts import bundles
from aenv.base import mcp
from tests.command_line import environ, serving
from tests.gateways import Gateway, make_project, running_gateway
from tests.test_accounts import Team, make_accounts

VALUE = 'sk-"quoted"\\and-ünusual'
OTHER = "another value of the same"
CODE = """
import hashlib, json, logging, os
from aenv import register_function, register_reward, register_tool

if os.environ.get("BROKEN"):
    raise RuntimeError(f"no such key: {os.environ['KEY']}")

@register_tool
def digest(name: str = "KEY") -> str:
    return hashlib.sha256(os.environ.get(name, "").encode()).hexdigest()

@register_tool
def leak(text: str = "") -> dict:
    return {"key": os.environ["KEY"], "json": json.dumps(dict(os.environ))}

@register_tool
def fail(text: str = "") -> None:
    raise ValueError(f"{'x' * int(text or 0)} {os.environ['KEY']}")

@register_tool
def say() -> None:
    print("it is", os.environ["KEY"], flush=True)
    logging.getLogger("aenv.mine").warning("it is %s", os.environ["KEY"])

@register_function
def key() -> str:
    return os.environ["KEY"]

@register_reward
def reward() -> dict:
    return {"reward": 1.0, "why": os.environ["KEY"]}
"""
KEY = {"KEY": {"secret": "OPENAI"}}


def digest(value: str) -> str:
    return hashlib.sha256(value.encode()).hexdigest()


def shows(text: str | bytes, value: str = VALUE) -> bool:
    """Whether a value stands there, or most of it, in any spelling."""
    text = text.decode() if isinstance(text, bytes) else text
    parts = (value, value[:6], value[-6:])
    return any(part in text or json.dumps(part)[1:-1] in text for part in parts)


async def raw(gateway: Gateway, target: str, who: Any, data: bool = False, body: bytes | None = None) -> bytes:
    method = "GET" if body is None else "POST"
    origin = gateway.data if data else gateway.control
    response = await gateway.pool.request(origin, method, target, who, body or b"")
    return await response.read()


@pytest.fixture
async def team(tmp_path: Path) -> AsyncIterator[Team]:
    home = tmp_path / "home"
    home.mkdir()
    tokens = await make_accounts(home)
    served = make_project(tmp_path, "served", code=CODE, environmentVariables=KEY)
    async with running_gateway(home, make_project(tmp_path, code=CODE), served) as gateway:
        team = Team(gateway, **tokens)
        assert await team.status(team.alice, "PUT", "/secret/OPENAI", {"value": VALUE}) == 200
        yield team


async def push(team: Team, who: Any, name: str, version: str = "1.0.0", **deploy: Any) -> None:
    with tempfile.TemporaryDirectory() as folder:
        source = make_project(Path(folder), name, version, CODE, **deploy)
        bundle = bundles.pack(source, Path(folder, "packed"))
        content = Path(folder, "packed").read_bytes()
    about = {"digest": bundle.digest, "size_bytes": len(content)}
    assert await team.status(who, "POST", "/bundles", about) == 200
    assert await team.status(who, "PUT", f"/bundles/{bundle.digest}?offset=0", content) == 200
    body = {"name": name, "version": version, "bundle": bundle.digest}
    status, reply = await team.gateway.ask("POST", "/env", body, who)
    assert status == 200, reply


async def refused(team: Team, who: Any, **body: Any) -> str:
    status, reply = await team.gateway.ask("POST", "/env-instance", {"envName": "echo", **body}, who)
    assert status == 400, reply
    message: str = reply["message"]
    return message


async def given_to(team: Team, who: Any, name: str = "KEY", **body: Any) -> str:
    """The digest of a variable of a new instance."""
    made = await team.create(who, **body)
    target = f"/instances/{made['id']}/tools/digest"
    _, reply = await team.gateway.ask("POST", target, {"name": name}, who, team.gateway.data)
    text: str = reply["data"]["content"][0]["text"]
    return text


# Given


async def test_a_create_names_a_secret_and_the_instance_has_its_value(team: Team) -> None:
    assert await given_to(team, team.alice, environment_variables=KEY) == digest(VALUE)
    await team.status(team.alice, "PUT", "/secret/OPENAI", {"value": OTHER})
    assert await given_to(team, team.alice, environment_variables=KEY) == digest(OTHER)
    await team.status(team.alice, "DELETE", "/secret/OPENAI")
    expected = (
        "field 'environment_variables.KEY': there is no secret 'OPENAI'; make it with 'aenv secret set OPENAI'"
    )
    assert await refused(team, team.alice, environment_variables=KEY) == expected


async def test_several_instances_at_once_have_it(team: Team) -> None:
    body = {"envName": "echo", "count": 2, "environment_variables": KEY}
    status, reply = await team.gateway.ask("POST", "/env-instances", body, team.alice)
    assert status == 200, reply
    for made in reply["data"]:
        target = f"/instances/{made['id']}/tools/digest"
        _, answer = await team.gateway.ask("POST", target, {}, team.alice, team.gateway.data)
        assert answer["data"]["content"][0]["text"] == digest(VALUE)


async def test_secrets_belong_to_their_account(team: Team) -> None:
    assert "there is no secret 'OPENAI'" in await refused(team, team.bob, environment_variables=KEY)
    assert (await team.gateway.ask("GET", "/secret", None, team.bob))[1]["data"] == []
    assert await team.status(team.bob, "DELETE", "/secret/OPENAI") == 404
    assert await team.status(team.bob, "PUT", "/secret/OPENAI", {"value": OTHER}) == 200
    assert await given_to(team, team.alice, environment_variables=KEY) == digest(VALUE)
    # Of the instance's owner, also when an administrator makes it.
    assert "there is no secret" in await refused(team, team.root, environment_variables=KEY)
    assert await given_to(team, team.root, environment_variables=KEY, owner="alice") == digest(VALUE)


async def test_without_accounts_they_are_the_local_users(tmp_path: Path) -> None:
    async with running_gateway(tmp_path / "home", make_project(tmp_path, code=CODE)) as gateway:
        assert (await gateway.ask("PUT", "/secret/OPENAI", {"value": VALUE}))[0] == 200
        for owner in ({}, {"owner": "anybody"}):
            made = await gateway.create(environment_variables=KEY, **owner)
            assert await gateway.call(made["id"], "digest") == digest(VALUE)


# Whose config.json


async def test_a_folder_that_the_operator_serves_may_name_a_secret(team: Team) -> None:
    assert await given_to(team, team.alice, envName="served") == digest(VALUE)
    assert "there is no secret 'OPENAI'" in await refused(team, team.bob, envName="served")


async def test_an_environment_of_ones_own_may_name_a_secret(team: Team) -> None:
    await push(team, team.alice, "own", environmentVariables=KEY)
    assert await given_to(team, team.alice, envName="own") == digest(VALUE)


async def test_another_authors_config_takes_no_secret_unless_the_create_names_it(team: Team) -> None:
    await push(team, team.bob, "trap", environmentVariables=KEY)
    message = await refused(team, team.alice, envName="trap")
    assert message.startswith("field 'environment_variables.KEY': environment 'trap@1.0.0' asks for your secret")
    assert '{"KEY": {"secret": "OPENAI"}}' in message
    assert await given_to(team, team.alice, envName="trap", environment_variables=KEY) == digest(VALUE)
    assert await given_to(team, team.alice, envName="trap", environment_variables={"KEY": "x"}) == digest("x")


async def test_nor_does_one_of_another_who_may_push_there(team: Team) -> None:
    await push(team, team.alice, "own", environmentVariables=KEY)
    assert await team.status(team.alice, "PUT", "/env/own/access", {"writers": ["bob"]}) == 200
    await push(team, team.bob, "own", "1.1.0", environmentVariables=KEY)
    assert "was not pushed by you" in await refused(team, team.alice, envName="own")
    assert await given_to(team, team.alice, envName="own@1.0.0") == digest(VALUE)
    changed = {"deployConfig": {"environmentVariables": {"STOLEN": {"secret": "OPENAI"}}}}
    assert await team.status(team.bob, "PUT", "/env/own/1.0.0", changed) == 200
    assert "was not pushed by you" in await refused(team, team.alice, envName="own@1.0.0")


async def test_a_service_takes_secrets_by_the_same_rules(team: Team) -> None:
    await push(team, team.bob, "trap", environmentVariables=KEY)
    status, reply = await team.gateway.ask("POST", "/env-service", {"envName": "trap"}, team.alice)
    assert (status, "asks for your secret" in reply["message"]) == (400, True)
    body = {"envName": "echo", "service_name": "mine", "environment_variables": {"KEY": "x"}}
    assert await team.status(team.alice, "POST", "/env-service", body) == 200
    unknown = {"environment_variables": {"KEY": {"secret": "NONE"}}}
    assert await team.status(team.alice, "PUT", "/env-service/mine", unknown) == 400
    status, reply = await team.gateway.ask("PUT", "/env-service/mine", {"environment_variables": KEY}, team.alice)
    assert (status, reply["data"]["environment_variables"]) == (200, {"KEY": "***"})
    async with serving_value(team, "mine") as value:
        assert value == digest(VALUE)
    target = "/services/mine/tools/say"
    assert (await team.gateway.ask("POST", target, {}, team.alice, team.gateway.data))[0] == 200
    printed = await raw(team.gateway, "/env-service/mine/logs", team.alice)
    assert b"it is ***" in printed
    assert not shows(printed)


@contextlib.asynccontextmanager
async def serving_value(team: Team, service: str) -> AsyncIterator[str]:
    """The digest that a service says once its new replica serves."""
    target, said = f"/services/{service}/tools/digest", ""
    while said in ("", digest("x")):
        status, reply = await team.gateway.ask("POST", target, {}, team.alice, team.gateway.data)
        said = reply["data"]["content"][0]["text"] if status == 200 else ""
    yield said


# Shown nowhere


@pytest.fixture
def logged(caplog: pytest.LogCaptureFixture) -> Iterator[pytest.LogCaptureFixture]:
    """All that our loggers say, also where a test before this one has configured them."""
    ours = logging.getLogger("aenv")
    propagates, ours.propagate = ours.propagate, True
    with caplog.at_level(logging.DEBUG):
        yield caplog
    ours.propagate = propagates


async def test_no_reply_no_record_and_no_log_has_a_value(team: Team, logged: pytest.LogCaptureFixture) -> None:
    gateway = team.gateway
    made = await team.create(team.alice, environment_variables=KEY)
    id = made["id"]
    cut = [("fail", {"text": str(size)}) for size in range(2000, 2048, 7)]  # a history keeps 2 KiB of an error
    calls: list[tuple[str, Any]] = [("leak", {"text": "x" * 2030 + VALUE}), ("say", {}), *cut]
    for tool, words in calls:
        target, words = f"/instances/{id}/tools/{tool}", mcp.dumps(words)
        said = await raw(gateway, target, team.alice, data=True, body=words)
        assert not shows(said), said
    mcp_call = mcp.dumps(mcp.request(1, "tools/call", {"name": "leak", "arguments": {}}))
    for accept in ("application/json", "text/event-stream"):
        who = [*team.alice, ("accept", accept), ("content-type", "application/json")]
        said = await raw(gateway, f"/instances/{id}/mcp", who, data=True, body=mcp_call)
        assert b"***" in said
        assert not shows(said), said
    for path in ("functions/key", "task/reward"):
        said = await raw(gateway, f"/instances/{id}/{path}", team.alice, data=True, body=b"{}")
        assert b"***" in said
        assert not shows(said), said
    for who in (team.alice, team.viewer, team.root):
        for path in ("", "/history", "/events", "/logs"):
            said = await raw(gateway, f"/env-instance/{id}{path}", who)
            assert not shows(said), (path, said)
    printed = await raw(gateway, f"/env-instance/{id}/logs", team.viewer)
    history = await raw(gateway, f"/env-instance/{id}/history", team.viewer)
    listed = await raw(gateway, "/env-instance/*/list", team.alice)
    assert printed.count(b"it is ***") == 2
    assert history.count(b"***") >= 2
    assert not shows(listed)
    assert logged.records
    assert not shows(logged.text)


async def test_the_names_are_listed_and_the_values_are_not(team: Team) -> None:
    said = await raw(team.gateway, "/secret", team.alice)
    assert not shows(said)
    [listed] = mcp.loads(said)["data"]
    assert sorted(listed) == ["created_at", "name", "updated_at"]
    assert listed["name"] == "OPENAI"


async def test_only_the_document_of_the_secret_has_the_value(team: Team) -> None:
    await team.create(team.alice, environment_variables=KEY)
    body = {"envName": "echo", "service_name": "mine", "environment_variables": KEY}
    assert await team.status(team.alice, "POST", "/env-service", body) == 200
    [document] = [one for one in await documents(team.gateway.home) if shows(one)]
    assert json.loads(document)["name"] == "OPENAI"
    assert (team.gateway.home / "aenv.db").stat().st_mode & 0o777 == 0o600


async def documents(home: Path) -> list[str]:
    with contextlib.closing(sqlite3.connect(home / "aenv.db")) as database:
        tables = [name for (name,) in database.execute("select name from sqlite_master where type = 'table'")]
        rows = [row for table in tables for row in database.execute(f"select * from {table}")]
    texts = [
        part.decode(errors="replace") if isinstance(part, bytes) else str(part) for row in rows for part in row
    ]
    return [text for text in texts if text.startswith("{")]


async def test_why_an_instance_did_not_start_does_not_say_it(team: Team) -> None:
    body = {"envName": "echo", "environment_variables": {**KEY, "BROKEN": "1"}}
    status, reply = await team.gateway.ask("POST", "/env-instance", body, team.alice)
    assert status >= 400
    assert "no such key: ***" in reply["message"]
    assert not shows(json.dumps(reply))
    [document] = [one for one in await documents(team.gateway.home) if shows(one)]
    assert json.loads(document)["name"] == "OPENAI"


async def test_a_value_that_was_changed_stays_masked_where_an_instance_has_it(team: Team) -> None:
    made = await team.create(team.alice, environment_variables=KEY)
    assert await team.status(team.alice, "PUT", "/secret/OPENAI", {"value": OTHER}) == 200
    assert await team.status(team.alice, "DELETE", "/secret/OPENAI") == 200
    target = f"/instances/{made['id']}/tools/say"
    assert (await team.gateway.ask("POST", target, {}, team.alice, team.gateway.data))[0] == 200
    printed = await raw(team.gateway, f"/env-instance/{made['id']}/logs", team.alice)
    assert b"it is ***" in printed
    assert not shows(printed)


def test_the_log_of_a_runtime_does_not_have_it(tmp_path: Path) -> None:
    code = """
        import os
        from aenv import register_start

        @register_start
        def begin() -> None:
            raise ValueError(f"it is {os.environ['KEY']}")
    """
    variables = environ(KEY=VALUE, AENV_SECRET_NAMES="KEY", AENV_HOME=str(tmp_path))
    with serving("run", make_project(tmp_path, code=code), "--port", "0", env=variables) as server:
        [*_, said] = server.until("start function begin failed", on="stderr")
    assert said.endswith("it is ***")


async def test_a_viewer_neither_sets_lists_nor_removes(team: Team) -> None:
    assert await team.status(team.viewer, "PUT", "/secret/OPENAI", {"value": OTHER}) == 403
    assert await team.status(team.viewer, "GET", "/secret") == 403
    assert await team.status(team.viewer, "DELETE", "/secret/OPENAI") == 403
    assert await given_to(team, team.alice, environment_variables=KEY) == digest(VALUE)


async def test_an_account_has_at_most_a_thousand(team: Team, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("aenv.control.serving.named_secrets.MAX_SECRETS", 2)
    assert await team.status(team.alice, "PUT", "/secret/SECOND", {"value": "x"}) == 200
    assert await team.status(team.alice, "PUT", "/secret/THIRD", {"value": "x"}) == 409
    assert await team.status(team.alice, "PUT", "/secret/SECOND", {"value": "y"}) == 200
    assert await team.status(team.bob, "PUT", "/secret/THIRD", {"value": "x"}) == 200
