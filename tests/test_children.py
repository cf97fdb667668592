"""Instances that use other environments: what a grant opens, what it does not, and what is left in the end."""

from __future__ import annotations

import asyncio
import json
import os
import signal
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from aenv import Environment
from aenv.artifacts import bundles
from aenv.isolation.egress.gateway_route import GatewayRoute
from tests.command_line import serving
from tests.gateways import Gateway, make_project, running_gateway
from tests.native import traces
from tests.streaming_models import completion, streaming_model
from tests.test_accounts import Team, make_accounts

pytestmark = pytest.mark.slow  # each starts a gateway and instances, which are programs

BOSS = '''
import asyncio, http.client, json, os
from aenv import Environment, register_tool

held = []


@register_tool
async def ask(environment: str, tool: str, arguments: dict, options: dict = {}) -> dict:
    """Use a tool of a child that is made for it."""
    try:
        async with Environment(environment, **options) as child:
            result = await child.call_tool(tool, arguments)
            return {"text": result.text, "is_error": result.is_error, "id": child.instance_id}
    except Exception as error:
        return {"error": type(error).__name__, "message": str(error)}


@register_tool
async def hold(environment: str, count: int) -> dict:
    """Make children, and keep them."""
    made = [Environment(environment) for _ in range(count)]
    await asyncio.gather(*(one.initialize() for one in made))
    held.extend(made)
    return {"result": [one.instance_id for one in made]}


@register_tool
async def again(index: int, tool: str, arguments: dict) -> dict:
    """Call a child that is held."""
    try:
        return {"text": (await held[index].call_tool(tool, arguments)).text}
    except Exception as error:
        return {"error": type(error).__name__, "message": str(error)}


@register_tool
def raw(method: str, path: str, body: str = "", headers: dict = {}, key: str = "") -> dict:
    """Send a request to the relay, and tell what it answers."""
    port = int(os.environ["AENV_SYSTEM_URL"].rpartition(":")[2])
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=30)
    given = {"Authorization": f"Bearer {key or os.environ['AENV_API_KEY']}", "Content-Type": "application/json"}
    connection.request(method, path, body.encode() or None, {**given, **headers})
    answer = connection.getresponse()
    return {"status": answer.status, "text": answer.read().decode()}


@register_tool
def model() -> str:
    """Ask the model."""
    url, key = os.environ["OPENAI_BASE_URL"], os.environ["OPENAI_API_KEY"]
    connection = http.client.HTTPConnection("127.0.0.1", int(url.rpartition(":")[2].partition("/")[0]))
    connection.request("POST", "/v1/chat/completions", b"{}", {"Authorization": f"Bearer {key}"})
    return json.loads(connection.getresponse().read())["choices"][0]["message"]["content"]


@register_tool
def variables() -> dict:
    """What the instance was given."""
    return dict(os.environ)


@register_tool
async def descend(environment: str) -> dict:
    """Have a child do the same, and so on, as long as there is one."""
    try:
        async with Environment(environment, timeout=120) as child:
            below = json.loads((await child.call_tool("descend", {"environment": environment})).text)
            return {**below, "levels": below["levels"] + 1}
    except Exception as error:
        return {"levels": 0, "error": type(error).__name__, "message": str(error)}
'''


ROUTES = [
    "/env",
    "/env/echo/1.0.0",
    "/env-instance/*/list",
    "/env-instances",
    "/env-instances/usage",
    "/env-instance/{child}/files?path=",
    "/env-instance/{child}/exec",
    "/env-instance/{child}/logs",
    "/services/x/mcp",
    "/ports/x/",
    "/metrics",
    "/docs",
    "/health",
    "/instances/",
    "//env",
    "/instances/../env",
    "http://127.0.0.1:1/env",
]


OWNERS: list[dict[str, Any]] = [
    {"datasource": "/etc"},
    {"environment_variables": {"TAU2_DATA_DIR": "/etc"}},
    {"environment_variables": {"AENV_VALIDATION": "1"}},
    {"environment_variables": {"X": {"secret": "KEY"}}},
    {"network": "full"},
    {"model": {"url": "http://127.0.0.1:1/v1"}},
    {"owner": "ann"},
    {"init_command": "id"},
]


