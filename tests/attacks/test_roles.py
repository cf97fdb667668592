"""Every route, called by each kind of caller: what is refused to whom, and that nothing refused has an effect.

The things that are asked for are a's: an instance, a service, a private environment, an account.
"""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import pytest

from aenv.control.gateway.tokens import Tokens
from aenv.control.stores.sqlite import SqliteStore
from tests.attacks.served import Reply, Served, served

CALLERS = ("nobody", "instance", "port", "viewer", "other", "owner", "admin")
"""Without a token; with a token of the instance, or of a port of it, as if it were an account's; a viewer who is
called a; the user b; the user a; an administrator."""

DIGEST = hashlib.sha256(b"no bundle").hexdigest()
BODIES: dict[str, Any] = {
    "PUT /env-instance/{id}": {"envName": "echo@1.0.0"},
    "POST /env-instance": {"envName": "echo@1.0.0", "ttl": "1m"},
    "POST /env-instances": {"envName": "echo@1.0.0", "ttl": "1m", "count": 1},
    "PUT /env-instance/{id}/ttl": {"ttl": "5m"},
    "POST /env-instance/{id}/exec": {"command": "true"},
    "PUT /env-instance/{id}/files/{path}": b"content",
    "POST /env-instance/{id}/presign-url": {"port": 9},
    "PUT /env/{name}/{version}/warm": {"count": 0},
    "POST /env-service": {"envName": "echo@1.0.0"},
    "PUT /env-service/{id}": {"replicas": 1},
    "POST /env": {"name": "{name}", "version": "{new}"},
    "PUT /env/{name}/access": {"readers": ["c"]},
    "PUT /env/{name}/{version}": {"description": "changed"},
    "POST /env/{name}/{version}/aci_trigger": {"image": "example/image"},
    "POST /bundles": {"digest": DIGEST, "size_bytes": 9},
    "PUT /bundles/{digest}": b"no bundle",
    "PUT /signed/{token}": b"no bundle",
    "POST /token": {"user": "c"},
    "PUT /secret/{name}": {"value": "a value"},
    "PUT /token": {"user": "c", "maxInstanceCount": 1},
    "data POST /instances/{id}/tools/{tool}": {"text": "a"},
    "data POST /services/{service}/tools/{tool}": {"text": "a"},
}
TABLE = """
    PUT /env-instance/{id}                      401 401 401 403 409 200 409
    GET /env-instance/{id}                      401 401 401 200 404 200 200
    POST /env-instance                          401 401 401 403 200 200 200
    POST /env-instances                         401 401 401 403 200 200 200
    GET /env-instance/{id}/list                 401 401 401 200 200 200 200
    PUT /env-instance/{id}/ttl                  401 401 401 403 404 200 200
    GET /env-instance/{id}/logs                 401 401 401 200 404 200 200
    GET /env-instance/{id}/terminal             401 401 401 403 404 200 200
    POST /env-instance/{id}/exec                401 401 401 403 404 200 200
    PUT /env-instance/{id}/files/{path}         401 401 401 403 404 200 200
    GET /env-instance/{id}/files/{path}         401 401 401 200 404 200 200
    GET /env-instance/{id}/files                401 401 401 200 404 200 200
    GET /env-instance/{id}/events               401 401 401 200 404 200 200
    GET /env-instance/{id}/history              401 401 401 200 404 200 200
    POST /env-instance/{id}/presign-url         401 401 401 403 404 404 404
    POST /leases                                401 401 401 403 200 200 200
    GET /env-instances/usage                    401 401 401 200 200 200 200
    PUT /env/{name}/{version}/warm              401 401 401 403 404 200 200
    GET /env/{name}/{version}/root              401 401 401 200 404 200 200
    POST /env-service                           401 401 401 403 200 200 200
    GET /env-service/{id}/list                  401 401 401 200 200 200 200
    GET /env-service/{id}                       401 401 401 200 404 200 200
    GET /env-service/{id}/logs                  401 401 401 200 404 200 200
    PUT /env-service/{id}                       401 401 401 403 404 200 200
    GET /env                                    200 401 401 200 200 200 200
    POST /env                                   401 401 401 403 403 200 200
    GET /env/{name}                             404 401 401 200 404 200 200
    GET /env/{name}/access                      401 401 401 403 404 200 200
    PUT /env/{name}/access                      401 401 401 403 404 200 200
    GET /env/{name}/audit                       401 401 401 403 404 200 200
    GET /audit                                  401 401 401 403 403 403 200
    GET /env/{name}/{version}                   404 401 401 200 404 200 200
    PUT /env/{name}/{version}                   401 401 401 403 404 200 200
    GET /env/{name}/{version}/exists            200 401 401 200 200 200 200
    GET /env/{name}/{version}/status            404 401 401 200 404 200 200
    POST /env/{name}/{version}/aci_trigger      401 401 401 403 404 200 200
    POST /env/{name}/{version}/release          401 401 401 403 404 200 200
    POST /bundles                               401 401 401 403 200 200 200
    PUT /bundles/{digest}                       401 401 401 403 400 400 400
    GET /env/{name}/{version}/bundle            404 401 401 200 404 200 200
    POST /env/{name}/{version}/sign             401 401 401 403 403 200 200
    GET /signed/{token}                         200 200 200 200 200 200 200
    PUT /signed/{token}                         403 403 403 403 403 403 403
    GET /data                                   401 401 401 400 400 400 400
    POST /token                                 401 401 401 403 403 403 200
    PUT /token                                  401 401 401 403 403 403 200
    GET /token                                  401 401 401 403 403 403 200
    GET /token/validate/{token}                 200 200 200 200 200 200 200
    GET /token/info/{id}                        401 401 401 200 404 200 200
    PUT /secret/{name}                          401 401 401 403 200 200 200
    GET /secret                                 401 401 401 403 200 200 200
    GET /whoami                                 401 401 401 200 200 200 200
    GET /health                                 200 200 200 200 200 200 200
    GET /ready                                  200 200 200 200 200 200 200
    GET /metrics                                200 200 200 200 200 200 200
    GET /openapi.json                           200 200 200 200 200 200 200
    GET /docs                                   200 200 200 200 200 200 200
    GET /                                       200 200 200 200 200 200 200
    GET /assets/{name}                          404 404 404 404 404 404 404
    GET /session                                200 401 401 200 200 200 200
    POST /session                               200 401 401 200 200 200 200
    data POST /instances/{id}/tools/{tool}      401 200 401 403 404 200 200
    data POST /services/{service}/tools/{tool}  401 400 401 403 404 200 200
    DELETE /token/{id}                          401 401 401 403 403 200 200
    DELETE /env/{name}/{version}                401 401 401 403 404 200 200
    DELETE /env-service/{id}                    401 401 401 403 404 200 200
    DELETE /env-instances                       401 401 401 403 400 400 400
    DELETE /env-instance/{id}/files/{path}      401 401 401 403 404 200 200
    DELETE /secret/{name}                       401 401 401 403 200 200 200
    DELETE /env-instance/{id}                   401 401 401 403 404 200 200
"""
"""A status for each caller, in the order of `CALLERS`. What is deleted is last."""
STREAMS = {"GET /env-instances/live"}
"""Answers without an end, which tests/test_centre.py reads."""


