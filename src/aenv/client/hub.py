"""The hub's routes: find environments, publish them, and move their bundles.

Bundles go in pieces and go on where a broken connection stopped; both ends compare the digest.
"""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any, BinaryIO
from urllib.parse import quote, urlencode

from ..base.errors import (
    AEnvError,
    Conflict,
    InvalidRequest,
    MethodNotAllowed,
    NetworkError,
    NotFound,
    Unavailable,
    Unsupported,
)
from ..base.http1 import Response
from ..base.refs import Ref
from ..base.replies import unwrap
from .api import Api, backoff
from .hub_records import HubAccess, HubChange, HubHistory, HubRuntime, HubUpload, HubUser, HubVersion

Versions = list[HubVersion]  # the class below has a method `list`
Audit = list[HubChange]
OnBytes = Callable[[int], None]
"""Told how many bytes have arrived so far."""

_PIECE_BYTES = 8 << 20
_TRIES = 5  # in a row without a further byte
_SILENCE = 60.0  # seconds without a byte after which a download is taken for broken


class Hub:
    """The registry of environments at the other end of `api`. A Ref without version means the latest."""

    def __init__(self, api: Api) -> None:
        self._api = api

    async def whoami(self) -> HubUser:
        """Who the hub takes us for."""
        return HubUser.of(await self._api.call("GET", "/whoami"))

    async def get(self, ref: Ref) -> HubVersion:
        return HubVersion.of(await self._api.call("GET", _path(ref)))

    async def find(self, ref: Ref) -> HubVersion | None:
        """The same as `get`, and None where there is none."""
        try:
            return await self.get(ref)
        except NotFound:
            return None

    async def runs_on(self, ref: Ref) -> HubRuntime:
        """Which root file system and which Python instances get there."""
        try:
            return HubRuntime.of(await self._api.call("GET", f"{_path(ref)}/root"))
        except (NotFound, MethodNotAllowed, InvalidRequest, Unsupported):
            return HubRuntime()

    async def versions(self, name: str) -> HubHistory:
        """An environment as a whole: its access policy and all its versions, newest first."""
        return HubHistory.of(await self._api.call("GET", f"/env/{quote(name, safe='')}"), name)

    async def list(
        self, *, limit: int = 100, offset: int = 0, q: str = "", name: str = "", tags: Sequence[str] = ()
    ) -> tuple[Versions, int]:
        """One page, and how many there are in all."""
        wanted = {"q": q, "name": name, "tags": ",".join(tags)}
        query = urlencode({"limit": limit, "offset": offset} | {key: text for key, text in wanted.items() if text})
        response = await self._api.raw("GET", f"/env?{query}")
        found = [HubVersion.of(each) for each in await self._data(response) or []]
        return found, int(response.header(b"x-total-count") or offset + len(found))

    async def create(self, body: Mapping[str, Any]) -> None:
        """Publish a new version; Conflict when it exists."""
        await self._api.call("POST", "/env", body)

    async def update(self, ref: Ref, body: Mapping[str, Any]) -> None:
        """Replace an unreleased version; Conflict when it is released and differs."""
        await self._api.call("PUT", _path(ref), body)

    async def release(self, ref: Ref) -> None:
        """Make a version immutable."""
        await self._api.call("POST", f"{_path(ref)}/release")

    async def delete(self, ref: Ref, *, force: bool = False) -> None:
        await self._api.call("DELETE", _path(ref) + ("?force=true" if force else ""))

    async def access(self, name: str) -> HubAccess:
        return HubAccess.of(await self._api.call("GET", f"/env/{quote(name, safe='')}/access"))

    async def set_access(self, name: str, policy: HubAccess) -> HubAccess:
        return HubAccess.of(await self._api.call("PUT", f"/env/{quote(name, safe='')}/access", asdict(policy)))

    async def audit(self, name: str | None, limit: int = 100) -> Audit:
        """Who did what, to one environment or to all, newest first."""
        whole = f"/env/{quote(name, safe='')}" if name else ""
        found = await self._api.call("GET", f"{whole}/audit?{urlencode({'limit': limit})}")
        return [HubChange.of(each) for each in found or []]

    async def upload_bundle(self, path: Path, digest: str, size_bytes: int, on_progress: OnBytes) -> None:
        """Return once the hub has the bundle, which it may have had before."""
        reached, tries = 0, 0
        announcement = {"digest": digest, "size_bytes": size_bytes}
        with path.open("rb") as file:
            while True:
                try:
                    known = HubUpload.of(await self._api.call("POST", "/bundles", announcement))
                    if known.exists:
                        on_progress(size_bytes)
                        return
                    if known.offset > reached:
                        reached, tries = known.offset, 0
                    await self._send(file, digest, known.offset, on_progress)
                    return
                except (NetworkError, Unavailable, Conflict) as error:  # a conflict: others upload the same
                    await _wait_or_raise(tries, error)
                    tries += 1

    async def _send(self, file: BinaryIO, digest: str, offset: int, on_progress: OnBytes) -> None:
        """Send the file from `offset` on."""
        headers = [("content-type", "application/octet-stream")]
        file.seek(offset)
        while piece := await asyncio.to_thread(file.read, _PIECE_BYTES):
            path = f"/bundles/{quote(digest, safe='')}?offset={offset}"
            received = HubUpload.of(await self._data(await self._api.raw("PUT", path, headers, piece)))
            offset = received.offset
            on_progress(offset)
            if received.complete:
                return
            file.seek(offset)
        raise NetworkError(f"{self._api.origin} has all of the bundle, and does not say that it is complete")

    async def download_bundle(self, ref: Ref, target: Path, on_progress: OnBytes) -> str:
        """Write the bundle of a version to the file `target`; its digest, which was compared."""
        etag, reached, tries = "", 0, 0
        with target.open("wb") as file:
            while True:
                resume = [("range", f"bytes={file.tell()}-"), ("if-range", etag)] if file.tell() else []
                try:
                    response = await self._api.raw("GET", f"{_path(ref)}/bundle", resume)
                    if response.status != 206:  # from its beginning, perhaps because it was replaced meanwhile
                        file.seek(0)
                        file.truncate()
                    etag = response.header(b"etag") or ""
                    await _receive(response, file, on_progress)
                    break
                except (NetworkError, Unavailable) as error:
                    if file.tell() > reached:
                        reached, tries = file.tell(), 0
                    await _wait_or_raise(tries, error)
                    tries += 1
        digest, actual = etag.strip('"'), await asyncio.to_thread(_sha256, target)
        if digest.removeprefix("sha256:") != actual:
            raise NetworkError(f"the bundle of {str(ref)!r} arrived damaged: it is {actual}, and not {digest}")
        return digest

    async def _data(self, response: Response) -> Any:
        return unwrap(response, await response.read(), self._api.origin)


def _path(ref: Ref) -> str:
    return f"/env/{quote(ref.name, safe='')}/{quote(ref.version or ref.range or 'latest', safe='')}"


async def _receive(response: Response, file: BinaryIO, on_progress: OnBytes) -> None:
    loop = asyncio.get_running_loop()
    try:
        async with asyncio.timeout(_SILENCE) as limit:
            async for chunk in response:
                file.write(chunk)
                on_progress(file.tell())
                limit.reschedule(loop.time() + _SILENCE)
    except TimeoutError:
        raise NetworkError(f"the download stopped for {_SILENCE:g} s") from None


async def _wait_or_raise(tries: int, error: AEnvError) -> None:
    if tries >= _TRIES:
        raise error
    await asyncio.sleep(backoff(tries, error))


def _sha256(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
