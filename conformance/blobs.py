"""What every place for bundles must do: a test module subclasses `BlobsConformance` and has a fixture `blobs`."""

from __future__ import annotations

import hashlib
import os
from pathlib import Path

import pytest

from aenv.base.errors import NotFound
from aenv.control.hub.blobs import Blobs


def given(folder: Path, content: bytes) -> tuple[str, Path]:
    """The digest of some content, and a file with it."""
    digest = hashlib.sha256(content).hexdigest()
    (folder / "given").write_bytes(content)
    return digest, folder / "given"


async def read(blobs: Blobs, digest: str, start: int = 0, end: int | None = None) -> bytes:
    return b"".join([chunk async for chunk in blobs.read(digest, start, end)])


class BlobsConformance:
    """The suite."""

    async def test_what_was_put_is_read_again_whole_or_in_part(self, blobs: Blobs, tmp_path: Path) -> None:
        content = os.urandom(9 << 20)  # more than one part of an upload, and of a download
        digest, file = given(tmp_path, content)
        await blobs.put(digest, file)
        assert not file.exists()
        assert await blobs.size(digest) == len(content)
        assert await read(blobs, digest) == content
        assert await read(blobs, digest, 5 << 20) == content[5 << 20 :]
        assert await read(blobs, digest, 10, 20) == content[10:20]
        assert await read(blobs, digest, 7, 7) == b""
        assert await read(blobs, digest, len(content)) == b""

    async def test_putting_the_same_again_changes_nothing(self, blobs: Blobs, tmp_path: Path) -> None:
        for _ in range(2):
            digest, file = given(tmp_path, b"the same")
            await blobs.put(digest, file)
        assert await read(blobs, digest) == b"the same"

    async def test_what_is_not_there_has_no_size_and_cannot_be_read(self, blobs: Blobs) -> None:
        assert await blobs.size("0" * 64) is None
        with pytest.raises(NotFound):
            await read(blobs, "0" * 64)

    async def test_what_was_deleted_is_gone_and_may_be_deleted_again(self, blobs: Blobs, tmp_path: Path) -> None:
        digest, file = given(tmp_path, b"x")
        await blobs.put(digest, file)
        await blobs.delete(digest)
        await blobs.delete(digest)
        assert await blobs.size(digest) is None