def boss(folder: Path, name: str = "boss", grants: dict[str, Any] | None = None, **deploy: Any) -> Path:
    project = make_project(folder, name, code=BOSS, **{"network": "none", **deploy})
    config = json.loads((project / "config.json").read_text())
    given = {"environments": ["echo@^1", "boss"], **(grants or {})}
    (project / "config.json").write_text(json.dumps({**config, **({} if grants is None else {"grants": given})}))
    return project


@pytest.fixture(params=["native", "process"])
async def gateway(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Gateway]:
    projects = [
        make_project(tmp_path),
        make_project(tmp_path, version="2.0.0"),
        make_project(tmp_path, "other"),
        boss(tmp_path, grants={}),
        boss(tmp_path, "few", {"calls": 2}),
        make_project(tmp_path, "stuck", code="import time\ntime.sleep(3600)\n"),
        boss(tmp_path, "brief", {"environments": ["echo@^1", "stuck"], "seconds": 3}),
        boss(tmp_path, "one", {"instances": 1}),
        boss(tmp_path, "flat", {"environments": ["flat", "echo"], "depth": 2}),
        boss(tmp_path, "plain"),
    ]
    async with running_gateway(tmp_path / "home", *projects, engine=request.param) as running:
        yield running
    if request.param == "native":
        assert traces(tmp_path / "home") == []


async def call(env: Environment, name: str, /, **arguments: Any) -> Any:
    return (await env.call_tool(name, arguments, timeout=120)).structured


def using(gateway: Gateway, name: str = "boss") -> Environment:
    return Environment(f"{name}@1.0.0", aenv_url=gateway.address.url)


async def living(gateway: Gateway) -> list[dict[str, Any]]:
    _, reply = await gateway.ask("GET", "/env-instance/*/list")
    found: list[dict[str, Any]] = reply["data"]
    return found


async def until_gone(gateway: Gateway, *ids: str) -> None:
    async with asyncio.timeout(60):
        while {one["id"] for one in await living(gateway)} & {*ids}:
            await asyncio.sleep(0.02)


