"""Bundles by signed URL, as published clients send them, and out again; on S3; and with the store gone."""

from __future__ import annotations

import asyncio
import urllib.request
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest

from aenv.control.hub.signing import SignedUse, Signer
from tests import s3_server
from tests.hubs import RunningHub, incoming, pack, published_push, running_hub
from tests.redis_server import redis_server


@pytest.fixture
async def hub(tmp_path: Path) -> AsyncIterator[RunningHub]:
    async with running_hub(tmp_path / "home") as running:
        yield running


@pytest.fixture
def packed(tmp_path: Path) -> tuple[bytes, str]:
    return pack(tmp_path)


class TestSignedUrls:
    async def test_the_published_push_works_in_its_order(self, hub, packed):
        await published_push(hub, packed[0])
        env = await hub.get("/env/echo/1.0.0")
        assert (env["digest"], env["readme"], env["code_url"]) == (packed[1], "# echo\n", "oss://x/echo-1.0.0.tar")
        url = (await hub.ask("POST", "/env/echo/1.0.0/sign?style=read")).data
        assert (await hub.ask_url("GET", url)).body == packed[0]

    async def test_a_second_push_replaces_the_code_of_an_unreleased_version(self, hub, packed, tmp_path):
        await published_push(hub, packed[0])
        content, digest = pack(tmp_path / "other")
        url = (await hub.ask("POST", "/env/echo/1.0.0/sign")).data
        await hub.ask_url("PUT", url, content)
        assert (await hub.ask("PUT", "/env/echo/1.0.0", {"codeUrl": "oss://x/echo-1.0.0.tar"})).status == 200
        assert (await hub.get("/env/echo/1.0.0"))["digest"] == digest

    async def test_nobody_claims_what_another_uploaded(self, hub, packed):
        alice, bob = await hub.user("alice"), await hub.user("bob")
        url = (await hub.ask("POST", "/env/echo/1.0.0/sign", token=alice)).data
        await hub.ask_url("PUT", url, packed[0])
        await hub.ask("POST", "/env", {"name": "echo", "version": "1.0.0"}, bob)
        assert (await hub.get("/env/echo/1.0.0", bob))["digest"] is None

    async def test_a_url_is_good_for_its_one_purpose(self, hub, packed):
        await published_push(hub, packed[0])
        write = (await hub.ask("POST", "/env/echo/1.0.0/sign")).data
        read = (await hub.ask("POST", "/env/echo/1.0.0/sign?style=read")).data
        assert (await hub.ask_url("GET", write)).status == 403
        assert (await hub.ask_url("PUT", read, packed[0])).status == 403

    @pytest.mark.parametrize("change", ["body", "mac", "nothing", "swapped"])
    async def test_a_url_that_was_changed_is_refused(self, hub, packed, change):
        await published_push(hub, packed[0])
        url = (await hub.ask("POST", "/env/echo/1.0.0/sign?style=read")).data
        head, _, token = url.rpartition("/")
        body, _, mac = token.partition(".")
        changed = {
            "body": f"{body[:-2]}AA.{mac}",
            "mac": f"{body}.{mac[:-2]}AA",
            "nothing": body,
            "swapped": f"{mac}.{body}",
        }[change]
        assert (await hub.ask_url("GET", f"{head}/{changed}")).status == 403

    async def test_a_url_expires(self, hub, packed):
        await published_push(hub, packed[0])
        token = await Signer(hub.store).sign(SignedUse("GET", digest=packed[1]), -1)
        answer = await hub.ask("GET", f"/signed/{token}")
        assert (answer.status, "expired" in answer.message) == (403, True)

    async def test_an_archive_that_is_none_is_refused_at_once(self, hub):
        url = (await hub.ask("POST", "/env/echo/1.0.0/sign")).data
        assert (await hub.ask_url("PUT", url, b"no archive")).status == 400
        assert incoming(hub) == []


