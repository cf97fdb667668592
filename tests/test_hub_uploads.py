"""Bundles come in: in parts that break off and go on, onto full disks, from people who wish us ill."""

from __future__ import annotations

import asyncio
import hashlib
import os
import resource
import socket
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from aenv.control.stores.base import Put
from tests.archives import archive, compressed, entry, link
from tests.hubs import RunningHub, announce, incoming, pack, running_hub


@pytest.fixture
async def hub(tmp_path: Path) -> AsyncIterator[RunningHub]:
    async with running_hub(tmp_path / "home") as running:
        yield running


@pytest.fixture
def packed(tmp_path: Path) -> tuple[bytes, str]:
    return pack(tmp_path)


def break_off(hub: RunningHub, digest: str, content: bytes, sent: int, offset: int = 0) -> None:
    """Send the first bytes of a part, and hang up."""
    with socket.create_connection((hub.origin.host, hub.origin.port)) as connection:
        head = (
            f"PUT /bundles/{digest}?offset={offset} HTTP/1.1\r\nhost: localhost\r\ncontent-length: {len(content)}"
        )
        connection.sendall(f"{head}\r\n\r\n".encode() + content[:sent])
        connection.shutdown(socket.SHUT_WR)
        assert connection.recv(1) == b""  # it has noticed


class TestInParts:
    async def test_a_bundle_arrives_part_by_part(self, hub, packed):
        content, digest = packed
        assert await announce(hub, content, digest) == {"exists": False, "offset": 0}
        middle = len(content) // 2
        first = await hub.ask("PUT", f"/bundles/{digest}?offset=0", content[:middle])
        assert first.data == {"offset": middle, "complete": False}
        assert await announce(hub, content, digest) == {"exists": False, "offset": middle}
        last = await hub.ask("PUT", f"/bundles/{digest}?offset={middle}", content[middle:])
        assert last.data == {"offset": len(content), "complete": True}
        assert (await announce(hub, content, digest))["exists"] is True
        assert (
            await hub.ask("POST", "/env", {"name": "echo", "version": "1.0.0", "bundle": digest})
        ).status == 200
        assert (await hub.ask("GET", "/env/echo/1.0.0/bundle")).body == content
        assert incoming(hub) == []

    async def test_a_part_that_breaks_off_goes_on_from_where_it_stopped(self, hub, packed):
        content, digest = packed
        await announce(hub, content, digest)
        await asyncio.to_thread(break_off, hub, digest, content, 2_000_000)
        offset = (await announce(hub, content, digest))["offset"]
        assert 1_000_000 < offset <= 2_000_000
        answer = await hub.ask("PUT", f"/bundles/{digest}?offset={offset}", content[offset:])
        assert answer.data == {"offset": len(content), "complete": True}

    async def test_a_client_that_breaks_off_is_no_error_of_the_hub(self, tmp_path, packed, caplog):
        content, digest = packed
        async with running_hub(tmp_path / "home") as hub:
            await announce(hub, content, digest)
            await asyncio.to_thread(break_off, hub, digest, content, 2_000_000)
        # The hub has ended, and so has what it did for the client.
        assert [record.getMessage() for record in caplog.records if record.levelname == "ERROR"] == []

    async def test_it_goes_on_after_the_hub_was_restarted(self, tmp_path, packed):
        content, digest = packed
        async with running_hub(tmp_path / "home") as hub:
            await announce(hub, content, digest)
            await hub.ask("PUT", f"/bundles/{digest}?offset=0", content[:1_500_000])
        async with running_hub(tmp_path / "home") as hub:
            assert await announce(hub, content, digest) == {"exists": False, "offset": 1_500_000}
            answer = await hub.ask("PUT", f"/bundles/{digest}?offset=1500000", content[1_500_000:])
            assert answer.data["complete"] is True

    async def test_a_hub_that_died_before_it_could_finish_finishes_when_asked_again(self, hub, packed):
        content, digest = packed
        await announce(hub, content, digest)
        await hub.ask("PUT", f"/bundles/{digest}?offset=0", content[:-1])
        with incoming(hub)[0].open("ab") as file:
            file.write(content[-1:])
        assert await announce(hub, content, digest) == {"exists": True, "offset": len(content)}
        assert await hub.blobs.size(digest) == len(content)

    @pytest.mark.parametrize("offset", [0, 999_999, 1_000_001, 2_000_000])
    async def test_a_wrong_offset_is_refused_with_the_right_one(self, hub, packed, offset):
        content, digest = packed
        await announce(hub, content, digest)
        await hub.ask("PUT", f"/bundles/{digest}?offset=0", content[:1_000_000])
        answer = await hub.ask("PUT", f"/bundles/{digest}?offset={offset}", content[offset:])
        assert (answer.status, "at offset 1000000," in answer.message) == (409, True)
        assert (await announce(hub, content, digest))["offset"] == 1_000_000

    async def test_who_tries_again_goes_on_though_the_old_request_still_hangs(self, hub, packed):
        content, digest = packed
        await announce(hub, content, digest)
        reader, writer = await asyncio.open_connection(hub.origin.host, hub.origin.port)
        head = (
            f"PUT /bundles/{digest}?offset=0 HTTP/1.1\r\nhost: localhost\r\ncontent-length: {len(content)}\r\n\r\n"
        )
        writer.write(head.encode() + content[:1_000_000])
        await writer.drain()
        offset = 0
        while not offset:
            offset = (await announce(hub, content, digest))["offset"]
        answer = await hub.ask("PUT", f"/bundles/{digest}?offset={offset}", content[offset:])
        if answer.status == 409:  # a moment too early: the last part of the old one was just being written
            offset = (await announce(hub, content, digest))["offset"]
            answer = await hub.ask("PUT", f"/bundles/{digest}?offset={offset}", content[offset:])
        assert answer.data["complete"] is True
        writer.write(content[1_000_000:])  # what the old one sends now counts no more
        assert b"409" in await reader.readline()
        writer.close()
        assert b"".join([chunk async for chunk in hub.blobs.read(digest)]) == content