class TestGrant:
    async def test_an_instance_without_a_network_uses_another_environment(self, gateway: Gateway) -> None:
        async with using(gateway) as env:
            told = await call(env, "ask", environment="echo@1.0.0", tool="echo", arguments={"text": "hello"})
            assert (told["text"], told["is_error"]) == ("hello", False)
            assert told["id"] not in {one["id"] for one in await living(gateway)}
            named = await call(env, "ask", environment="echo", tool="echo", arguments={"text": "latest of ^1"})
            assert named["text"] == "latest of ^1"

    async def test_a_child_belongs_to_the_owner_of_its_parent_and_names_it(self, gateway: Gateway) -> None:
        options = {"aenv_url": gateway.address.url, "owner": "ann", "labels": {"experiment": "a"}}
        async with Environment("boss@1.0.0", **options) as env:  # type: ignore[arg-type]
            [id] = (await call(env, "hold", environment="echo@1.0.0", count=1))["result"]
            _, reply = await gateway.ask("GET", f"/env-instance/{id}")
            child = reply["data"]
            assert (child["parent"], child["owner"]) == (env.instance_id, "ann")
            assert child["labels"] == {"experiment": "a"}

    async def test_an_environment_that_it_does_not_name_is_refused(self, gateway: Gateway) -> None:
        async with using(gateway) as env:
            for environment in ("other@1.0.0", "echo@2.0.0", "echo@2.1.0", "nothing@1.0.0"):
                told = await call(env, "ask", environment=environment, tool="echo", arguments={"text": "x"})
                assert told["error"] == "GrantExceeded", told
                assert "'environments: echo@^1, boss' of 'boss@1.0.0'" in told["message"]

    async def test_when_its_calls_are_used_up_the_next_one_is_refused(self, gateway: Gateway) -> None:
        async with using(gateway, "few") as env:
            await call(env, "hold", environment="echo@1.0.0", count=1)
            answers = [
                await call(env, "again", index=0, tool="echo", arguments={"text": f"{n}"}) for n in range(3)
            ]
            assert [one.get("text") for one in answers] == ["0", "1", None]
            assert answers[2]["error"] == "GrantExceeded" and "'calls: 2' of 'few@1.0.0'" in answers[2]["message"]

    async def test_recursion_ends_where_the_grant_ends_and_leaves_nothing(self, gateway: Gateway) -> None:
        async with using(gateway, "flat") as env:
            told = await call(env, "descend", environment="flat@1.0.0")
            assert told["levels"] == 2
            assert told["error"] == "GrantExceeded" and "'depth: 2' of 'flat@1.0.0'" in told["message"]
            assert [one["id"] for one in await living(gateway)] == [env.instance_id]

    async def test_no_more_live_at_the_same_time_than_it_says(self, gateway: Gateway) -> None:
        async with using(gateway, "one") as env:
            await call(env, "hold", environment="echo@1.0.0", count=1)
            told = await call(env, "ask", environment="echo@1.0.0", tool="echo", arguments={"text": "x"})
            assert told["error"] == "GrantExceeded" and "'instances: 1'" in told["message"]

    async def test_a_child_that_never_answers_is_cut_off_when_the_time_is_over(self, gateway: Gateway) -> None:
        async with using(gateway, "brief") as env:
            told = await call(env, "ask", environment="echo@1.0.0", tool="hang", arguments={})
            assert told["error"] == "GrantExceeded" and "'seconds: 3' of 'brief@1.0.0'" in told["message"]
            late = await call(env, "ask", environment="echo@1.0.0", tool="echo", arguments={"text": "x"})
            assert late["error"] == "GrantExceeded" and "'seconds: 3'" in late["message"]
            await until_gone(gateway, *[one["id"] for one in await living(gateway) if one["parent"]])

    async def test_a_child_that_never_starts_is_cut_off_when_the_time_is_over(self, gateway: Gateway) -> None:
        async with using(gateway, "brief") as env:
            told = await call(env, "ask", environment="stuck@1.0.0", tool="echo", arguments={"text": "x"})
            assert told["error"] == "GrantExceeded" and "'seconds: 3' of 'brief@1.0.0'" in told["message"]
            await until_gone(gateway, *[one["id"] for one in await living(gateway) if one["parent"]])

    async def test_without_a_grant_there_is_no_relay_and_the_error_says_so(self, gateway: Gateway) -> None:
        async with using(gateway, "plain") as env:
            assert "AENV_SYSTEM_URL" not in await call(env, "variables")
            told = await call(env, "ask", environment="echo@1.0.0", tool="echo", arguments={"text": "x"})
            assert told["error"] == "GrantExceeded" and "'grants'" in told["message"]