class TestDownloads:
    @pytest.fixture(autouse=True)
    async def _pushed(self, hub: RunningHub, packed: tuple[bytes, str]) -> None:
        await hub.upload(*packed)
        await hub.ask("POST", "/env", {"name": "echo", "version": "1.0.0", "bundle": packed[1]})

    @pytest.mark.parametrize(
        ("asked", "start", "end"),
        [
            ("bytes=0-99", 0, 100),
            ("bytes=1000-", 1000, None),
            ("bytes=-500", -500, None),
            ("bytes=5-99999999", 5, None),
        ],
    )
    async def test_a_part_comes_alone(self, hub, packed, asked, start, end):
        answer = await hub.ask("GET", "/env/echo/^1/bundle", headers={"range": asked})
        assert (answer.status, answer.body) == (206, packed[0][start:end])
        assert answer.headers["content-range"].endswith(f"/{len(packed[0])}")
        assert answer.headers["etag"] == f'"{packed[1]}"'

    @pytest.mark.parametrize("asked", ["bytes=9-5", "bytes=99999999-", "bytes=-0"])
    async def test_a_part_that_is_not_there_is_416(self, hub, asked):
        answer = await hub.ask("GET", "/env/echo/1.0.0/bundle", headers={"range": asked})
        assert answer.status == 416

    @pytest.mark.parametrize("asked", ["bytes=0-1,4-5", "lines=1-2", "bytes=-", "bytes=x-y"])
    async def test_what_is_no_single_part_means_the_whole(self, hub, packed, asked):
        answer = await hub.ask("GET", "/env/echo/1.0.0/bundle", headers={"range": asked})
        assert (answer.status, answer.body) == (200, packed[0])

    async def test_a_part_of_another_content_is_the_whole(self, hub, packed):
        headers = {"range": "bytes=1000-", "if-range": f'"{"0" * 64}"'}
        answer = await hub.ask("GET", "/env/echo/1.0.0/bundle", headers=headers)
        assert (answer.status, answer.body) == (200, packed[0])
        headers["if-range"] = f'"{packed[1]}"'
        assert (await hub.ask("GET", "/env/echo/1.0.0/bundle", headers=headers)).status == 206

    async def test_who_has_it_gets_nothing(self, hub, packed):
        headers = {"if-none-match": f'"{packed[1]}"'}
        assert (await hub.ask("GET", "/env/echo/1.0.0/bundle", headers=headers)).status == 304
        head = await hub.ask("HEAD", "/env/echo/1.0.0/bundle")
        assert (head.status, head.body, head.headers["content-length"]) == (200, b"", str(len(packed[0])))

    async def test_a_version_without_a_bundle_says_so(self, hub):
        await hub.ask("POST", "/env", {"name": "bare", "version": "1"})
        answer = await hub.ask("GET", "/env/bare/1/bundle")
        assert (answer.status, "has no bundle" in answer.message) == (404, True)


@pytest.fixture(scope="module")
def s3() -> Iterator[str]:
    with s3_server.running_s3() as endpoint:
        s3_server.make_bucket(endpoint)
        yield endpoint


@pytest.mark.slow  # an S3 server takes seconds to start
class TestWithS3:
    @pytest.fixture
    async def hub(self, tmp_path: Path, s3: str, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[RunningHub]:
        for name, value in s3_server.CREDENTIALS.items():
            monkeypatch.setenv(name, value)
        url = f"s3://{s3_server.BUCKET}/{tmp_path.name}?endpoint={s3}&region=us-east-1"
        async with running_hub(tmp_path / "home", blobs=url) as running:
            yield running

    async def test_push_and_pull_go_through_the_bucket(self, hub, packed):
        content, digest = packed
        assert (await hub.upload(content, digest)).data["complete"] is True
        await hub.ask("POST", "/env", {"name": "echo", "version": "1.0.0", "bundle": digest})
        assert (await hub.ask("GET", "/env/echo/1.0.0/bundle")).body == content
        part = await hub.ask("GET", "/env/echo/1.0.0/bundle", headers={"range": "bytes=1000-1999"})
        assert part.body == content[1000:2000]
        assert (await hub.checkouts.folder(digest) / "config.json").is_file()
        assert not list((hub.home / "blobs").glob("??/*"))
        assert incoming(hub) == []

    async def test_the_published_push_works_and_downloads_come_from_the_bucket(self, hub, packed, s3):
        await published_push(hub, packed[0])
        url = (await hub.ask("POST", "/env/echo/1.0.0/sign?style=read")).data
        assert url.startswith(s3)
        with await asyncio.to_thread(urllib.request.urlopen, url) as response:
            assert response.read() == packed[0]


class TestWithoutAStore:
    async def test_nothing_is_acknowledged_that_is_not_stored(self, tmp_path, packed):
        with redis_server(tmp_path) as redis:
            async with running_hub(tmp_path / "home", store=redis.url) as hub:
                assert (await hub.upload(*packed)).data["complete"] is True
                redis.kill()
                body = {"name": "echo", "version": "1.0.0", "bundle": packed[1]}
                for method, target in (("POST", "/env"), ("POST", "/bundles"), ("GET", "/env/echo/1.0.0")):
                    answer = await hub.ask(method, target, {**body, "digest": packed[1], "size_bytes": 5})
                    assert (answer.status, "retry-after" in answer.headers) == (503, True)
                redis.start()
                assert await hub.get("/env/echo/1.0.0/exists") == {"exists": False}
                assert (await hub.ask("POST", "/env", body)).status == 200
                assert (await hub.get("/env/echo/1.0.0"))["digest"] == packed[1]
