"""Attacks of one tenant on another through the HTTP API, on a gateway of root's and on one of an ordinary user."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from urllib.parse import quote

import pytest

from aenv import Environment
from tests.attacks.served import Served, served
from tests.ordinary import OrdinaryUser


@pytest.fixture(scope="module", params=["root", "user"])
def gateway(request: pytest.FixtureRequest, user: OrdinaryUser) -> Iterator[Served]:
    """With accounts, and a service of a's."""
    with served(user if request.param == "user" else None, accounts=True) as gateway:
        body = {"envName": "echo@1.0.0", "service_name": "hers"}
        assert gateway.ask("POST", "/env-service", body, token=gateway.tokens["a"]).status == 200
        yield gateway


# Ids


def test_an_id_that_was_seen_does_not_open_an_instance_of_our_own_client(gateway: Served) -> None:
    made = gateway.create(token=gateway.tokens["a"], by="PUT")
    by_header = {"AEnvCore-EnvInstance-ID": made["id"]}
    path = f"/instances/{made['id']}/tools/echo"
    for headers, target in [({}, path), (by_header, "/tools/echo")]:
        for data_port in (True, False) if target == path else (True,):
            reply = gateway.ask("POST", target, {"text": "a"}, headers=headers, data_port=data_port)
            assert (reply.status, reply.json["error"]) == (401, "unauthenticated")
            assert "instance token is missing" in reply.json["message"]
    said = {
        who: gateway.call(made["id"], "echo", token=gateway.tokens[who], text="a").status for who in gateway.tokens
    }
    assert said == {"admin": 200, "a": 200, "b": 404, "viewer": 403}
    assert gateway.call(made["id"], "echo", token=made["token"], text="a").status == 200


def test_nor_do_the_ids_of_several_that_were_made_at_once(gateway: Served) -> None:
    body = {"envName": "echo@1.0.0", "count": 2}
    for made in gateway.ask("POST", "/env-instances", body, token=gateway.tokens["a"]).data:
        assert gateway.call(made["id"], "echo", text="a").status == 401
        assert gateway.call(made["id"], "echo", token=made["token"], text="a").status == 200


def test_a_published_client_still_needs_nothing_but_the_id(gateway: Served) -> None:
    made = gateway.create(token=gateway.tokens["a"], by="POST")
    assert gateway.call(made["id"], "echo", text="a").status == 200


def test_our_own_client_sends_the_token_and_notices_nothing(gateway: Served) -> None:
    async def use() -> object:
        token = gateway.tokens["a"]
        async with Environment("echo@1.0.0", aenv_url=gateway.url, api_key=token) as env:
            said = await env.call_tool("echo", {"text": "a"})
            length = await env.call_function("size", {"text": "abc"})
            return said.content[0]["text"], length

    assert asyncio.run(use()) == ("a", 3)


def test_the_command_line_calls_an_instance_of_an_account(gateway: Served) -> None:
    made = gateway.create(token=gateway.tokens["a"], by="PUT")
    variables = {"AENV_SYSTEM_URL": gateway.url, "AENV_HOME": str(gateway.folder / "client")}
    call = ["call", "echo", "text=a", "--instance", made["id"]]
    done = gateway.run(*call, **variables, AENV_API_KEY=gateway.tokens["a"])
    assert (done.returncode, done.stdout, done.stderr) == (0, "a\n", "")
    other = gateway.run(*call, **variables, AENV_API_KEY=gateway.tokens["b"])
    assert (other.returncode, other.stdout) == (1, "")


# Viewers


def test_a_viewer_is_given_no_token_of_an_instance(gateway: Served) -> None:
    made = gateway.create(token=gateway.tokens["a"], by="PUT")
    at = f"/env-instance/{made['id']}"
    assert gateway.ask("GET", at, token=gateway.tokens["a"]).data["token"]
    seen = gateway.ask("GET", at, token=gateway.tokens["viewer"])
    assert (seen.status, seen.data["id"], seen.data["token"]) == (200, made["id"], None)


def test_a_viewer_learns_no_id_that_opens_an_instance(gateway: Served) -> None:
    viewer, a = gateway.tokens["viewer"], gateway.tokens["a"]
    opened, closed = (gateway.create(token=a, by=by, labels={"seen": "once"})["id"] for by in ("POST", "PUT"))
    pages = []
    cursor = ""
    while page := gateway.ask("GET", f"/env-instance/*/list?label=seen=once&limit=1{cursor}", token=viewer).data:
        pages += page
        cursor = f"&cursor={quote(page[0]['id'])}"
    usage = gateway.ask("GET", "/env-instances/usage?label=seen=once", token=viewer).data["instances"]
    cut = opened[: opened.rindex("-") + 7] + "…"
    for rows in (pages, usage):
        assert [row["id"] for row in rows] == [cut, closed]
    for target in (f"/env-instance/{quote(cut)}", f"/env-instance/{quote(cut)}/logs"):
        assert gateway.ask("GET", target, token=viewer).status == 404
    assert gateway.ask("POST", f"/instances/{quote(cut)}/tools/echo", {"text": "a"}, data_port=True).status == 404
    seen = gateway.ask("GET", "/env-instance/*/list?label=seen=once", token=a).data
    assert [row["id"] for row in seen] == [opened, closed]