class TestReach:
    async def test_only_its_own_children_are_found(self, gateway: Gateway) -> None:
        async with using(gateway) as env, using(gateway) as sibling:
            [nephew] = (await call(sibling, "hold", environment="echo@1.0.0", count=1))["result"]
            [child] = (await call(env, "hold", environment="boss@1.0.0", count=1))["result"]
            told = await gateway.call(child, "hold", environment="echo@1.0.0", count=1)
            stranger = await gateway.create("echo@1.0.0")
            for id in (nephew, *told["result"], stranger["id"], sibling.instance_id, env.instance_id):
                for method in ("GET", "DELETE"):
                    assert (await call(env, "raw", method=method, path=f"/env-instance/{id}"))["status"] == 404
                answer = await call(env, "raw", method="POST", path=f"/instances/{id}/tools/echo", body="{}")
                assert answer["status"] == 404
            assert (await call(env, "raw", method="GET", path=f"/env-instance/{child}"))["status"] == 200

    async def test_no_other_route_of_the_gateway_is_there(self, gateway: Gateway) -> None:
        async with using(gateway) as env:
            [child] = (await call(env, "hold", environment="echo@1.0.0", count=1))["result"]
            for path in ROUTES:
                for method in ("GET", "POST"):
                    answer = await call(env, "raw", method=method, path=path.format(child=child), body="{}")
                    assert answer["status"] in (400, 404), (path, answer)

    async def test_neither_another_key_nor_headers_change_who_asks(self, gateway: Gateway) -> None:
        async with using(gateway) as env, using(gateway) as sibling:
            [nephew] = (await call(sibling, "hold", environment="echo@1.0.0", count=1))["result"]
            key = (await call(sibling, "variables"))["AENV_API_KEY"]
            path = f"/env-instance/{nephew}"
            assert (await call(env, "raw", method="GET", path=path, key="x"))["status"] == 401
            assert (await call(env, "raw", method="GET", path=path, key=key))["status"] == 401
            headers = {"aenv-relay-instance": sibling.instance_id, "AEnvCore-EnvInstance-ID": nephew}
            assert (await call(env, "raw", method="GET", path=path, headers=headers))["status"] == 404
            told = await call(env, "raw", method="POST", path="/tools/echo", body="{}", headers=headers)
            assert told["status"] == 404

    async def test_a_child_cannot_be_given_what_only_its_owner_has(self, gateway: Gateway) -> None:
        async with using(gateway) as env:
            for said in OWNERS:
                body = json.dumps({"envName": "echo@1.0.0", **said})
                path = "/env-instance/echo-" + "a" * 26
                answer = await call(env, "raw", method="PUT", path=path, body=body)
                assert answer["status"] == 400 and next(iter(said)) in answer["text"], said


class TestEnds:
    async def test_children_are_gone_when_the_delete_of_their_parent_is_answered(self, gateway: Gateway) -> None:
        async with using(gateway) as env:
            ids = (await call(env, "hold", environment="echo@1.0.0", count=3))["result"]
            assert {one["id"] for one in await living(gateway)} == {*ids, env.instance_id}
        assert await living(gateway) == []
        _, reply = await gateway.ask("GET", f"/env-instance/{ids[0]}")
        assert reply["data"]["reason"] == "the instance that made it has ended"

    async def test_a_parent_that_is_killed_takes_ten_children_along(self, gateway: Gateway) -> None:
        async with using(gateway) as env:
            ids = (await call(env, "hold", environment="echo@1.0.0", count=10))["result"]
            [below] = (await call(env, "hold", environment="boss@1.0.0", count=1))["result"]
            grandchildren = (await gateway.call(below, "hold", environment="echo@1.0.0", count=1))["result"]
            os.kill(pid_of(gateway.home, env), signal.SIGKILL)
            await until_gone(gateway, *ids, below, *grandchildren, str(env.instance_id))

    async def test_a_parent_whose_time_is_over_takes_its_children_along(self, gateway: Gateway) -> None:
        env = Environment("boss@1.0.0", aenv_url=gateway.address.url, ttl="1h")
        async with env:
            ids = (await call(env, "hold", environment="echo@1.0.0", count=2))["result"]
            await env.renew("1ms")
            await until_gone(gateway, *ids, str(env.instance_id))


async def test_a_child_asks_the_model_of_its_parent(tmp_path: Path) -> None:
    home, model_urls = tmp_path / "home", frozenset({"loopback"})
    async with (
        streaming_model(completion("well")) as model,
        running_gateway(home, boss(tmp_path, grants={}), engine="native", model_urls=model_urls) as gateway,
    ):
        options: Any = {"aenv_url": gateway.address.url, "model_url": model.url, "model_key": "sk-key"}
        async with Environment("boss@1.0.0", **options) as env:
            told = await call(env, "ask", environment="boss@1.0.0", tool="model", arguments={})
            assert told["text"] == "well"
        assert model.asked[0].headers["authorization"] == "Bearer sk-key"


