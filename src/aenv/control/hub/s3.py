"""Bundles in a bucket of any service that speaks S3: `<prefix>/<digest>.tar.gz`."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

from ...base.errors import InvalidRequest, NotFound, Unavailable, Unsupported

_PART_BYTES = 8 << 20  # of an upload, of which four are under way at once
_READ_BYTES = 4 << 20
_MISSING = ("404", "NoSuchKey", "NotFound")


class S3Blobs:
    """Blobs at `s3://bucket/prefix?endpoint=http://…&region=…`.

    Credentials come from where boto3 looks for them: variables, `~/.aws`, the machine's role.
    """

    def __init__(self, url: str) -> None:
        parts = urlsplit(url)
        options = {name: values[-1] for name, values in parse_qs(parts.query).items()}
        if not parts.netloc or set(options) - {"endpoint", "region"}:
            raise InvalidRequest(f"bad bucket {url!r}; write it as 's3://bucket/prefix?endpoint=…&region=…'")
        self._bucket = parts.netloc
        prefix = parts.path.strip("/")
        self._prefix = f"{prefix}/" if prefix else ""
        self._endpoint, self._region = options.get("endpoint"), options.get("region")
        self._made: Any = None
        self._making = threading.Lock()

    async def put(self, digest: str, file: Path) -> None:
        await self._run(self._put, digest, file)
        await asyncio.to_thread(file.unlink, missing_ok=True)

    async def size(self, digest: str) -> int | None:
        try:
            found = await self._run(lambda: self._client().head_object(**self._object(digest)))
        except NotFound:
            return None
        return int(found["ContentLength"])

    async def read(self, digest: str, start: int = 0, end: int | None = None) -> AsyncIterator[bytes]:
        size = await self.size(digest)
        if size is None:
            raise NotFound(f"bundle {digest!r} not found")
        end = size if end is None else min(end, size)
        # A request for each part: a reader who is cancelled leaves a thread behind, and closes nothing under it.
        while start < end and (chunk := await self._run(self._read, digest, start, min(end, start + _READ_BYTES))):
            yield chunk
            start += len(chunk)

    async def delete(self, digest: str) -> None:
        await self._run(lambda: self._client().delete_object(**self._object(digest)))

    async def url(self, digest: str, seconds: float) -> str | None:
        return str(await self._run(self._url, digest, int(seconds)))

    def _object(self, digest: str) -> dict[str, str]:
        return {"Bucket": self._bucket, "Key": f"{self._prefix}{digest}.tar.gz"}

    def _put(self, digest: str, file: Path) -> None:
        from boto3.s3.transfer import TransferConfig

        transfer = TransferConfig(
            multipart_threshold=_PART_BYTES, multipart_chunksize=_PART_BYTES, max_concurrency=4
        )
        place = self._object(digest)
        self._client().upload_file(str(file), place["Bucket"], place["Key"], Config=transfer)

    def _read(self, digest: str, start: int, end: int) -> bytes:
        found = self._client().get_object(**self._object(digest), Range=f"bytes={start}-{end - 1}")
        with found["Body"] as body:
            return bytes(body.read())

    def _url(self, digest: str, seconds: int) -> Any:
        return self._client().generate_presigned_url("get_object", self._object(digest), ExpiresIn=seconds)

    def _client(self) -> Any:
        with self._making:
            if self._made is None:
                self._made = self._make()
            return self._made

    def _make(self) -> Any:
        import boto3
        from botocore.config import Config

        # Own endpoints are as a rule hosts without a name for every bucket.
        style = {"addressing_style": "path"} if self._endpoint else {}
        config = Config(
            signature_version="s3v4", s3=style, connect_timeout=5, read_timeout=60, retries={"max_attempts": 3}
        )
        return boto3.client("s3", endpoint_url=self._endpoint, region_name=self._region, config=config)

    async def _run(self, job: Any, *arguments: Any) -> Any:
        with self._or_say_why():
            return await asyncio.to_thread(job, *arguments)

    @contextmanager
    def _or_say_why(self) -> Iterator[None]:
        try:
            import botocore.exceptions
            from boto3.exceptions import Boto3Error
        except ImportError:
            raise Unsupported("S3 needs boto3: pip install 'boto3>=1.35'") from None
        try:
            yield
        except botocore.exceptions.ClientError as error:
            if error.response.get("Error", {}).get("Code") in _MISSING:
                raise NotFound(f"no such object in bucket {self._bucket!r}") from None
            raise Unavailable(f"bucket {self._bucket!r} refused: {error}") from error
        except (botocore.exceptions.BotoCoreError, Boto3Error) as error:
            raise Unavailable(f"bucket {self._bucket!r} cannot be reached: {error}", retry_after=5) from error
