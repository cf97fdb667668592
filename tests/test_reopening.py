"""Listeners that are put into the network of an instance: its way out, after the gateway was started again."""

from __future__ import annotations

import asyncio
import errno
import os
import socket
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from aenv.base.errors import NotFound
from aenv.engines.base import Network
from aenv.engines.native.relays import reopen
from aenv.isolation.egress import PORT, Egress
from tests.relayed import Instance, Make, children, relayed, until

pytestmark = pytest.mark.slow  # each starts an engine and a relay, which are programs


@pytest.fixture
async def make(tmp_path: Path) -> AsyncIterator[Make]:
    async with relayed(tmp_path) as make:
        yield make


@pytest.fixture
async def instance(make: Make) -> Instance:
    made: Instance = await make()
    return made


class TestListener:
    async def test_listens_in_the_network_of_the_instance_only(self, instance: Instance) -> None:
        with await instance.relays.listener(instance.leader, PORT) as listener:
            await instance.run(f"c = socket.create_connection(('127.0.0.1', {PORT})); c.sendall(b'hello')")
            with listener.accept()[0] as client:
                assert client.recv(5) == b"hello"
            with pytest.raises(ConnectionRefusedError):
                socket.create_connection(("127.0.0.1", PORT))
            assert not os.get_inheritable(listener.fileno())
            with pytest.raises(OSError, match="port 3128 of an instance") as raised:
                await instance.relays.listener(instance.leader, PORT)
            assert raised.value.errno == errno.EADDRINUSE
        # What is left of the connection does not keep the port.
        (await instance.relays.listener(instance.leader, PORT)).close()

    async def test_an_instance_that_has_ended_has_none(self, instance: Instance) -> None:
        await instance.engine.destroy(instance.folder.id)
        with pytest.raises(NotFound):
            await instance.relays.listener(instance.leader, PORT)

    async def test_who_does_not_wait_leaves_no_process(self, instance: Instance) -> None:
        descriptors = len(os.listdir("/proc/self/fd"))
        asking = asyncio.create_task(instance.relays.listener(instance.leader, PORT))
        await until(lambda: bool(children(os.getpid(), "aenv.isolation.sandbox.listen")))
        asking.cancel()
        await asyncio.wait({asking})
        assert not children(os.getpid(), "aenv.isolation.sandbox.listen")
        assert len(os.listdir("/proc/self/fd")) == descriptors


class TestReopening:
    ASK = f"""
c = socket.create_connection(("127.0.0.1", {PORT}))
c.sendall(b"CONNECT other.example:443 HTTP/1.1\\r\\n\\r\\n")
result = c.recv(200).decode()
"""

    async def test_an_adopted_instance_has_its_way_out_again_and_no_other(self, make: Make) -> None:
        instance = await make(network=Network("egress", ("site.example",)))
        await instance.engine._egress.stop(instance.folder.id)  # as when its gateway was killed
        refused = await instance.result(f"socket.socket().connect_ex(('127.0.0.1', {PORT}))")
        assert refused == errno.ECONNREFUSED
        async with Egress() as egress:
            for _ in range(2):
                await reopen(instance.relays, egress, instance.folder.id, instance.folder, instance.leader)
                assert "egress to 'other.example:443' is not allowed" in await instance.run(self.ASK)

    async def test_an_instance_without_one_gets_none(self, instance: Instance) -> None:
        async with Egress() as egress:
            await reopen(instance.relays, egress, instance.folder.id, instance.folder, instance.leader)
            assert not egress.serves(instance.folder.id)
            assert (
                await instance.result(f"socket.socket().connect_ex(('127.0.0.1', {PORT}))") == errno.ECONNREFUSED
            )

    async def test_an_instance_that_took_the_port_stays_without(
        self, make: Make, caplog: pytest.LogCaptureFixture
    ) -> None:
        instance = await make(network=Network("egress", ("site.example",)))
        await instance.engine._egress.stop(instance.folder.id)
        await instance.result(f"serve(echo, port={PORT})")
        async with Egress() as egress:
            await reopen(instance.relays, egress, instance.folder.id, instance.folder, instance.leader)
            assert not egress.serves(instance.folder.id)
        assert "stays without its way out" in caplog.text