async def test_children_of_a_parent_that_died_with_the_gateway_end_when_another_one_takes_over(
    tmp_path: Path,
) -> None:
    home = tmp_path / "home"
    projects = [boss(tmp_path, grants={}), make_project(tmp_path)]
    command = ("serve", *projects, "--home", home, "--port", "0", "--data-port", "0", "--engine", "native")
    with serving(*command) as server:
        url = server.until("AENV_SYSTEM_URL", on="stderr")[-1].partition("=")[2]
        ends, lives = Environment("boss@1.0.0", aenv_url=url), Environment("boss@1.0.0", aenv_url=url)
        await asyncio.gather(ends.initialize(), lives.initialize())
        lost = (await call(ends, "hold", environment="echo@1.0.0", count=3))["result"]
        kept = (await call(lives, "hold", environment="echo@1.0.0", count=1))["result"]
        server.stop(signal.SIGKILL)
    os.kill(pid_of(home, ends), signal.SIGKILL)
    async with running_gateway(home, *projects, engine="native") as gateway:
        await until_gone(gateway, str(ends.instance_id), *lost)
        assert {one["id"] for one in await living(gateway)} == {lives.instance_id, *kept}
        again = Environment("boss@1.0.0", aenv_url=gateway.address.url, attach=lives.instance_id)
        assert await call(again, "again", index=0, tool="echo", arguments={"text": "still"}) == {"text": "still"}
        await gateway.ask("DELETE", f"/env-instance/{lives.instance_id}")
        assert await living(gateway) == []
        await again.release()
    assert traces(home) == []


def pid_of(home: Path, env: Environment) -> int:
    lines = (home / "run" / "instances" / str(env.instance_id) / "state.jsonl").read_text().splitlines()
    return next(int(state["pid"]) for line in lines if "pid" in (state := json.loads(line)))


class TestAccounts:
    async def test_an_author_reaches_nothing_that_only_the_user_of_the_environment_may_see(
        self, tmp_path: Path
    ) -> None:
        home = tmp_path / "home"
        home.mkdir()
        tokens = await make_accounts(home)
        async with running_gateway(home) as gateway:
            team = Team(gateway, **tokens)
            await push(team, team.alice, make_project(tmp_path, "diary"), access="private")
            reaching = {"environments": ["diary@^1"]}
            await push(team, team.bob, boss(tmp_path, "bobs", reaching))
            await push(team, team.alice, boss(tmp_path, "alices", reaching))
            for name, expected in (("bobs", "NotFound"), ("alices", None)):
                made = await team.create(team.alice, envName=f"{name}@1.0.0")
                body = {"environment": "diary@1.0.0", "tool": "echo", "arguments": {"text": "dear diary"}}
                target = f"/instances/{made['id']}/tools/ask"
                _, reply = await gateway.ask("POST", target, body, team.alice, gateway.data)
                assert reply["data"]["structured"].get("error") == expected, reply


async def push(team: Team, who: Any, source: Path, access: str = "team") -> None:
    config = json.loads((source / "config.json").read_text())
    bundle = bundles.pack(source, source.with_suffix(".packed"))
    content = source.with_suffix(".packed").read_bytes()
    about = {"digest": bundle.digest, "size_bytes": len(content)}
    assert await team.status(who, "POST", "/bundles", about) == 200
    assert await team.status(who, "PUT", f"/bundles/{bundle.digest}?offset=0", content) == 200
    body = {"name": config["name"], "version": config["version"], "bundle": bundle.digest, "access": access}
    assert await team.status(who, "POST", "/env", body) == 200


def test_a_route_shows_no_token_and_refuses_bodies_of_unknown_length() -> None:
    async def never() -> Any:
        raise AssertionError

    route = GatewayRoute("boss-x", never, "sekret")
    assert "sekret" not in repr(route)
    head = b"PUT /env-instance/x HTTP/1.1\r\nAuthorization: Bearer sekret\r\nAenv-Relay-Instance: other"
    asked = route.request(head)
    assert b"aenv-relay-instance: boss-x" in asked.head and b"other" not in asked.head
    with pytest.raises(Exception, match="content-length"):
        route.request(head + b"\r\nTransfer-Encoding: chunked")
    with pytest.raises(Exception, match="AENV_API_KEY"):
        route.request(head + b"\r\nAuthorization: Bearer sekret")