@dataclass
class Things:
    """What is a's, by the names that paths have for it."""

    instance: str
    service: str
    values: dict[str, str]


@pytest.fixture(scope="module")
def gateway() -> Iterator[Served]:
    with served(accounts=True) as gateway:
        yield gateway


def make(gateway: Served, name: str) -> Things:
    """A set of things of a's, all called by `name`."""
    a, admin = gateway.tokens["a"], gateway.tokens["admin"]
    done = gateway.push(gateway.project(name), token=a)
    assert done.returncode == 0, done.stderr
    assert gateway.ask("PUT", f"/env/{name}/access", {"access": "private"}, token=a).status == 200
    body = {"envName": "echo@1.0.0", "service_name": name}
    assert gateway.ask("POST", "/env-service", body, token=a).status == 200
    account = gateway.ask("POST", "/token", {"user": "a"}, token=admin).data
    made = gateway.create(token=a, by="PUT")
    assert gateway.ask("PUT", f"/env-instance/{made['id']}/files/file", b"content", token=a).status == 200
    signed = gateway.ask("POST", f"/env/{name}/1.0.0/sign?style=read", token=a).data.rpartition("/")[2]
    values = {
        "id": made["id"],
        "service": name,
        "name": name,
        "version": "1.0.0",
        "new": "2.0.0",
        "path": "file",
        "digest": DIGEST,
        "account": account["id"],
        "token": signed,
        "account token": account["token"],
        "tool": "echo",
    }
    return Things(made["id"], name, values)


