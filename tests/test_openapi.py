"""The OpenAPI document: complete, true, and a list of doors of which none is open by mistake."""

from __future__ import annotations

import asyncio
import re
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from tests.gateways import Gateway, make_project, running_gateway
from tests.test_accounts import make_accounts

OPEN = {
    ("GET", "/health"),
    ("GET", "/ready"),
    ("GET", "/metrics"),
    ("GET", "/openapi.json"),
    ("GET", "/docs"),
    ("GET", "/"),
    ("GET", "/assets/{name}"),
    ("GET", "/session"),  # which says that a token is needed
    ("POST", "/session"),
    ("GET", "/token/validate/{token}"),  # who asks has the token
    ("GET", "/signed/{token}"),  # so has who was given a signed URL
    ("PUT", "/signed/{token}"),
}
PUBLIC = {  # what is public is for everybody to see; nothing is, unless its owner said so
    ("GET", "/env"),
    ("GET", "/env/{name}"),
    ("GET", "/env/{name}/{version}"),
    ("GET", "/env/{name}/{version}/exists"),
    ("GET", "/env/{name}/{version}/status"),
    ("GET", "/env/{name}/{version}/bundle"),
}


@pytest.fixture
async def gateway(tmp_path: Path) -> AsyncIterator[Gateway]:
    home = tmp_path / "home"
    home.mkdir()
    tokens = await make_accounts(home)
    async with running_gateway(home, make_project(tmp_path), rate_limit=0) as gateway:
        gateway.tokens = tokens  # type: ignore[attr-defined]
        yield gateway


async def document(gateway: Gateway) -> dict[str, Any]:
    status, found = await gateway.ask("GET", "/openapi.json")
    assert status == 200
    return dict(found)


async def test_each_route_says_who_may_call_it_and_none_is_open_by_mistake(gateway: Gateway) -> None:
    paths = (await document(gateway))["paths"]
    operations = {
        (method.upper(), path): operation for path, by in paths.items() for method, operation in by.items()
    }
    assert len(operations) > 50
    for (method, path), operation in operations.items():
        assert "Who may call it" in operation["description"]
        target = re.sub(r"{\w+}", "x", path)
        response = await gateway.pool.request(
            gateway.control, method, target, (), b"{}" if method != "GET" else b""
        )
        await response.read()
        if (method, path) in OPEN | PUBLIC:
            assert response.status != 401, (method, path)
        else:
            assert response.status == 401, (method, path)
            assert {} not in operation["security"]


def fields_of(document: dict[str, Any], method: str, path: str) -> set[str]:
    """What the document says that the data of a reply has."""
    told = document["paths"][path][method]["responses"]["200"]["content"]["application/json"]["schema"]
    return {*told["properties"]["data"].get("properties", ())}


async def test_replies_about_uploads_have_a_schema(gateway: Gateway) -> None:
    found = await document(gateway)
    assert fields_of(found, "post", "/bundles") == {"exists", "offset"}
    assert fields_of(found, "put", "/bundles/{digest}") == {"offset", "complete"}


@pytest.mark.parametrize("name", ["echo", "gsm-tools"])
async def test_the_details_of_an_environment_are_the_fields_of_their_schema(gateway: Gateway, name: str) -> None:
    fields = fields_of(await document(gateway), "get", "/env/{name}/{version}")
    alice = gateway.tokens["alice"]  # type: ignore[attr-defined]
    status, told = await gateway.ask("GET", f"/env/{name}/1.0.0", headers=alice)
    assert (status, {*told["data"]} - fields) == (200, set())


async def test_what_only_administrators_may_do_is_refused_to_others(gateway: Gateway) -> None:
    paths = (await document(gateway))["paths"]
    users, viewers = gateway.tokens["alice"], gateway.tokens["viewer"]  # type: ignore[attr-defined]
    seen = 0
    for path, by in paths.items():
        for method, operation in by.items():
            least = re.search(r"role (\w+) or above", operation["description"])
            refused = {"admin": [users, viewers], "user": [viewers]}.get(least[1] if least else "", [])
            for who in refused:
                target = re.sub(r"{\w+}", "x", path)
                status, reply = await gateway.ask(method.upper(), target, {}, who)
                assert (status, reply["error"]) == (403, "forbidden"), (method, path)
                seen += 1
    assert seen > 20


async def test_the_page_shows_every_route_and_runs_no_script(gateway: Gateway) -> None:
    paths = (await document(gateway))["paths"]
    response = await gateway.pool.request(gateway.control, "GET", "/docs")
    page = (await response.read()).decode()
    for path in paths:
        assert f" {path}</code>" in page
    assert "<script" not in page
    assert "default-src 'none'" in (response.header(b"content-security-policy") or "")


@pytest.mark.slow  # thousands of requests
@pytest.mark.timeout(240)
@pytest.mark.parametrize("who", ["root", "alice"])
async def test_no_request_that_the_document_allows_is_an_error_of_ours(gateway: Gateway, who: str) -> None:
    command = [sys.executable, "-m", "schemathesis.cli", "run", f"{gateway.address.url}/openapi.json"]
    command += ["--header", "Authorization: " + gateway.tokens[who][0][1]]  # type: ignore[attr-defined]
    command += ["--checks", "not_a_server_error,status_code_conformance,content_type_conformance"]
    command += ["--max-examples", "4", "--phases", "examples,coverage,fuzzing", "--seed", "1"]
    command += ["--suppress-health-check", "all", "--no-color"]
    process = await asyncio.create_subprocess_exec(
        *command, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.STDOUT
    )
    output, _ = await process.communicate()
    assert process.returncode == 0, output.decode()[-6000:]
    assert (await gateway.ask("GET", "/health"))[0] == 200