def test_a_viewer_calls_no_service(gateway: Served) -> None:
    def call(who: str) -> int:
        target = "/services/hers/tools/echo"
        return gateway.ask("POST", target, {"text": "a"}, token=gateway.tokens[who], data_port=True).status

    assert {who: call(who) for who in ("viewer", "b")} == {"viewer": 403, "b": 404}
    assert call("a") in (200, 503)  # its replica may still be starting


def test_a_viewer_revokes_no_token_but_its_own(gateway: Served) -> None:
    def id_of(token: str) -> str:
        return str(gateway.ask("GET", "/whoami", token=token).data["account"])

    mine = gateway.ask("POST", "/token", {"user": "a", "role": "viewer"}, token=gateway.tokens["admin"]).data[
        "token"
    ]
    theirs = id_of(gateway.tokens["a"])
    assert gateway.ask("DELETE", f"/token/{theirs}", token=mine).status == 403
    assert gateway.ask("GET", "/whoami", token=gateway.tokens["a"]).status == 200
    assert gateway.ask("DELETE", f"/token/{id_of(mine)}", token=mine).status == 200


# Counters


def test_the_counters_name_no_environment_of_another(gateway: Served) -> None:
    assert gateway.push(gateway.project("undisclosed"), token=gateway.tokens["a"]).returncode == 0
    for label in ("one", "two"):
        made = gateway.create("undisclosed", token=gateway.tokens["a"], labels={"experiment": f"plan-{label}"})
        gateway.ask("DELETE", f"/env-instance/{made['id']}", token=gateway.tokens["a"])

    def counted(token: str | None) -> str:
        return gateway.ask("GET", "/metrics", token=token).body.decode()

    for token in (None, gateway.tokens["b"], gateway.tokens["viewer"], made["token"]):
        said = counted(token)
        assert ("undisclosed" in said, "plan-" in said) == (False, False)
        assert (
            said.count('aenv_api_instance_operations_total{env_name="",operation="create",status="success"}') == 1
        )
    said = counted(gateway.tokens["admin"])
    assert ("undisclosed" in said, "plan-" in said) == (True, True)


# Names


def test_no_account_takes_the_name_of_a_built_in_environment(gateway: Served) -> None:
    for name in ("gsm-tools", "python", "Python", "swe-env", "swe_env", "aenv-tools", "echo"):
        done = gateway.push(gateway.project(name, "9.0.0"), token=gateway.tokens["b"])
        assert done.returncode == 1
        assert f"{name!r} is reserved for administrators" in done.stderr
        assert "choose another name" in done.stderr
        reply = gateway.ask(
            "POST", f"/env/{name}/9.0.0/sign", token=gateway.tokens["b"]
        )  # as published clients do
        assert (reply.status, reply.json["error"]) == (403, "forbidden")
    made = gateway.create("gsm-tools", token=gateway.tokens["a"])
    assert (made["env"]["version"], "echo" in str(made["tools"])) == ("1.0.0", False)


def test_an_administrator_gives_such_a_name_and_another_account_does_not_change_it(gateway: Served) -> None:
    for version, who, expected in (("1.1.0", "admin", 0), ("1.2.0", "b", 1), ("1.2.0", "admin", 0)):
        done = gateway.push(gateway.project("gsm-tools", version), token=gateway.tokens[who])
        assert done.returncode == expected, done.stderr
    assert "echo" in str(gateway.create("gsm-tools", token=gateway.tokens["a"])["tools"])
    given = gateway.ask("PUT", "/env/gsm-tools/access", {"writers": ["b"]}, token=gateway.tokens["admin"])
    assert given.status == 200
    assert gateway.push(gateway.project("gsm-tools", "1.3.0"), token=gateway.tokens["b"]).returncode == 0


def test_the_first_push_of_a_name_claims_it(gateway: Served) -> None:
    assert gateway.push(gateway.project("mine"), token=gateway.tokens["a"]).returncode == 0
    done = gateway.push(gateway.project("mine", "2.0.0"), token=gateway.tokens["b"])
    assert (done.returncode, "is not yours to change" in done.stderr) == (1, True)
