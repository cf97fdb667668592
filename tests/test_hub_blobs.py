"""Where bundles are kept: a folder and S3 behave alike; checkouts unpack each bundle once."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
import urllib.request
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest

from aenv.artifacts import bundles
from aenv.base.errors import InvalidRequest, Unavailable
from aenv.control.hub.blobs import Blobs, open_blobs
from aenv.control.hub.checkouts import Checkouts
from conformance.blobs import BlobsConformance, given
from tests import s3_server
from tests.archives import make_source


@pytest.fixture(scope="module")
def s3() -> Iterator[str]:
    with s3_server.running_s3() as endpoint:
        s3_server.make_bucket(endpoint)
        yield endpoint


@pytest.fixture
def s3_url(s3: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> str:
    for name, value in s3_server.CREDENTIALS.items():
        monkeypatch.setenv(name, value)
    return f"s3://{s3_server.BUCKET}/{tmp_path.name}?endpoint={s3}&region=us-east-1"


@pytest.fixture(params=["folder", pytest.param("s3", marks=pytest.mark.slow)])
async def blobs(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Blobs]:
    url = request.getfixturevalue("s3_url") if request.param == "s3" else str(tmp_path / "kept")
    async with open_blobs(url, tmp_path) as opened:
        yield opened


class TestEveryPlace(BlobsConformance):
    pass


async def test_a_folder_shows_bundles_to_nobody_else(tmp_path):
    async with open_blobs(None, tmp_path) as blobs:
        digest, file = given(tmp_path, b"x")
        file.chmod(0o644)
        await blobs.put(digest, file)
        assert await blobs.url(digest, 60) is None
    kept = tmp_path / "blobs" / digest[:2] / digest
    assert kept.stat().st_mode & 0o777 == 0o600
    assert kept.parent.stat().st_mode & 0o777 == 0o700


_PUT = """
import asyncio, sys
from pathlib import Path
from aenv.control.hub.directory import DirectoryBlobs
asyncio.run(DirectoryBlobs(Path(sys.argv[1])).put(sys.argv[2], Path(sys.argv[3])))
"""


@pytest.mark.skipif(os.geteuid() != 0, reason="only root may mount")
def test_a_folder_may_be_a_mount_of_its_own_on_the_same_device(tmp_path: Path) -> None:
    (tmp_path / "kept").mkdir()
    digest, file = given(tmp_path, b"x")
    mounted = ["unshare", "--mount", "sh", "-c", 'mount --bind "$0" "$0" && exec "$@"', tmp_path / "kept"]
    subprocess.run([*mounted, sys.executable, "-c", _PUT, tmp_path / "kept", digest, file], check=True)
    assert (tmp_path / "kept" / digest[:2] / digest).read_bytes() == b"x"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["kept"]


@pytest.mark.slow
async def test_a_bucket_gives_urls_that_anybody_can_read(s3_url, tmp_path):
    async with open_blobs(s3_url, tmp_path) as blobs:
        digest, file = given(tmp_path, b"for all")
        await blobs.put(digest, file)
        url = await blobs.url(digest, 60)
        assert url
        with await asyncio.to_thread(urllib.request.urlopen, url) as response:
            assert response.read() == b"for all"


@pytest.mark.slow
async def test_a_bucket_that_cannot_be_reached_is_unavailable(s3_url, tmp_path):
    nowhere = "s3://bundles/x?endpoint=http://127.0.0.1:9&region=us-east-1"
    async with open_blobs(nowhere, tmp_path) as blobs:
        with pytest.raises(Unavailable, match="cannot be reached"):
            await blobs.size("0" * 64)


@pytest.mark.slow
async def test_a_bucket_that_does_not_exist_is_unavailable(s3_url, tmp_path):
    async with open_blobs(s3_url.replace(s3_server.BUCKET, "other"), tmp_path) as blobs:
        digest, file = given(tmp_path, b"x")
        with pytest.raises(Unavailable, match="'other'"):
            await blobs.put(digest, file)
        assert file.exists()


@pytest.mark.parametrize("url", ["ftp://x/y", "s3://", "s3://bucket?secret=1"])
async def test_a_place_that_makes_no_sense_is_refused(url, tmp_path):
    with pytest.raises(InvalidRequest, match="s3://bucket"):
        async with open_blobs(url, tmp_path):
            pass


class TestCheckouts:
    async def put(self, blobs: Blobs, folder: Path) -> str:
        bundle = bundles.pack(make_source(folder / "source"), folder / "a")
        await blobs.put(bundle.digest, folder / "a")
        return bundle.digest

    async def test_a_bundle_is_unpacked_once_however_many_ask(self, blobs, tmp_path):
        digest = await self.put(blobs, tmp_path)
        checkouts = Checkouts(tmp_path / "home", blobs)
        folders = await asyncio.gather(*(checkouts.folder(digest) for _ in range(10)))
        assert {*folders} == {tmp_path / "home" / "environments" / digest}
        assert (folders[0] / "config.json").is_file()
        await blobs.delete(digest)  # it is not read again
        assert await checkouts.folder(digest) == folders[0]
        left = sorted(path.name for path in folders[0].parent.iterdir())
        assert left == [digest, f"{digest}.used"]

    async def test_two_processes_may_unpack_the_same_at_once(self, blobs, tmp_path):
        digest = await self.put(blobs, tmp_path)
        several = [Checkouts(tmp_path / "home", blobs) for _ in range(5)]
        folders = await asyncio.gather(*(checkouts.folder(digest) for checkouts in several))
        assert len({*folders}) == 1
        assert (folders[0] / "src" / "environment.py").is_file()

    async def test_a_bundle_that_was_damaged_is_not_unpacked(self, tmp_path):
        async with open_blobs(None, tmp_path) as blobs:
            digest = await self.put(blobs, tmp_path)
            kept = tmp_path / "blobs" / digest[:2] / digest
            kept.write_bytes(kept.read_bytes()[:-9] + b"x" + kept.read_bytes()[-8:])
            checkouts = Checkouts(tmp_path / "home", blobs)
            with pytest.raises(Unavailable, match="damaged"):
                await checkouts.folder(digest)
            assert not [path for path in (tmp_path / "home" / "environments").iterdir() if path.suffix != ".used"]

    async def test_what_nobody_uses_is_collected(self, tmp_path):
        async with open_blobs(None, tmp_path) as blobs:
            digest = await self.put(blobs, tmp_path)
            checkouts = Checkouts(tmp_path / "home", blobs)
            folder = await checkouts.folder(digest)
            await checkouts.collect(3600)
            assert folder.exists()
            os.utime(folder.parent / f"{digest}.used", (1, 1))
            await checkouts.collect(3600, keep={digest})
            assert folder.exists()
            await checkouts.collect(3600)
            assert list(folder.parent.iterdir()) == []
            assert await checkouts.folder(digest) == folder