def tokens_of(gateway: Served, things: Things) -> dict[str, str | None]:
    async def signed() -> tuple[str, str]:
        tokens = Tokens()
        async with SqliteStore(gateway.home / "aenv.db") as store:
            await tokens.load(store)
        account = gateway.ask("GET", "/whoami", token=gateway.tokens["a"]).data["account"]
        return tokens.sign(things.instance, account), tokens.sign(things.instance, account, port=9)

    instance, port = asyncio.run(signed())
    known = gateway.tokens
    return {
        "nobody": None,
        "instance": instance,
        "port": port,
        "viewer": known["viewer"],
        "other": known["b"],
        "owner": known["a"],
        "admin": known["admin"],
    }


def ask(gateway: Served, route: str, things: Things, token: str | None) -> Reply:
    values = dict(things.values)
    on_data_port = route.startswith("data ")
    method, _, path = route.removeprefix("data ").partition(" ")
    if path.startswith("/env-service/{id}"):
        values["id"] = things.service
    elif path.startswith("/token/validate"):
        values["token"] = values["account token"]
    elif path.startswith("/token/"):
        values["id"] = values["account"]
    body = BODIES.get(route)
    if isinstance(body, dict):
        body = {key: value.format(**values) if isinstance(value, str) else value for key, value in body.items()}
    if path.endswith("/list"):
        values["id"] = "*"
    elif route == "DELETE /env/{name}/{version}":
        values["version"] = values["new"]  # the first one is released by then
    target = path.replace("{path:path}", "{path}").format(**values)
    return gateway.ask(method, target, body, token=token, data_port=on_data_port)


def rows() -> list[tuple[str, dict[str, int]]]:
    found = []
    for line in filter(str.strip, TABLE.splitlines()):
        *route, statuses = line.strip().split(maxsplit=len(line.split()) - len(CALLERS))
        found.append((" ".join(route), dict(zip(CALLERS, map(int, statuses.split()), strict=True))))
    return found


def state(gateway: Served, things: Things) -> Any:
    """What a caller who is not its owner might have changed, as an administrator sees it."""

    def see(target: str) -> Any:
        return gateway.ask("GET", target, token=gateway.tokens["admin"]).data

    name, id = things.values["name"], things.instance
    instance, details = see(f"/env-instance/{id}"), see(f"/env/{name}/1.0.0")
    return {
        "instances": sorted(one["id"] for one in see("/env-instance/*/list?owner=a")),
        "instance": [instance[key] for key in ("status", "expires_at", "labels")],
        "files": [one["path"] for one in see(f"/env-instance/{id}/files")],
        "services": [(one["id"], one["replicas"]) for one in see("/env-service/*/list") if one["owner"] == "a"],
        "versions": [one["version"] for one in see(f"/env/{name}")["versions"]],
        "environment": [details[key] for key in ("description", "status", "digest", "artifacts", "access")],
        "access": see(f"/env/{name}/access"),
        "accounts": [(one["id"], one["revoked_at"], one["maxInstanceCount"]) for one in see("/token")],
    }


def test_the_table_has_every_route_of_the_document(gateway: Served) -> None:
    paths = gateway.ask("GET", "/openapi.json").json["paths"]
    documented = {f"{method.upper()} {path}" for path, by in paths.items() for method in by}
    assert {route for route, _ in rows() if not route.startswith("data ")} == documented - STREAMS


def test_each_caller_gets_what_is_theirs_and_what_is_refused_has_no_effect(gateway: Served) -> None:
    things = {"admin": make(gateway, "hers"), "owner": make(gateway, "mine")}
    tokens = tokens_of(gateway, things["owner"])
    for own in things.values():
        service = "data POST /services/{service}/tools/{tool}"
        while ask(gateway, service, own, tokens["owner"]).status == 503:
            pass  # its replica starts
    before = state(gateway, things["owner"])
    for callers in (CALLERS[:-2], CALLERS[-2:]):
        for route, expected in rows():
            for who in callers:
                reply = ask(gateway, route, things.get(who, things["owner"]), tokens[who])
                assert reply.status == expected[who], (route, who, reply.status, reply.body)
        if callers == CALLERS[:-2]:
            assert state(gateway, things["owner"]) == before
