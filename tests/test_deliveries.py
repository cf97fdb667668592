"""Clients that go away while, or just before, they are answered: what they were never told of does not live on."""

from __future__ import annotations

import asyncio
import json
import socket
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from aenv.control.gateway.parts import Parts
from aenv.control.instances.supervised import Supervised
from aenv.control.serving import listeners
from tests.gateways import Gateway, composed, leftovers, listening, make_project, new_id


@pytest.fixture
async def served(tmp_path: Path) -> AsyncIterator[tuple[Gateway, Parts]]:
    async with composed(tmp_path / "home", make_project(tmp_path)) as made, listening(made) as gateway:
        yield gateway, made


async def asked(gateway: Gateway, method: str, target: str, **body: object) -> socket.socket:
    """A request that was sent; its answer is not read."""
    client = socket.socket()
    client.setblocking(False)
    loop = asyncio.get_running_loop()
    await loop.sock_connect(client, (gateway.address.host, gateway.address.port))
    text = json.dumps({"envName": "echo", **body}).encode()
    head = f"{method} {target} HTTP/1.1\r\nHost: localhost\r\nContent-Length: {len(text)}\r\n\r\n"
    await loop.sock_sendall(client, head.encode() + text)
    return client


async def begun(made: Parts, count: int = 1) -> list[Supervised]:
    while len(made.supervisor) < count:
        await asyncio.sleep(0)
    return list(made.supervisor.values())


@pytest.mark.parametrize(
    ("method", "target", "body"),
    [("POST", "/env-instance", {}), ("PUT", "ID", {}), ("POST", "/env-instances", {"count": 2})],
)
async def test_what_was_never_delivered_is_ended(
    served: tuple[Gateway, Parts], method: str, target: str, body: dict[str, int]
) -> None:
    gateway, made = served
    id = new_id()
    client = await asked(gateway, method, target.replace("ID", f"/env-instance/{id}"), **body)
    instances = await begun(made, body.get("count", 1))
    client.close()
    async with asyncio.timeout(20):
        await asyncio.gather(*(instance.ended.wait() for instance in instances))
    assert leftovers(gateway.home) == []
    assert await made.shared.store.totals("instances") == [0]
    if method == "PUT":  # and can be asked for again
        assert (await gateway.create(id=id))["status"] == "Running"


async def test_a_client_that_only_closes_its_own_side_is_answered_and_keeps_its_instance(
    served: tuple[Gateway, Parts], monkeypatch: pytest.MonkeyPatch
) -> None:
    gateway, made = served
    # On a busy machine the create takes longer than this usually is.
    monkeypatch.setattr(listeners, "_GONE_GRACE", 60)
    client = await asked(gateway, "POST", "/env-instance")
    with client:
        await begun(made)
        client.shutdown(socket.SHUT_WR)
        assert b" 200 " in await asyncio.get_running_loop().sock_recv(client, 1 << 16)
    (instance,) = made.supervisor.values()
    assert await gateway.call(instance.record.id, "echo", text="here") == "here"


async def test_an_instance_that_another_client_was_told_of_lives_on(served: tuple[Gateway, Parts]) -> None:
    gateway, made = served
    id = new_id()
    client = await asked(gateway, "PUT", f"/env-instance/{id}")
    (instance,) = await begun(made)
    waiting = asyncio.create_task(gateway.create("echo", id=id))
    while instance.waiting < 2:
        await asyncio.sleep(0)
    client.close()
    assert (await waiting)["status"] == "Running"
    assert instance.told > instance.lost
    assert await gateway.call(id, "echo", text="here") == "here"
