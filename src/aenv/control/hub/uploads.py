"""Uploads: how a bundle gets into the hub, and what the hub learns from it.

Everything that is known about a bundle (digest, size, files, readme, tools) is found out here, from its bytes.
"""

from __future__ import annotations

import asyncio
import hashlib
import secrets
import time
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ...artifacts import bundles
from ...base.errors import InvalidRequest, NotFound, TooLarge
from ...base.limits import spell_bytes
from ...base.models import AnnouncedBundle, ReceivedPart
from ...base.refs import Ref
from ..serving.accounts import Caller
from ..stores.base import Delete, Document, Put, Stale, Store, walk
from . import metadata
from .blobs import Blobs, or_unavailable
from .incoming import Incoming

MAX_BUNDLE_BYTES = 1 << 30
DAY = 86400.0
_BUNDLES, _UPLOADS = "bundles", "uploads"
_MAX_USERS = 100
_MAX_REQUIREMENTS = 1000
_SHORT = 16  # hex digits of a file's digest: enough to see that it changed


@dataclass(frozen=True)
class BundleFacts:
    digest: str
    size_bytes: int
    config: dict[str, Any]
    readme: str
    requirements: list[str]
    files: dict[str, str]
    surface: metadata.Offers
    at: float
    users: list[str]
    """Who has sent the whole of it. To know a digest is not enough to use a bundle: that would be to read it."""


class Uploads:
    """Bundles on their way in, and those that have arrived."""

    def __init__(self, store: Store, blobs: Blobs, folder: Path) -> None:
        self._store = store
        self._blobs = blobs
        self._incoming = Incoming(folder)

    async def announce(self, digest: str, size_bytes: int, caller: Caller) -> AnnouncedBundle:
        """Whether the caller need not send a bundle, and otherwise from which byte on."""
        if size_bytes > MAX_BUNDLE_BYTES:
            raise InvalidRequest(f"field 'size_bytes': a bundle may have {spell_bytes(MAX_BUNDLE_BYTES)}")
        if await self._has(digest, caller):
            return AnnouncedBundle(exists=True, offset=size_bytes)
        announcement = {"size_bytes": size_bytes}
        await self._store.write(_waiting(_upload_name(digest, caller), announcement), durable=False)
        offset = self._incoming.offset(_upload_name(digest, caller))
        if offset >= size_bytes:
            # All bytes came, but the hub that received them was killed before it finished.
            last = await self.receive(digest, offset, _nothing(), caller)
            return AnnouncedBundle(exists=last.complete, offset=last.offset)
        return AnnouncedBundle(exists=False, offset=offset)

    async def receive(
        self, digest: str, offset: int, chunks: AsyncIterator[bytes], caller: Caller
    ) -> ReceivedPart:
        """Add a part. When it was the last one, the bundle is here, verified, and what it holds is known."""
        [announced] = await self._store.get(_UPLOADS, _upload_name(digest, caller))
        if announced is None:
            raise NotFound(f"upload {digest!r} not found; announce it with POST /bundles first")
        name = _upload_name(digest, caller)
        size, actual = await self._incoming.append(name, offset, chunks)
        if actual != digest:
            if size < announced.value["size_bytes"]:
                return ReceivedPart(offset=size, complete=False)
            self._incoming.drop(name)
            raise InvalidRequest(f"the bundle is sha256 {actual}, and not {digest}; send it again")
        await self._finish(name, digest, size, caller.user)
        await self._store.write(Delete(_UPLOADS, announced.key), durable=False)
        return ReceivedPart(offset=size, complete=True)

    async def receive_for(self, ref: Ref, user: str, chunks: AsyncIterator[bytes]) -> str:
        """Take a whole archive for a version that is pushed later, as published clients do; its digest."""
        name = f"signed-{secrets.token_hex(16)}"
        try:
            size, digest = await self._incoming.append(name, 0, chunks)
            await self._finish(name, digest, size, user)
        finally:
            self._incoming.drop(name)
        archive = {"digest": digest}
        await self._store.write(_waiting(_archive_name(ref, user), archive, counts={_uses(digest): 1}))
        return digest

    async def sent_for(self, ref: Ref, caller: Caller) -> tuple[BundleFacts, Delete] | None:
        """The archive that the caller has sent for a version, and how to forget that it waits."""
        [archive] = await self._store.get(_UPLOADS, _archive_name(ref, caller.user))
        facts = await self.facts(archive.value["digest"]) if archive else None
        return (facts, Delete(_UPLOADS, archive.key)) if archive and facts else None

    async def sent(self, digest: str, caller: Caller) -> BundleFacts:
        facts = await self.facts(digest) if await self._has(digest, caller) else None
        if facts is None:
            raise InvalidRequest(f"field 'bundle': you have not uploaded {digest!r}; POST /bundles says how")
        return facts

    async def facts(self, digest: str) -> BundleFacts | None:
        """What is known about a bundle, without a check of the caller."""
        [document] = await self._store.get(_BUNDLES, digest)
        if document is None:
            return None
        return BundleFacts(**{**document.value, "surface": metadata.Offers(**document.value["surface"])})

    async def unused(self, digest: str | None) -> list[Put]:
        """What to write along when a version stops using a bundle, so that it is collected if no other does."""
        [document] = await self._store.get(_BUNDLES, digest) if digest else [None]
        return [_candidate({**document.value, "at": time.time()}, None)] if document else []

    async def unreferenced(self, older_than: float) -> AsyncIterator[tuple[str, int, float]]:
        """The bundles that no version has for so long, a day at least: digest, size, and since when."""
        async for document in self._old(_BUNDLES, older_than):
            if not (await self._store.totals(_uses(document.key)))[0]:
                yield document.key, document.value["size_bytes"], document.value["at"]

    async def collect(self, older_than: float = DAY) -> None:
        """Remove uploads that stopped so long ago, a day at least, and bundles that are `unreferenced`."""
        await asyncio.to_thread(self._incoming.drop_older_than, max(older_than, DAY))
        async for document in self._old(_UPLOADS, older_than):
            await self._write_if_unchanged(Delete(_UPLOADS, document.key, document.revision))
        async for document in self._old(_BUNDLES, older_than):
            [uses] = await self._store.totals(_uses(document.key))
            if uses:
                await self._write_if_unchanged(Put(_BUNDLES, document.key, document.value, document.revision))
            elif await self._write_if_unchanged(Delete(_BUNDLES, document.key, document.revision)):
                await self._blobs.delete(document.key)

    async def _has(self, digest: str, caller: Caller) -> bool:
        [document] = await self._store.get(_BUNDLES, digest)
        if document is None or not (caller.is_admin or caller.user in document.value["users"]):
            return False
        [uses] = await self._store.totals(_uses(digest))
        # What no version uses may be collected at any moment, unless it came not long ago.
        safe = uses or time.time() - document.value["at"] < DAY / 2
        return bool(safe) and await self._blobs.size(digest) == document.value["size_bytes"]

    async def _finish(self, name: str, digest: str, size: int, user: str) -> None:
        """Keep a file that is complete: first what it holds, then its bytes, for only both together count."""
        path = self._incoming.path(name)
        [known] = await self._store.get(_BUNDLES, digest)
        value = known.value if known else None
        if value is None or await self._blobs.size(digest) != size:
            try:
                with or_unavailable("the upload"):
                    value = await asyncio.to_thread(_examine, path, digest, size)
            except (InvalidRequest, TooLarge):
                self._incoming.drop(name)
                raise
            await self._remember(value, user)
            await self._blobs.put(digest, path)
        else:
            await self._remember(value, user)
        self._incoming.drop(name)

    async def _remember(self, value: dict[str, Any], user: str) -> None:
        while True:
            [known] = await self._store.get(_BUNDLES, value["digest"])
            users = [other for other in (known.value["users"] if known else ()) if other != user]
            new = {**value, "users": [user, *users][:_MAX_USERS], "at": time.time()}
            if await self._write_if_unchanged(_candidate(new, known.revision if known else 0)):
                return

    async def _write_if_unchanged(self, change: Put | Delete) -> bool:
        try:
            await self._store.write(change)
        except Stale:
            return False
        return True

    async def _old(self, kind: str, older_than: float) -> AsyncIterator[Document]:
        """Documents that wait to be collected, and have for so long, a day at least."""
        limit = time.time() - max(older_than, DAY)
        async for document in walk(self._store, kind, "waiting"):
            if document.value["at"] > limit:
                return  # those behind it are younger
            yield document


