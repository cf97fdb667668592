"""The client of the hub; above all, bundles over connections that break."""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from aenv.artifacts import bundles
from aenv.base.addresses import Origin
from aenv.base.errors import AEnvError, NetworkError
from aenv.base.refs import Ref
from aenv.client import hub as client
from aenv.client.api import Api
from aenv.client.hub import Hub
from aenv.client.hub_records import HubUser
from tests.gateways import Gateway, make_project, running_gateway

REF = Ref("large", "1.0.0")
Packed = tuple[Path, bundles.Bundle]


@pytest.fixture
async def gateway(tmp_path: Path) -> AsyncIterator[Gateway]:
    async with running_gateway(tmp_path / "gateway") as running:
        yield running


@pytest.fixture
def small_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    """Patched: pieces of 8 MiB would make the test slow, and show nothing more."""
    monkeypatch.setattr(client, "_PIECE_BYTES", 100_000)


@pytest.fixture
def packed(tmp_path: Path) -> Packed:
    """The bundle of a project with a megabyte in it that cannot be made smaller."""
    project = make_project(tmp_path, REF.name)
    noise = b"".join(hashlib.sha256(str(n).encode()).digest() for n in range(32_000))
    (project / "noise").write_bytes(noise)
    return tmp_path / "bundle.tar.gz", bundles.pack(project, tmp_path / "bundle.tar.gz")


class Breaking:
    """Connections, the next `cuts` of which are cut when more than `after` bytes have gone one way."""

    def __init__(self) -> None:
        self.cuts = 0
        self.after = 0
        self.downwards = False
        self.seen: list[str] = []

    async def connect(self, target: Origin, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        far_reader, far_writer = await asyncio.open_connection(target.host, target.port)
        pipes = [
            asyncio.create_task(self._pipe(reader, far_writer, False)),
            asyncio.create_task(self._pipe(far_reader, writer, True)),
        ]
        try:
            await asyncio.wait(pipes, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for task in pipes:
                task.cancel()
            await asyncio.gather(*pipes, return_exceptions=True)
            for end in (writer, far_writer):
                end.transport.abort()

    async def _pipe(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, downwards: bool) -> None:
        passed = 0
        while data := await reader.read(1 << 14):
            if data.startswith((b"GET ", b"PUT ", b"POST ")):
                self.seen.append(data.split(b" HTTP/1.1", 1)[0].decode())
            passed += len(data)
            if self.cuts and downwards == self.downwards and passed > self.after:
                self.cuts -= 1
                return
            writer.write(data)
            await writer.drain()


@contextlib.asynccontextmanager
async def breaking(target: Origin) -> AsyncIterator[tuple[Breaking, Hub]]:
    """A hub behind a connection that breaks when told to."""
    control = Breaking()
    server = await asyncio.start_server(lambda *ends: control.connect(target, *ends), "127.0.0.1", 0)
    async with server:
        port = server.sockets[0].getsockname()[1]
        async with Api(Origin("127.0.0.1", port), max_retries=0) as api:
            yield control, Hub(api)


async def upload(hub: Hub, packed: Packed) -> list[int]:
    """Upload the bundle; the progress that was reported."""
    progress: list[int] = []
    path, bundle = packed
    await hub.upload_bundle(path, bundle.digest, bundle.size_bytes, progress.append)
    return progress


def record(packed: Packed) -> dict[str, Any]:
    return {"name": REF.name, "version": REF.version, "bundle": packed[1].digest, "status": "Ready"}


async def test_an_upload_goes_on_where_it_broke_off(gateway: Gateway, packed: Packed, small_pieces: None) -> None:
    async with breaking(gateway.control) as (control, hub):
        control.cuts, control.after = 2, 350_000
        progress = await upload(hub, packed)
        assert control.cuts == 0
        assert progress[-1] == packed[1].size_bytes
        assert progress == sorted(set(progress))
        assert sum(seen.startswith("POST /bundles") for seen in control.seen) == 3
        await hub.create(record(packed))
        assert (await hub.get(REF)).digest == packed[1].digest


async def test_what_the_hub_has_is_not_sent_again(gateway: Gateway, packed: Packed) -> None:
    async with breaking(gateway.control) as (control, hub):
        await upload(hub, packed)
        control.seen.clear()
        assert await upload(hub, packed) == [packed[1].size_bytes]
        assert control.seen == ["POST /bundles"]


async def test_a_download_goes_on_where_it_broke_off(gateway: Gateway, packed: Packed, tmp_path: Path) -> None:
    async with breaking(gateway.control) as (control, hub):
        await upload(hub, packed)
        await hub.create(record(packed))
        control.cuts, control.after, control.downwards = 2, 300_000, True
        progress: list[int] = []
        digest = await hub.download_bundle(REF, tmp_path / "copy", progress.append)
        assert control.cuts == 0
        assert digest == packed[1].digest
        assert (tmp_path / "copy").read_bytes() == packed[0].read_bytes()
        assert progress == sorted(progress)


@pytest.mark.slow
async def test_a_connection_that_never_works_is_given_up(gateway: Gateway, packed: Packed) -> None:
    async with breaking(gateway.control) as (control, hub):
        control.cuts = 1000
        with pytest.raises(NetworkError):
            await upload(hub, packed)
        assert len(control.seen) == 6


async def test_bytes_that_were_damaged_in_the_hub_are_noticed(
    gateway: Gateway, packed: Packed, tmp_path: Path
) -> None:
    async with Api(gateway.control) as api:
        hub = Hub(api)
        await upload(hub, packed)
        await hub.create(record(packed))
        (blob,) = (path for path in gateway.home.rglob(f"*{packed[1].digest}*") if path.is_file())
        content = bytearray(blob.read_bytes())
        content[500_000] ^= 1
        blob.chmod(0o600)
        blob.write_bytes(content)
        with pytest.raises(AEnvError):
            await hub.download_bundle(REF, tmp_path / "copy", lambda _: None)


async def test_every_method_says_what_the_hub_says(gateway: Gateway, packed: Packed) -> None:
    async with Api(gateway.control) as api:
        hub = Hub(api)
        assert await hub.whoami() == HubUser("local", "admin")
        assert (await api.call("GET", "/env/large/1.0.0/exists"))["exists"] is False
        assert await hub.find(REF) is None
        await upload(hub, packed)
        await hub.create(record(packed))
        assert (await api.call("GET", "/env/large/1.0.0/exists"))["exists"] is True
        assert (await hub.get(Ref("large"))).version == "1.0.0"
        assert (await api.call("GET", "/env/large/1.0.0/status"))["status"] == "Ready"
        listed, total = await hub.list(name="large")
        assert ([env.name for env in listed], total) == (["large"], 1)
        assert [each.version for each in (await hub.versions("large")).versions] == ["1.0.0"]
        await hub.set_access("large", replace(await hub.access("large"), access="private"))
        assert (await hub.access("large")).access == "private"
        assert (await api.call("POST", "/env/large/1.0.0/sign?style=read")).startswith("http")
        await hub.update(REF, {**record(packed), "description": "new"})
        assert (await hub.get(REF)).description == "new"
        await hub.release(REF)
        assert (await api.call("GET", "/env/large/1.0.0/status"))["status"] == "Released"
        await hub.delete(REF, force=True)
        assert await hub.list(name="large") == ([], 0)
