"""The way from an instance to one model: one server, one path, and the key, which the instance never sees.

A program in the instance asks the relay as it would ask the server, with the relay's own token as API key. What
is not below the path, or not asked with the token, is refused; the key takes the place of the token. Should the
server repeat the key in its answer, it is covered with asterisks.

Not here: connections (`server.py`), and who may have which model (`aenv.control`).
"""

from __future__ import annotations

import hmac
import re
from dataclasses import dataclass, field
from urllib.parse import urlsplit

from ...base.errors import InvalidRequest
from .destinations import Destination
from .exchanges import ProxyRequest, Refusal, forwarded, head_parts

PORT = 3129
"""Where the relay listens in the network of an instance."""
_KEYS = ("authorization", "x-api-key")
_METHODS = ("GET", "POST")
# A server may decode and shorten a path before it looks at it: nothing that could lead out of ours.
_ESCAPED = re.compile(r"%(2e|2f|5c)", re.IGNORECASE)


@dataclass(frozen=True)
class ModelRoute:
    """To the model at `to`, below `prefix`."""

    to: Destination
    prefix: str
    key: str = field(repr=False)
    """Of the server; empty where it wants none."""
    token: str = field(repr=False)
    """What the instance has as its API key."""

    @classmethod
    def parse(cls, url: str, key: str, token: str) -> ModelRoute:
        """For the model at `url`, as in "http://127.0.0.1:8000/v1". InvalidRequest, which shows no secret."""
        parts = urlsplit(url)
        try:
            if parts.scheme != "http" or parts.query or parts.fragment or "@" in parts.netloc:
                raise ValueError("it is not 'http://host:port/path'")
            to = Destination.parse(parts.netloc, default_port=80)
        except ValueError as error:
            raise InvalidRequest(f"the URL of a model cannot be used: {error}") from None
        if not all(text.isascii() and text.isprintable() for text in (key, parts.path)):
            raise InvalidRequest("the key and the path of a model must be printable ASCII")
        return cls(to, parts.path.rstrip("/"), key, token)

    def url(self, port: int) -> str:
        """What programs in the instance take for the server's URL."""
        return f"http://127.0.0.1:{port}{self.prefix}"

    def variables(self, port: int) -> dict[str, str]:
        """What tells them; clients of Anthropic's API add `/v1` themselves."""
        url = self.url(port)
        names = {"OPENAI_BASE_URL": url, "ANTHROPIC_BASE_URL": url.removesuffix("/v1")}
        return {**names, "OPENAI_API_KEY": self.token, "ANTHROPIC_API_KEY": self.token}

    def request(self, head: bytes) -> ProxyRequest:
        """What the server is asked. Refusal for all that is not for this model."""
        method, target, version, headers = head_parts(head)
        if not self._is_known([value for name, value in headers if name.lower() in _KEYS]):
            raise Refusal(401, "the API key is not the one of this instance: use OPENAI_API_KEY as it is set")
        path = target.partition("?")[0]
        if method not in _METHODS or not self._is_below(path):
            raise Refusal(403, f"only GET and POST below '{self.prefix}/' are relayed to the model")
        kinds = {name.lower() for name, _ in headers if name.lower() in _KEYS}
        added = [
            (kind, f"Bearer {self.key}" if kind == _KEYS[0] else self.key) for kind in sorted(kinds) if self.key
        ]
        return forwarded(self.to, method, target, version, headers, dropped=_KEYS, added=added, covered=self.key)

    def _is_known(self, given: list[str]) -> bool:
        tokens = [value.removeprefix("Bearer ").strip() for value in given]
        return bool(tokens) and all(hmac.compare_digest(one.encode(), self.token.encode()) for one in tokens)

    def _is_below(self, path: str) -> bool:
        segments = path.split("/")
        is_plain = not _ESCAPED.search(path) and "\\" not in path and not {".", ".."} & {*segments}
        return is_plain and "" not in segments[1:-1] and path.startswith(f"{self.prefix}/")