def _examine(path: Path, digest: str, size: int) -> dict[str, Any]:
    contents = bundles.inspect(path)
    return {
        "digest": digest,
        "size_bytes": size,
        "config": contents.config,
        "readme": contents.readme,
        "requirements": contents.requirements[:_MAX_REQUIREMENTS],
        "files": {name: sha[:_SHORT] for name, sha in contents.files.items()},
        "surface": vars(metadata.read(contents.sources)),
    }


def _candidate(value: dict[str, Any], revision: int | None) -> Put:
    return Put(_BUNDLES, value["digest"], value, revision, terms={"waiting": _place(value["at"])})


def _waiting(key: str, value: dict[str, Any], **more: Any) -> Put:
    now = time.time()
    return Put(_UPLOADS, key, {**value, "at": now}, terms={"waiting": _place(now)}, **more)


def _place(at: float) -> str:
    return f"{at:017.6f}"


def _uses(digest: str) -> str:
    return f"bundle:{digest}"


# Names of their own for each user: no user can spoil, or claim, what another sends.


def _upload_name(digest: str, caller: Caller) -> str:
    return f"{digest}-{hashlib.sha256(caller.user.encode()).hexdigest()[:16]}"


def _archive_name(ref: Ref, user: str) -> str:
    return f"{ref} {user}"


async def _nothing() -> AsyncIterator[bytes]:
    return
    yield b""
