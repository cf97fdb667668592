"""Tokens that a gateway signs, for an instance or a port of one; any gateway on the same store can check them.

An instance token lives for five minutes; a gateway hands out a fresh one with the replies, so that one in use
never ends. It stops working when the account that it was made for is revoked.
"""

from __future__ import annotations

import base64
import contextlib
import hashlib
import hmac
import re
import secrets
import time
from dataclasses import dataclass

from ...base.errors import Unauthenticated, Unavailable
from ..stores.base import Put, Stale, Store

LIFETIME = 300.0
_FRESH = 60.0  # seconds after which a reply brings a new one
_SHAPE = re.compile(r"([a-z0-9-]+)\.([a-z0-9]*)\.(\d*)\.(\d+)\.[A-Za-z0-9_-]{43}\Z")
_MAX_VERIFIED = 4096


@dataclass(frozen=True)
class Claim:
    """What a token says, and that a gateway said it."""

    instance: str
    account: str | None
    port: int | None
    expires_at: float

    @property
    def is_over(self) -> bool:
        return time.time() >= self.expires_at

    @property
    def is_stale(self) -> bool:
        """Whether its holder should be given a new one."""
        return time.time() >= self.expires_at - LIFETIME + _FRESH


class Tokens:
    """Signs and checks with a key that all gateways on one store share."""

    def __init__(self, key: bytes = b"") -> None:
        self.key = key
        """Empty until the store has told it."""
        self._verified: dict[str, Claim] = {}

    async def load(self, store: Store) -> None:
        """Take the key from `store`, where the first gateway puts one."""
        with contextlib.suppress(Stale):
            await store.write(Put("secrets", "instance-tokens", {"key": secrets.token_hex(32)}, revision=0))
        [document] = await store.get("secrets", "instance-tokens")
        assert document
        self.key = bytes.fromhex(document.value["key"])

    @property
    def installation(self) -> str:
        """Names all gateways on one store; it does not tell the key."""
        return hashlib.blake2b(b"installation", key=self.key, digest_size=8).hexdigest()

    def sign(
        self, instance: str, account: str | None, *, port: int | None = None, lifetime: float = LIFETIME
    ) -> str:
        """A token for an instance, or for one of its ports: `<id>.<account>.<port>.<expiry>.<signature>`."""
        claim = f"{instance}.{account or ''}.{port or ''}.{time.time() + lifetime:.0f}"
        return f"{claim}.{self._signature(claim)}"

    def verify(self, token: str) -> Claim | None:
        """What `token` says; None when it is not a token of ours at all (it may be the author's own)."""
        claim = self._verified.get(token)
        if claim is not None:
            return claim
        match = _SHAPE.match(token)
        if match is None:
            return None
        if not hmac.compare_digest(self._signature(token.rpartition(".")[0]), token.rpartition(".")[2]):
            raise Unauthenticated("the instance token was not signed by this gateway; get the instance again")
        claim = Claim(match[1], match[2] or None, int(match[3]) if match[3] else None, float(match[4]))
        # Every call of an instance brings the same token, and signing again is a tenth of the proxy's work.
        if len(self._verified) >= _MAX_VERIFIED:
            self._verified.clear()
        self._verified[token] = claim
        return claim

    def _signature(self, claim: str) -> str:
        if not self.key:
            raise Unavailable("the gateway is starting; its store has not answered yet")
        # Made for it: a hash with a key, in one go. HMAC by way of OpenSSL takes ten times as long.
        digest = hashlib.blake2b(claim.encode(), key=self.key, digest_size=32).digest()
        return base64.urlsafe_b64encode(digest).decode().rstrip("=")