class TestRefusals:
    async def test_other_bytes_than_announced_are_refused_with_both_digests_and_dropped(self, hub, packed):
        content, digest = packed
        wrong = content[:-1] + b"x"
        answer = await hub.upload(wrong, digest)
        assert answer.status == 400
        assert f"is sha256 {hashlib.sha256(wrong).hexdigest()}, and not {digest}" in answer.message
        assert incoming(hub) == []
        assert await hub.blobs.size(digest) is None
        assert (await hub.upload(content, digest)).data["complete"] is True

    @pytest.mark.parametrize(
        "entries",
        [
            [entry("../x", b"1")],
            [entry("/etc/x", b"1")],
            [link("leak", "../../etc/passwd")],
            [link("leak", "/etc/passwd", hard=True)],
        ],
        ids=["parent", "absolute", "link", "hard link"],
    )
    async def test_a_hostile_bundle_never_gets_in(self, hub, tmp_path, entries):
        await self.is_refused(hub, archive(tmp_path / "a", entries).read_bytes(), 400)

    async def test_a_bomb_never_gets_in(self, hub, tmp_path):
        head = entry("bomb", size=5 << 30)[0].tobuf()
        await self.is_refused(hub, compressed(tmp_path / "a", head + bytes(1 << 20)).read_bytes(), 413)

    async def is_refused(self, hub: RunningHub, content: bytes, status: int) -> None:
        digest = hashlib.sha256(content).hexdigest()
        assert (await hub.upload(content, digest)).status == status
        assert await hub.blobs.size(digest) is None
        assert incoming(hub) == []
        body = {"name": "echo", "version": "1.0.0", "bundle": digest}
        assert (await hub.ask("POST", "/env", body)).status == 400

    async def test_what_was_not_announced_is_not_received(self, hub, packed):
        assert (await hub.ask("PUT", f"/bundles/{packed[1]}?offset=0", packed[0])).status == 404

    @pytest.mark.parametrize("name", ["x", "..%2f..%2fetc", "A" * 64, "0" * 64 + "%0a"])
    async def test_a_name_that_is_no_digest_is_refused(self, hub, name):
        assert (await hub.ask("PUT", f"/bundles/{name}", b"x")).status in (400, 404)
        assert incoming(hub) == []

    @pytest.mark.parametrize("size", [0, -1, 2 << 30, "x"])
    async def test_a_size_that_makes_no_sense_is_refused(self, hub, size):
        answer = await hub.ask("POST", "/bundles", {"digest": "0" * 64, "size_bytes": size})
        assert (answer.status, "size" in answer.message.lower()) == (400, True)

    async def test_a_full_disk_is_unavailable_and_leaves_nothing(self, hub, packed):
        content, digest = packed
        await announce(hub, content, digest)
        with file_size_limit(2_000_000):
            answer = await hub.ask("PUT", f"/bundles/{digest}?offset=0", content)
        assert (answer.status, answer.headers["retry-after"]) == (503, "60")
        assert "no space left" in answer.message
        assert incoming(hub) == []
        assert (await hub.upload(content, digest)).data["complete"] is True


