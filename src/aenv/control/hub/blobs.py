"""Where bundles are kept: finished, verified, each under the sha256 of its bytes.

Not here: bundles that are still being uploaded (`incoming.py`).
"""

from __future__ import annotations

import errno
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import Protocol

from ...base.errors import InvalidRequest, Unavailable

CHUNK = 256 << 10


class Blobs(Protocol):
    """Content by its digest. Every method raises `errors.Unavailable` while the content cannot be reached."""

    async def put(self, digest: str, file: Path) -> None:
        """Keep the content of `file`, which may be moved away for it. On return it survives a crash."""
        ...

    async def size(self, digest: str) -> int | None:
        """How many bytes there are; None when there is nothing."""
        ...

    def read(self, digest: str, start: int = 0, end: int | None = None) -> AsyncIterator[bytes]:
        """The bytes from `start` up to, not including, `end`. NotFound when there is nothing."""
        ...

    async def delete(self, digest: str) -> None:
        """Fine when there is nothing."""
        ...

    async def url(self, digest: str, seconds: float) -> str | None:
        """A URL that works without credentials for so long; None when only the hub can read it."""
        ...


@asynccontextmanager
async def open_blobs(url: str | None, home: Path) -> AsyncIterator[Blobs]:
    """The blobs at a folder, or at `s3://bucket/prefix?endpoint=…&region=…`; below `home` unless told."""
    if url and url.startswith("s3://"):
        from .s3 import S3Blobs

        yield S3Blobs(url)
    elif url and "://" in url:
        raise InvalidRequest(f"cannot keep bundles at {url!r}; write a folder or 's3://bucket/prefix'")
    else:
        from .directory import DirectoryBlobs

        yield DirectoryBlobs(Path(url) if url else home / "blobs")


@contextmanager
def or_unavailable(what: str) -> Iterator[None]:
    """Say what the disk cannot do, and that it may later."""
    try:
        yield
    except OSError as error:
        if error.errno in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG):
            raise Unavailable(f"no space left for {what}; the hub's disk is full", retry_after=60) from error
        raise Unavailable(f"the hub's disk fails with {what}: {error.strerror or error}") from error
