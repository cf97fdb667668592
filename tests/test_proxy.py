"""The data path: which instance gets a request, and what of it arrives there and comes back."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from aenv.base import mcp
from aenv.base.errors import Unauthenticated
from aenv.control.gateway.tokens import Tokens
from aenv.engines import proc
from conformance.engine import opened
from tests.gateways import Gateway, instance_processes, make_project, new_id, running_gateway

MEBI = 1 << 20


@pytest.fixture(params=[1, 2], ids=["own-process", "two-workers"])
async def gateway(tmp_path: Path, request: pytest.FixtureRequest) -> AsyncIterator[Gateway]:
    settings = {"max_body_bytes": MEBI, "workers": request.param}
    async with running_gateway(tmp_path / "home", make_project(tmp_path), **settings) as gateway:
        yield gateway


def by_id(id: str) -> list[tuple[str, str]]:
    return [("AEnvCore-EnvInstance-ID", id)]


def by_token(token: str) -> list[tuple[str, str]]:
    return [("authorization", f"Bearer {token}")]


# Which instance


async def test_path_header_and_token_all_lead_to_the_instance(gateway: Gateway) -> None:
    instance, other = await asyncio.gather(gateway.create(), gateway.create())
    id, token = instance["id"], instance["token"]
    ways = [
        (f"/instances/{id}/tools/seen", [], gateway.data),
        (f"/instances/{id}/tools/seen", [], gateway.control),
        (f"/instances/{id}/tools/seen", [*by_id(id), *by_token(token)], gateway.data),
        ("/tools/seen", by_id(id), gateway.data),
        ("/tools/seen", by_token(token), gateway.data),
        ("/tools/seen", [*by_id(id), *by_token(token), *by_id(id)], gateway.data),
    ]
    for target, headers, origin in ways:
        status, reply = await gateway.ask("POST", target, {}, headers, origin)
        assert status == 200
        assert reply["data"]["structured"]["variables"]["AENV_INSTANCE_ID"] == id != other["id"]


async def test_a_request_that_names_two_instances_is_refused(gateway: Gateway) -> None:
    one, two = await asyncio.gather(gateway.create(), gateway.create())
    for target, headers in [
        (f"/instances/{one['id']}/health", by_id(two["id"])),
        (f"/instances/{one['id']}/health", by_token(two["token"])),
        ("/health", [*by_id(one["id"]), *by_token(two["token"])]),
        ("/health", [*by_id(one["id"]), *by_id(two["id"])]),
    ]:
        status, reply = await gateway.ask("GET", target, headers=headers, origin=gateway.data)
        assert (status, reply["error"], reply["success"]) == (400, "invalid_request", False)


async def test_an_unknown_instance_is_not_found(gateway: Gateway) -> None:
    for target, headers in [("/instances/nobody/health", []), ("/health", by_id(new_id()))]:
        status, reply = await gateway.ask("GET", target, headers=headers, origin=gateway.data)
        assert (status, reply["error"]) == (404, "not_found")
        assert "not found" in reply["message"]


async def test_without_an_instance_there_is_only_the_gateways_health(gateway: Gateway) -> None:
    status, reply = await gateway.ask("GET", "/health", origin=gateway.data)
    assert (status, reply["success"], reply["data"], reply["status"]) == (
        200,
        True,
        {"status": "healthy"},
        "healthy",
    )
    for method, target in [("POST", "/health"), ("GET", "/"), ("POST", "/mcp"), ("GET", "/env-instance/*/list")]:
        status, reply = await gateway.ask(method, target, origin=gateway.data)
        assert (status, reply["error"]) == (404, "not_found")


async def test_an_instance_that_has_ended_gets_no_more_requests(gateway: Gateway) -> None:
    instance = await gateway.create()
    await gateway.call(instance["id"], "echo", text="before")
    await gateway.ask("DELETE", f"/env-instance/{instance['id']}")
    status, reply = await gateway.ask("GET", f"/instances/{instance['id']}/health", origin=gateway.data)
    assert (status, reply["error"]) == (404, "not_found")
    assert "deleted" in reply["message"]


async def test_a_token_of_another_gateway_is_refused(gateway: Gateway) -> None:
    instance = await gateway.create()
    forged = Tokens(b"another key").sign(instance["id"], None)
    for target in ("/health", f"/instances/{instance['id']}/health"):
        status, reply = await gateway.ask("GET", target, headers=by_token(forged), origin=gateway.data)
        assert (status, reply["error"]) == (401, "unauthenticated")


def test_only_a_token_as_it_was_signed_is_good() -> None:
    tokens = Tokens(b"key")
    token = tokens.sign("echo-abc", "alice")
    claim = tokens.verify(token)
    assert claim
    assert (claim.instance, claim.account, claim.port, claim.is_over) == ("echo-abc", "alice", None, False)
    assert tokens.verify("sk-something-else") is None
    for bad in (
        token.replace("abc", "abd"),
        token.replace("alice", "alicf"),
        token[:-1] + ("A" if token[-1] != "A" else "B"),
    ):
        with pytest.raises(Unauthenticated):
            tokens.verify(bad)


async def test_the_address_in_a_proxy_header_is_never_dialled(gateway: Gateway) -> None:
    dialled: list[object] = []
    bait = await asyncio.start_server(lambda reader, writer: dialled.append(writer), "127.0.0.1", 0)
    async with bait:
        url = f"http://127.0.0.1:{bait.sockets[0].getsockname()[1]}"
        instance = await gateway.create()
        headers = [*by_id(instance["id"]), ("AEnvCore-MCPProxy-URL", url)]
        status, reply = await gateway.ask("POST", "/tools/echo", {"text": "mine"}, headers, gateway.data)
        assert (status, reply["data"]["content"][0]["text"]) == (200, "mine")
        status, _ = await gateway.ask("GET", "/sse", None, [("AEnvCore-MCPProxy-URL", url)], gateway.data)
        assert status == 404
        # The bait does answer: a connection of our own is seen, and it is the first.
        _, writer = await asyncio.open_connection(*bait.sockets[0].getsockname())
        writer.close()
        await writer.wait_closed()
        assert len(dialled) == 1
        for accepted in dialled:
            accepted.close()  # type: ignore[attr-defined]


# Bodies, with a real runtime


async def test_a_body_above_the_limit_is_refused_and_the_limit_named(gateway: Gateway) -> None:
    instance = await gateway.create()
    target = f"/instances/{instance['id']}/functions/size"

    async def in_chunks() -> AsyncIterator[bytes]:
        for _ in range(20):
            yield b"x" * (MEBI // 16)

    for body in (b"x" * (MEBI + 1), in_chunks()):
        response = await gateway.pool.request(gateway.data, "POST", target, (), body)
        reply = mcp.loads(await response.read())
        assert (response.status, reply["error"]) == (413, "too_large")
        assert "1 MiB" in reply["message"]
    assert (await gateway.ask("POST", target, {"text": "abc"}, origin=gateway.data))[1]["data"] == 3


async def test_a_large_body_arrives_whole(gateway: Gateway) -> None:
    instance = await gateway.create()
    target = f"/instances/{instance['id']}/functions/size"
    text = "x" * (MEBI - 100)
    assert (await gateway.ask("POST", target, {"text": text}, origin=gateway.data))[1]["data"] == len(text)
    assert await gateway.call(instance["id"], "echo", text=text[: MEBI // 2]) == text[: MEBI // 2]


@pytest.mark.slow
async def test_a_client_that_leaves_cancels_the_call_in_the_instance(gateway: Gateway, tmp_path: Path) -> None:
    pipe = tmp_path / "cancelled"
    os.mkfifo(pipe)
    instance = await gateway.create()
    hanging = asyncio.create_task(gateway.call(instance["id"], "hang", pipe=str(pipe)))
    await gateway.call(instance["id"], "echo", text="the call before has arrived")
    hanging.cancel()
    await opened(pipe)
    assert await gateway.call(instance["id"], "echo", text="unharmed") == "unharmed"


async def test_an_instance_that_dies_during_a_call_is_a_bad_gateway(gateway: Gateway) -> None:
    instance = await gateway.create()
    (process,) = instance_processes(gateway.home)
    hanging = asyncio.create_task(
        gateway.ask("POST", f"/instances/{instance['id']}/tools/hang", {}, origin=gateway.data)
    )
    await gateway.call(instance["id"], "echo", text="the call before has arrived")
    process.kill()
    status, reply = await hanging
    assert (status, reply["error"]) == (502, "tool_server")
    assert instance["id"] in reply["message"]
    await proc.ended(process.pid)
    status, reply = await gateway.ask("GET", f"/instances/{instance['id']}/health", origin=gateway.data)
    assert (status, reply["error"]) == (404, "not_found")
    assert "killed by signal 9" in reply["message"]


@pytest.mark.parametrize("headers", [[("origin", "http://evil.example")], [("host", "evil.example:8081")]])
async def test_a_web_page_cannot_reach_an_instance_even_if_it_knows_the_id(
    gateway: Gateway, headers: list[tuple[str, str]]
) -> None:
    instance = await gateway.create()
    status, reply = await gateway.ask(
        "POST", f"/instances/{instance['id']}/tools/echo", {"text": "x"}, headers=headers, origin=gateway.data
    )
    assert status == 403
    assert reply["error"] == "forbidden"