@contextmanager
def file_size_limit(size: int) -> Iterator[None]:
    """No file of this process may become larger: the kernel refuses, as it does when a disk is full."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)


class TestOwners:
    async def test_the_same_bundle_of_two_users_is_kept_once_and_sent_twice(self, hub, packed):
        content, digest = packed
        alice, bob = await hub.user("alice"), await hub.user("bob")
        assert (await hub.upload(content, digest, alice)).data["complete"] is True
        assert await announce(hub, content, digest, bob) == {"exists": False, "offset": 0}
        assert (await hub.upload(content, digest, bob)).data["complete"] is True
        for token in (alice, bob):
            assert (await announce(hub, content, digest, token))["exists"] is True
        assert len(list((hub.home / "blobs").glob("??/*"))) == 1

    async def test_nobody_spoils_what_another_sends(self, hub, packed):
        content, digest = packed
        alice, mallory = await hub.user("alice"), await hub.user("mallory")
        await announce(hub, content, digest, alice)
        await announce(hub, content, digest, mallory)
        await hub.ask("PUT", f"/bundles/{digest}?offset=0", content[:1000], alice)
        await hub.ask("PUT", f"/bundles/{digest}?offset=0", b"x" * 2000, mallory)
        answer = await hub.ask("PUT", f"/bundles/{digest}?offset=1000", content[1000:], alice)
        assert answer.data["complete"] is True


class TestCollecting:
    async def age(self, hub: RunningHub, kind: str) -> None:
        """Make the store's documents of a kind two days old."""
        page = await hub.store.page(kind, "waiting", limit=100)
        for document in page.documents:
            value = {**document.value, "at": document.value["at"] - 2 * 86400}
            await hub.store.write(Put(kind, document.key, value, terms={"waiting": f"{value['at']:017.6f}"}))

    async def test_a_bundle_that_no_version_uses_goes_after_a_day(self, hub, tmp_path):
        used, unused = pack(tmp_path, "1.0.0"), pack(tmp_path, "2.0.0")
        for content, digest in (used, unused):
            await hub.upload(content, digest)
        await hub.ask("POST", "/env", {"name": "echo", "version": "1.0.0", "bundle": used[1]})
        await hub.hub.collect()
        assert await hub.blobs.size(unused[1])
        await self.age(hub, "bundles")
        await hub.hub.collect()
        assert await hub.blobs.size(unused[1]) is None
        assert (await announce(hub, *unused))["exists"] is False
        assert (await hub.ask("GET", "/env/echo/1.0.0/bundle")).body == used[0]

    async def test_a_deleted_versions_bundle_goes_after_a_day_too(self, hub, packed):
        content, digest = packed
        await hub.upload(content, digest)
        await hub.ask("POST", "/env", {"name": "echo", "version": "1.0.0", "bundle": digest})
        await self.age(hub, "bundles")
        await hub.hub.collect()
        await hub.ask("DELETE", "/env/echo/1.0.0")
        await hub.hub.collect()
        assert (await announce(hub, content, digest))["exists"] is True  # for a while
        await self.age(hub, "bundles")
        await hub.hub.collect()
        assert await hub.blobs.size(digest) is None

    async def test_an_upload_that_stopped_goes_after_a_day(self, hub, packed):
        content, digest = packed
        await announce(hub, content, digest)
        await hub.ask("PUT", f"/bundles/{digest}?offset=0", content[:1000])
        await hub.hub.collect()
        assert len(incoming(hub)) == 1
        os.utime(incoming(hub)[0], (1, 1))
        await self.age(hub, "uploads")
        await hub.hub.collect()
        assert incoming(hub) == []
        assert (await hub.ask("PUT", f"/bundles/{digest}?offset=1000", content[1000:])).status == 404
