"""A request that is refused says which of its fields is wrong, by the name that the client sent."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from tests.gateways import Gateway, make_project, new_id, running_gateway

CREATE = ("POST", "/env-instance", {"envName": "echo"})
PUT = ("PUT", "/env-instance/{new}", {"envName": "echo"})
MANY = ("POST", "/env-instances", {"envName": "echo", "count": 1})
RENEW = ("PUT", "/env-instance/{id}/ttl", {"ttl": "1h"})
EXEC = ("POST", "/env-instance/{id}/exec", {"command": "true"})
SIGN = ("POST", "/env-instance/{id}/presign-url", {"port": 80})
WARM = ("PUT", "/env/echo/1.0.0/warm", {"count": 0})
SERVICE = ("POST", "/env-service", {"envName": "echo"})
CHANGE = ("PUT", "/env-service/{id}", {})
TOKEN = ("POST", "/token", {"user": "alice"})
SECRET = ("PUT", "/secret/KEY", {"value": "x"})
QUOTA = ("PUT", "/token", {"user": "alice", "max_instances": 1})
PUSH = ("POST", "/env", {"name": "new", "version": "1.0.0"})
REPLACE = ("PUT", "/env/pushed/1.0.0", {})
ACCESS = ("PUT", "/env/pushed/access", {})
ANNOUNCE = ("POST", "/bundles", {"digest": "0" * 64, "size_bytes": 1})
IMAGE = ("POST", "/env/pushed/1.0.0/aci_trigger", {"image": "x"})
ROUTES = (
    *(CREATE, PUT, MANY, RENEW, EXEC, SIGN, WARM, SERVICE, CHANGE, TOKEN, QUOTA, PUSH, REPLACE, ACCESS, ANNOUNCE),
    *(IMAGE, SECRET),
)

BAD_VALUES: list[tuple[tuple[str, str, dict[str, Any]], str, Any]] = [
    *((route, "ttl", value) for route in (CREATE, PUT, MANY, RENEW) for value in ("soon", "-1h", "0s", "9999d")),
    *((route, "idle_timeout", value) for route in (CREATE, PUT, MANY) for value in ("soon", "9999d")),
    *((route, "wait", value) for route in (CREATE, PUT, MANY) for value in ("soon", "2h")),
    *((route, "envName", value) for route in (CREATE, PUT, MANY, SERVICE) for value in ("", "a b", "echo@a b")),
    *(
        (CREATE, f"resources.{name}", "much")
        for name in ("cpu", "memory", "ephemeralStorage", "pids", "openFiles")
    ),
    (CREATE, "resources.wings", 2),
    *((CREATE, "resources.memory", value) for value in ("0", 0, -1)),
    *((CREATE, "network", value) for value in ("some", "full", {"egress": ["a b"]}, {"other": []})),
    (CREATE, "datasource", "/etc"),
    (CREATE, "arguments.0", ["\0"]),
    (CREATE, "environment_variables.A", {"A": "\0"}),
    (CREATE, "environment_variables", {"A=B": ""}),
    *((route, "environment_variables.A", {"A": {"secret": "none"}}) for route in (CREATE, PUT, MANY, SERVICE)),
    (CREATE, "environment_variables", {"A-B": {"secret": "KEY"}}),
    *((CREATE, "environment_variables.A", {"A": value}) for value in ({"secrt": "KEY"}, {}, ["KEY"])),
    *((SECRET, "value", value) for value in ("", "\0", "x" * (17 << 10))),
    (CREATE, "labels", {"a=b": ""}),
    *((MANY, "count", value) for value in (0, 1001)),
    *((SERVICE, "service_name", value) for value in ("A B", "x" * 64)),
    *((SERVICE, "replicas", value) for value in (-1, 101)),
    *((SERVICE, f"{name}_{kind}", "much") for name in ("cpu", "memory") for kind in ("request", "limit")),
    *((SERVICE, f"ephemeral_storage_{kind}", "much") for kind in ("request", "limit")),
    (SERVICE, "storage_size", "much"),
    (SERVICE, "pvc_name", "../x"),
    (SERVICE, "environment_variables", {"A=B": ""}),
    *((CHANGE, "replicas", value) for value in (0, 101)),
    *((CHANGE, "image", value) for value in ("other", "other@1.0.0", "echo@a b")),
    (CHANGE, "version", "a b"),
    (CHANGE, "environment_variables", {"A=B": ""}),
    *((TOKEN, "user", value) for value in ("", " ", "x" * 129)),
    *((TOKEN, "role", value) for value in ("king", "anonymous")),
    *((TOKEN, "expires", value) for value in ("soon", "-1h")),
    *((TOKEN, name, -1) for name in ("max_instances", "maxInstanceCount")),
    *((QUOTA, name, 0) for name in ("max_instances", "maxInstanceCount")),
    *((PUSH, "name", value) for value in ("", "a b")),
    *((PUSH, "version", value) for value in ("", "a b", "^1.2", "latest")),
    *((route, "status", "gone") for route in (PUSH, REPLACE)),
    *((route, "bundle", value) for route in (PUSH, REPLACE) for value in ("x", "0" * 64)),
    *((route, "access", "all") for route in (PUSH, REPLACE, ACCESS)),
    (PUSH, "dependencies.environments", {"environments": ["a b"]}),
    *((REPLACE, name, "other") for name in ("name", "version")),
    *((ANNOUNCE, "digest", value) for value in ("x", "0" * 63)),
    *((ANNOUNCE, "size_bytes", value) for value in (0, 1 << 60)),
    (EXEC, "timeout", 0),
    *((SIGN, "port", value) for value in (0, 65536)),
    (SIGN, "expiration_time_in_minutes", 0),
    (WARM, "count", -1),
]
BAD_QUERIES = [
    ("GET", "/env-instance/*/list?status=gone", "status"),
    ("GET", "/env-instance/*/list?limit=none", "limit"),
    ("GET", "/env-instance/*/list?label=x", "label"),
    ("GET", "/env-instance/*/list?envName=a%20b", "envName"),
    ("GET", "/env-service/*/list?envName=a%20b", "envName"),
    ("DELETE", "/env-instances", "label"),
    ("POST", "/env-instance?wait=soon", "wait"),
    ("GET", "/env?limit=0", "limit"),
    ("GET", "/env?offset=-1", "offset"),
    ("GET", "/env/pushed/audit?cursor=x", "cursor"),
    ("GET", "/data", "scenario"),
    ("PUT", "/bundles/x", "digest"),
]


@pytest.fixture
async def gateway(tmp_path: Path) -> AsyncIterator[Gateway]:
    async with running_gateway(tmp_path / "home", make_project(tmp_path)) as gateway:
        gateway.id = (await gateway.create())["id"]  # type: ignore[attr-defined]
        for route in (SERVICE, PUSH):
            names = {"service_name": "steady"} if route is SERVICE else {"name": "pushed"}
            assert (await gateway.ask(route[0], route[1], {**route[2], **names}))[0] == 200
        yield gateway


async def unnamed(gateway: Gateway, method: str, path: str, field: str, body: Any = None) -> list[str]:
    """What the gateway says instead of "field '<field>': …"; nothing when it says that."""
    id = "steady" if "service" in path else gateway.id  # type: ignore[attr-defined]
    status, reply = await gateway.ask(method, path.format(id=id, new=new_id()), body)
    if status == 400 and re.match(rf"field '{field}(\.0)?': ", reply["message"]):
        return []
    return [f"{method} {path} {body}: {field!r} is not named by {status} {reply['message']!r}"]


async def test_a_bad_value_is_refused_by_the_name_of_its_field(gateway: Gateway) -> None:
    wrong = []
    for (method, path, body), field, value in BAD_VALUES:
        name, _, inner = field.partition(".")
        others = {key: part for key, part in body.items() if key != "max_instances" or field == "user"}
        sent = {**others, name: {inner: value} if name == "resources" else value}
        wrong += await unnamed(gateway, method, path, field, sent)
    assert wrong == []


async def test_so_is_a_bad_value_in_the_query_or_the_path(gateway: Gateway) -> None:
    wrong = []
    for method, path, field in BAD_QUERIES:
        wrong += await unnamed(gateway, method, path, field, {"envName": "echo"} if method == "POST" else None)
    assert wrong == []


async def test_a_value_of_another_type_is_refused_by_the_name_of_its_field_on_every_route(
    gateway: Gateway,
) -> None:
    _, document = await gateway.ask("GET", "/openapi.json")
    patterns = {"/env/echo": "/env/{name}", "/env/pushed": "/env/{name}", "/1.0.0": "/{version}", "{new}": "{id}"}
    patterns["/secret/KEY"] = "/secret/{name}"
    known = {
        (method, re.sub("|".join(patterns), lambda found: patterns[found[0]], path)): (path, body)
        for method, path, body in ROUTES
    }
    wrong, seen = [], 0
    for pattern, by in document["paths"].items():
        for method, operation in by.items():
            content = operation.get("requestBody", {}).get("content", {})
            if "application/json" not in content:
                continue
            path, body = known[method.upper(), pattern]
            schema = content["application/json"]["schema"]["$ref"].rpartition("/")[2]
            for field in document["components"]["schemas"][schema]["properties"]:
                seen += 1
                sent = {**body, field: [[1]]}  # a list of lists is right nowhere
                wrong += await unnamed(gateway, method.upper(), path, field, sent)
    assert wrong == []
    assert seen > 80
