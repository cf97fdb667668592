"""Signed URLs of our own: who has one may do the one thing that it says, until it expires."""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
import json
import secrets
import time
from contextlib import suppress
from dataclasses import asdict, dataclass
from typing import Any, Literal

from ...base.errors import Forbidden
from ..stores.base import Put, Stale, Store

_KIND, _KEY = "secrets", "hub-signing"


@dataclass(frozen=True)
class SignedUse:
    """What a signed URL is for. A hub of another version may read it, so a new field needs a default."""

    method: Literal["GET", "PUT"]
    digest: str = ""
    """Of the bundle that can be downloaded."""
    ref: str = ""
    """The version for which a bundle can be uploaded."""
    user: str = ""
    """Who uploads it."""


class Signer:
    """Makes and checks tokens. The key is kept in the store, so that all hubs on it know the same."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._secret: bytes | None = None

    async def sign(self, use: SignedUse, seconds: float) -> str:
        """A token that stands for `use`, which is readable, for so long."""
        body = _encode(json.dumps({**asdict(use), "until": time.time() + seconds}, separators=(",", ":")).encode())
        return f"{body}.{_encode(await self._mac(body))}"

    async def check(self, token: str) -> SignedUse:
        """What a token stands for. Forbidden when it is over, or was not made here."""
        body, _, mac = token.partition(".")
        try:
            genuine = hmac.compare_digest(_decode(mac), await self._mac(body))
        except (binascii.Error, ValueError):
            genuine = False
        if not genuine:
            raise Forbidden("this signed URL was not made by this hub")
        what: dict[str, Any] = json.loads(_decode(body))
        if what.pop("until") < time.time():
            raise Forbidden("this signed URL has expired; ask for another")
        return SignedUse(**what)

    async def _mac(self, body: str) -> bytes:
        if self._secret is None:
            self._secret = await self._load()
        return hmac.digest(self._secret, body.encode(), hashlib.sha256)

    async def _load(self) -> bytes:
        while True:
            [document] = await self._store.get(_KIND, _KEY)
            if document:
                return bytes.fromhex(document.value["secret"])
            with suppress(Stale):  # another hub was first; its key counts
                await self._store.write(Put(_KIND, _KEY, {"secret": secrets.token_hex(32)}, revision=0))


def _encode(data: bytes) -> str:
    return base64.urlsafe_b64encode(data).rstrip(b"=").decode()


def _decode(text: str) -> bytes:
    return base64.urlsafe_b64decode(text + "=" * (-len(text) % 4))
