"""Instance tokens: an instance's id with a signature that only this gateway can make."""

from __future__ import annotations

import base64
import hashlib
import hmac
import re
import secrets

from ..errors import Unauthenticated

_SHAPE = re.compile(r"([a-z0-9-]+)\.[A-Za-z0-9_-]{43}\Z")

_MAX_VERIFIED = 4096


class Tokens:
    """Signs and checks with a key that lives as long as the process."""

    def __init__(self, key: bytes | None = None) -> None:
        self._key = key or secrets.token_bytes(32)
        self._verified: dict[str, str] = {}

    def sign(self, id: str) -> str:
        """The token for instance `id`: `<id>.<signature>`."""
        digest = hmac.digest(self._key, id.encode(), hashlib.sha256)
        return f"{id}.{base64.urlsafe_b64encode(digest).decode().rstrip('=')}"

    def verify(self, token: str) -> str | None:
        """The id in `token`; None when it is no instance token at all (it may be the author's own)."""
        if token in self._verified:
            return self._verified[token]
        match = _SHAPE.match(token)
        if match is None:
            return None
        if not hmac.compare_digest(self.sign(match[1]), token):
            raise Unauthenticated("the instance token was not signed by this gateway; create the instance again")
        # Every call of an instance brings the same token, and signing again is a tenth of the proxy's work.
        if len(self._verified) >= _MAX_VERIFIED:
            self._verified.clear()
        self._verified[token] = match[1]
        return match[1]
