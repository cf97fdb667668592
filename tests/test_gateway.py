"""The gateway's control routes, with real runtimes."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from aenv import __version__
from aenv.base import mcp
from aenv.control.instances import installed_version
from tests.gateways import (
    Gateway,
    instance_processes,
    make_project,
    new_id,
    running_gateway,
)

BROKEN = 'raise RuntimeError("the database is missing")'


@pytest.fixture
async def gateway(tmp_path: Path) -> AsyncIterator[Gateway]:
    deploy = {"environmentVariables": {"A": "from-config", "B": "kept-secret"}}
    projects = [
        make_project(tmp_path, "echo", "1.0.0", **deploy),
        make_project(tmp_path, "echo", "1.10.0", ttl="2h"),
        make_project(tmp_path, "echo", "1.9.0"),
        make_project(tmp_path, "broken", "1.0.0", BROKEN),
        make_project(tmp_path, "slow", "1.0.0"),
        make_project(tmp_path, "windows", "1.0.0", os="windows"),
        make_project(tmp_path, "strange", "1.0.0", podTemplate="../../etc/passwd"),
        make_project(tmp_path, "dual", "1.0.0", podTemplate="DualContainer", os="Linux"),
    ]
    async with running_gateway(tmp_path / "home", *projects) as gateway:
        yield gateway


# Creating


async def test_create_answers_when_the_instance_is_ready_to_be_called(gateway: Gateway) -> None:
    instance = await gateway.create(owner="ann", labels={"run": "7"})
    assert await gateway.call(instance["id"], "echo", text="hello") == "hello"
    assert instance["status"] == "Running"
    assert instance["ip"] == "127.0.0.1"
    assert instance["ttl"] == "30m"
    assert instance["owner"] == "ann"
    assert instance["labels"] == {"run": "7"}
    assert instance["engine"] == "process"
    assert instance["isolation"] == []
    assert instance["env"]["name"] == "echo"
    assert instance["env"]["version"] == "1.0.0"
    assert instance["env"]["description"] == "the echo environment"
    assert {tool["name"] for tool in instance["tools"]} == {"echo", "seen", "hang", "die"}
    assert instance["expires_at"] > instance["created_at"] == instance["updated_at"]
    data = f"http://127.0.0.1:{gateway.address.data_port}"
    assert instance["mcp_url"] == f"{data}/instances/{instance['id']}/mcp"


async def test_behind_a_proxy_clients_are_told_its_address(tmp_path: Path) -> None:
    project, url = make_project(tmp_path, "echo", "1.0.0"), "https://aenv.example.com"
    async with running_gateway(tmp_path / "home", project, public_url=url) as gateway:
        instance = await gateway.create()
        assert instance["mcp_url"] == f"{url}/instances/{instance['id']}/mcp"


async def test_get_shows_what_create_showed(gateway: Gateway) -> None:
    instance = await gateway.create()
    status, reply = await gateway.ask("GET", f"/env-instance/{instance['id']}")
    assert (status, reply["success"], reply["code"], reply["message"]) == (200, True, 0, "")
    assert reply["data"] == instance


async def test_every_route_takes_a_trailing_slash(gateway: Gateway) -> None:
    status, reply = await gateway.ask("POST", "/env-instance/", {"envName": "echo@1.0.0"})
    assert status == 200
    one = f"/env-instance/{reply['data']['id']}"
    assert (await gateway.ask("GET", f"{one}/"))[0] == 200
    assert (await gateway.ask("GET", f"{one}/list/"))[0] == 200
    assert (await gateway.ask("DELETE", f"{one}/"))[0] == 200
    assert (await gateway.ask("PUT", f"/env-instance/{new_id()}/", {"envName": "echo"}))[0] == 200
    assert (await gateway.ask("GET", "/health/"))[0] == 200


async def test_a_create_that_fails_says_when_aenv_was_upgraded_meanwhile(
    gateway: Gateway, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    _, reply = await gateway.ask("POST", "/env-instance", {"envName": "broken"})
    assert "was installed" not in reply["message"]
    installed = tmp_path / "__init__.py"
    installed.write_text('"""A later one."""\n\n__version__ = "99.0.0"\n')
    monkeypatch.setattr(installed_version, "_FILE", installed)  # as after `pip install -U`
    _, reply = await gateway.ask("POST", "/env-instance", {"envName": "broken"})
    assert "the database is missing" in reply["message"]
    assert f"aenv 99.0.0 was installed while this gateway runs aenv {__version__}" in reply["message"]


async def test_health_is_the_gateways_own(gateway: Gateway) -> None:
    status, reply = await gateway.ask("GET", "/health")
    told = {"status": "healthy", "version": __version__}
    assert (status, reply) == (200, {"success": True, "code": 0, "message": "", "data": told})


async def test_a_name_alone_means_the_latest_version(gateway: Gateway) -> None:
    instance = await gateway.create("echo")
    assert instance["env"]["version"] == "1.10.0"


async def test_variables_of_the_instance_go_before_those_of_the_environment(gateway: Gateway) -> None:
    instance = await gateway.create(environment_variables={"A": "from-request"}, arguments=["--x", ""])
    seen = await gateway.call(instance["id"], "seen")
    assert seen["variables"]["A"] == "from-request"
    assert seen["variables"]["B"] == "kept-secret"
    assert seen["arguments"] == ["--x", ""]


async def test_values_of_variables_are_never_told_nor_logged(
    gateway: Gateway, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    body = {
        "envName": "echo@1.0.0",
        "environment_variables": {"KEY": "my-secret"},
        "arguments": ["my-argument"],
        "datasource": "my-data",
    }
    created = await gateway.ask("POST", "/env-instance", body)
    id, token = created[1]["data"]["id"], created[1]["data"]["token"]
    shown = await gateway.ask("GET", f"/env-instance/{id}")
    listed = await gateway.ask("GET", "/env-instance/*/list")
    await gateway.call(id, "echo", text="my-words")
    await gateway.ask("DELETE", f"/env-instance/{id}")
    for secret in ("kept-secret", "from-config", "my-secret", "my-argument"):
        assert secret not in repr((created, shown, listed))
    assert created[1]["data"]["env"]["deploy_config"]["environmentVariables"] == {"A": "***", "B": "***"}
    assert token not in repr(listed)
    for secret in ("kept-secret", "my-secret", "my-argument", "my-data", "my-words", token):
        assert secret not in caplog.text
    assert "the process engine has no use for its datasource" in caplog.text


async def test_an_environment_that_fails_to_load_is_a_failed_instance_with_the_traceback(gateway: Gateway) -> None:
    id = new_id()
    status, reply = await gateway.ask("PUT", f"/env-instance/{id}", {"envName": "broken@1.0.0"})
    assert (status, reply["error"], reply["data"]) == (500, "start_failed", None)
    assert "the database is missing" in reply["message"]
    shown = (await gateway.ask("GET", f"/env-instance/{id}"))[1]["data"]
    assert shown["status"] == "Failed"
    assert "the database is missing" in shown["reason"]
    again = await gateway.ask("PUT", f"/env-instance/{id}", {"envName": "broken@1.0.0"})
    assert again == (status, reply)
    assert gateway.leftovers() == []


@pytest.mark.slow
@pytest.mark.parametrize(
    ("body", "message"),
    [
        (b"{", "not JSON"),
        (b"", "'envName'"),
        (b'{"envName": "\xff"}', "not JSON"),
        (b"[" * 100_000, "not JSON"),
        (b'"echo"', "JSON object"),
        ({}, "'envName'"),
        ({"envName": None}, "'envName'"),
        ({"envName": 7}, "'envName'"),
        ({"envName": ""}, "bad environment name ''"),
        ({"envName": "echo@1@2"}, "bad version '1@2'"),
        ({"envName": "../etc@1"}, "bad environment name"),
        ({"envName": "echo", "ttl": "soon"}, "bad duration 'soon'"),
        ({"envName": "echo", "ttl": "0s"}, "'ttl'"),
        ({"envName": "echo", "ttl": "9" * 400}, "'ttl'"),
        ({"envName": "echo", "ttl": 5}, "'ttl'"),
        ({"envName": "echo", "arguments": "--x"}, "'arguments'"),
        ({"envName": "echo", "arguments": ["a\0b"]}, "'arguments.0'"),
        ({"envName": "echo", "arguments": ["x" * 200_000]}, "'arguments.0'"),
        ({"envName": "echo", "environment_variables": {"A": 1}}, "'environment_variables.A'"),
        ({"envName": "echo", "environment_variables": {"A=B": "1"}}, "'A=B'"),
        ({"envName": "echo", "environment_variables": {"": "1"}}, "'environment_variables'"),
        ({"envName": "echo", "environment_variables": {"A": "\0"}}, "'environment_variables.A'"),
        ({"envName": "echo", "labels": {"a": []}}, "'labels.a'"),
        ({"envName": "windows"}, "os 'windows'"),
        ({"envName": "strange"}, "podTemplate '../../etc/passwd'"),
    ],
)
async def test_a_bad_request_is_told_what_is_wrong(gateway: Gateway, body: Any, message: str) -> None:
    status, reply = await gateway.ask("POST", "/env-instance", body)
    assert (status, reply["code"], reply["error"], reply["success"]) == (400, 400, "invalid_request", False)
    assert message in reply["message"]


async def test_published_fields_are_accepted(gateway: Gateway) -> None:
    instance = await gateway.create(
        "dual@1.0.0",
        datasource="tag",
        ttl="",
        environment_variables=None,
        mount_points=[{"id": "x"}],
        init_command="true",
        resources={"cpu": "1"},
        something_new={"a": 1},
    )
    assert instance["status"] == "Running"


async def test_an_unknown_environment_is_not_found_and_near_ones_are_named(gateway: Gateway) -> None:
    status, reply = await gateway.ask("POST", "/env-instance", {"envName": "ecko@1.0.0"})
    assert (status, reply["error"]) == (404, "not_found")
    assert "'ecko@1.0.0'" in reply["message"]
    assert "echo@1.0.0" in reply["message"]
    assert "slow" not in reply["message"]
    status, reply = await gateway.ask("POST", "/env-instance", {"envName": "echo@3.0.0"})
    assert (status, "echo@1.9.0" in reply["message"]) == (404, True)


# The client's own id


async def test_the_same_put_twice_is_the_same_instance(gateway: Gateway) -> None:
    id = new_id()
    first = await gateway.create(id=id, ttl="5m")
    assert first["id"] == id
    again = await gateway.create(id=id, ttl="5m")
    assert {**again, "token": ""} == {**first, "token": ""}  # which is signed anew
    assert len(instance_processes(gateway.home)) == 1


async def test_puts_at_the_same_time_make_one_instance_for_all(gateway: Gateway) -> None:
    id = new_id()
    answers = await asyncio.gather(*(gateway.create(id=id) for _ in range(5)))
    for answer in answers:
        assert answer.pop("token").startswith(f"{id}.")  # each signed at its own moment
    assert answers == [answers[0]] * 5
    assert len(instance_processes(gateway.home)) == 1


async def test_an_id_that_is_taken_is_refused_without_details(gateway: Gateway) -> None:
    id = new_id()
    await gateway.create(id=id, owner="ann")
    status, reply = await gateway.ask("PUT", f"/env-instance/{id}", {"envName": "echo@1.0.0", "owner": "bob"})
    assert (status, reply["error"], reply["message"]) == (409, "conflict", f"instance '{id}' exists already")


async def test_an_id_is_not_used_again_after_its_end(gateway: Gateway) -> None:
    id = new_id()
    await gateway.create(id=id)
    await gateway.ask("DELETE", f"/env-instance/{id}")
    status, reply = await gateway.ask("PUT", f"/env-instance/{id}", {"envName": "echo@1.0.0"})
    assert (status, reply["error"]) == (409, "conflict")


@pytest.mark.parametrize(
    "id", ["echo-1", "Echo-" + "a" * 26, "-" + "a" * 26, "e" * 64, "echo-" + "a" * 19, "a_b" * 9]
)
async def test_an_id_that_could_be_guessed_or_is_no_host_name_is_refused(gateway: Gateway, id: str) -> None:
    status, reply = await gateway.ask("PUT", f"/env-instance/{id}", {"envName": "echo"})
    assert (status, reply["error"]) == (400, "invalid_request")
    assert id in reply["message"]


async def test_an_idempotency_key_makes_post_repeatable(gateway: Gateway) -> None:
    key = [("idempotency-key", "k1")]
    body = {"envName": "echo@1.0.0"}
    first = await gateway.ask("POST", "/env-instance", body, key)
    assert await gateway.ask("POST", "/env-instance", body, key) == first
    other = await gateway.ask("POST", "/env-instance", body, [("idempotency-key", "k2")])
    assert other[1]["data"]["id"] != first[1]["data"]["id"]
    status, reply = await gateway.ask("POST", "/env-instance", {"envName": "echo"}, key)
    assert (status, reply["error"]) == (409, "conflict")


# Finding, and what cannot be found


async def test_list_filters_by_owner_label_and_status_in_pages(gateway: Gateway) -> None:
    async def listed(query: str) -> list[str]:
        status, reply = await gateway.ask("GET", f"/env-instance/*/list?{query}")
        assert status == 200, reply
        return [instance["id"] for instance in reply["data"]]

    ids = [
        (await gateway.create(owner=owner, labels={"experiment": experiment}))["id"]
        for owner, experiment in (("ada", "a"), ("ada", "b"), ("bob", "a"))
    ]
    assert await listed("") == ids
    assert await listed("owner=ada") == ids[:2]
    assert await listed("label=experiment%3Da") == [ids[0], ids[2]]
    assert await listed("owner=bob&label=experiment%3Db") == []
    assert await listed("limit=2") == ids[:2]
    assert await listed(f"limit=2&cursor={ids[1]}") == ids[2:]
    assert await listed("cursor=unknown") == []
    await gateway.ask("DELETE", f"/env-instance/{ids[0]}")
    assert await listed("status=terminated") == [ids[0]]
    assert await listed("status=Running") == ids[1:]
    for wrong in ("limit=0", "limit=x", "limit=1001", "status=odd", "label=a", "envName=a@b@c"):
        assert (await gateway.ask("GET", f"/env-instance/*/list?{wrong}"))[0] == 400


async def test_many_are_deleted_by_their_label(gateway: Gateway) -> None:
    kept = await gateway.create(labels={"experiment": "b"})
    for _ in range(2):
        await gateway.create(labels={"experiment": "a"})
    status, reply = await gateway.ask("DELETE", "/env-instances?label=experiment%3Da")
    assert (status, reply["data"]) == (200, {"deleted": 2})
    assert [instance["id"] for instance in (await gateway.ask("GET", "/env-instance/*/list"))[1]["data"]] == [
        kept["id"]
    ]
    assert (await gateway.ask("DELETE", "/env-instances"))[0] == 400


async def test_list_filters_by_name_and_version(gateway: Gateway) -> None:
    old = (await gateway.create("echo@1.0.0"))["id"]
    new = (await gateway.create("echo"))["id"]
    dual = (await gateway.create("dual"))["id"]

    async def listed(target: str) -> set[str]:
        status, reply = await gateway.ask("GET", target)
        assert status == 200
        return {instance["id"] for instance in reply["data"]}

    assert await listed("/env-instance/*/list") == {old, new, dual}
    assert await listed("/env-instance/echo/list") == {old, new}
    assert await listed("/env-instance/echo@1.0.0/list") == {old}
    assert await listed("/env-instance/*/list?envName=dual@1.0.0") == {dual}
    assert await listed("/env-instance/nobody/list") == set()
    await gateway.ask("DELETE", f"/env-instance/{old}")
    assert await listed("/env-instance/echo/list") == {new}


@pytest.mark.parametrize("method", ["GET", "DELETE"])
async def test_an_unknown_instance_is_not_found(gateway: Gateway, method: str) -> None:
    status, reply = await gateway.ask(method, "/env-instance/nobody")
    assert (status, reply["error"], reply["data"]) == (404, "not_found", None)
    assert "instance 'nobody' not found" in reply["message"]


async def test_an_unknown_route_and_a_wrong_method_are_told_in_the_envelope(gateway: Gateway) -> None:
    status, reply = await gateway.ask("GET", "/nothing/here")
    assert (status, reply["code"], reply["error"], reply["success"]) == (404, 404, "not_found", False)
    response = await gateway.pool.request(gateway.control, "PATCH", "/env-instance/x")
    reply = mcp.loads(await response.read())
    assert (response.status, reply["error"]) == (405, "method_not_allowed")
    assert set((response.header(b"allow") or "").split(", ")) >= {"GET", "PUT", "DELETE"}
    assert (await gateway.ask("GET", "/env-instance"))[0] == 405


async def test_a_body_above_the_limit_of_control_is_refused(gateway: Gateway) -> None:
    body = {"envName": "echo", "arguments": ["x" * 1000] * 1100}
    status, reply = await gateway.ask("POST", "/env-instance", body)
    assert (status, reply["error"]) == (413, "too_large")
    assert "1 MiB" in reply["message"]
    assert (await gateway.ask("GET", "/health"))[0] == 200


@pytest.mark.parametrize("header", [("origin", "https://evil.example"), ("Host", "rebound.example")])
async def test_a_web_page_cannot_use_the_control_port(gateway: Gateway, header: tuple[str, str]) -> None:
    reader, writer = await asyncio.open_connection(gateway.address.host, gateway.address.port)
    host = "" if header[0] == "Host" else "Host: localhost\r\n"
    writer.write(f"GET /env-instance/*/list HTTP/1.1\r\n{host}{header[0]}: {header[1]}\r\n\r\n".encode())
    assert b" 403 " in await reader.readline()
    writer.close()
    await writer.wait_closed()
