"""Attacks on the secrets of a user: by the author of an environment, another account, and a viewer."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.attacks.served import Served, served
from tests.test_secrets import CODE, KEY, VALUE, digest, shows


@pytest.fixture(scope="module")
def gateway() -> Iterator[Served]:
    with served(accounts=True) as gateway:
        a = gateway.tokens["a"]
        assert gateway.ask("PUT", "/secret/OPENAI", {"value": VALUE}, token=a).status == 200
        yield gateway


def push(gateway: Served, who: str, name: str, **deploy: object) -> None:
    done = gateway.push(gateway.project(name, code=CODE, **deploy), token=gateway.tokens[who])
    assert done.returncode == 0, done.stderr


def said(gateway: Served, id: str, tool: str) -> str:
    reply = gateway.call(id, tool, token=gateway.tokens["a"])
    assert reply.status == 200, reply.body
    return "".join(part["text"] for part in reply.data["content"])


def test_an_author_takes_no_secret_by_a_config_of_their_own(gateway: Served) -> None:
    push(gateway, "b", "trap", environmentVariables=KEY)
    a, b = gateway.tokens["a"], gateway.tokens["b"]
    for route in ("/env-instance", "/env-service"):
        reply = gateway.ask("POST", route, {"envName": "trap@1.0.0"}, token=a)
        assert (reply.status, b"asks for your secret 'OPENAI'" in reply.body) == (400, True), reply.body
        mine = gateway.ask("POST", route, {"envName": "trap@1.0.0"}, token=b)
        assert (mine.status, b"there is no secret 'OPENAI'" in mine.body) == (400, True), mine.body
    # The owner of an environment is who pushed it: nobody makes it seem a's.
    as_a = gateway.ask("POST", "/env-instance", {"envName": "trap@1.0.0", "owner": "a"}, token=b)
    assert as_a.status == 400


@pytest.mark.parametrize("named", [{"owner": "a"}, {"labels": {"owner": "a"}}])
def test_another_account_gets_no_secret_by_naming_its_owner(gateway: Served, named: dict[str, object]) -> None:
    body = {"envName": "echo@1.0.0", "environment_variables": KEY, **named}
    reply = gateway.ask("POST", "/env-instance", body, token=gateway.tokens["b"])
    assert (reply.status, b"there is no secret" in reply.body) == (400, True), reply.body
    for name in ("a/OPENAI", "a%2FOPENAI", "../a/OPENAI"):
        assert gateway.ask("DELETE", f"/secret/{name}", token=gateway.tokens["b"]).status == 404
        body = {"envName": "echo@1.0.0", "environment_variables": {"KEY": {"secret": name}}}
        assert gateway.ask("POST", "/env-instance", body, token=gateway.tokens["b"]).status == 400


def test_nothing_that_a_viewer_or_the_operator_sees_has_the_value(gateway: Served) -> None:
    push(gateway, "a", "mine", environmentVariables=KEY)
    made = gateway.create("mine@1.0.0", token=gateway.tokens["a"], by="PUT")
    assert said(gateway, made["id"], "digest") == digest(VALUE)
    assert "***" in said(gateway, made["id"], "leak")
    said(gateway, made["id"], "say")
    said(gateway, made["id"], "fail")
    for who in ("viewer", "a", "admin"):
        for target in (
            *(f"/env-instance/{made['id']}{path}" for path in ("", "/history", "/events", "/logs")),
            *("/env/mine/1.0.0", "/env", "/env-instance/*/list"),
        ):
            reply = gateway.ask("GET", target, token=gateway.tokens[who])
            assert reply.status == 200, (target, reply.body)
            assert not shows(reply.body), (target, reply.body)
    printed = gateway.ask("GET", f"/env-instance/{made['id']}/logs", token=gateway.tokens["viewer"]).body
    assert printed.count(b"it is ***") == 2
    assert not shows(gateway.log)


def test_a_viewer_neither_sees_nor_changes_secrets(gateway: Served) -> None:
    viewer = gateway.tokens["viewer"]
    asked = (("GET", "/secret"), ("PUT", "/secret/OPENAI"), ("DELETE", "/secret/OPENAI"))
    for method, target in asked:
        body = {"value": "mine now"} if method == "PUT" else None
        assert gateway.ask(method, target, body, token=viewer).status == 403


def test_a_request_that_is_refused_does_not_repeat_the_value(gateway: Served) -> None:
    reply = gateway.ask("PUT", "/secret/OPENAI", {"value": [VALUE]}, token=gateway.tokens["a"])
    assert reply.status == 400
    assert not shows(reply.body)
    reply = gateway.ask("PUT", "/secret/a.b:c", {"value": VALUE}, token=gateway.tokens["a"])
    assert reply.status == 400
    assert not shows(reply.body)
    assert not shows(gateway.log)
