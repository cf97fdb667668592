"""Where a model is served: its address, the way there, and the key, which is in no error and no `repr`."""

from __future__ import annotations

from urllib.parse import urlsplit

from ..base.addresses import Origin, parse_url
from ..base.errors import InvalidRequest
from ..base.http1 import Headers, Pool, Response
from .proxies import proxy_for


class ModelServer:
    """Requests below `base_url`, as in "http://localhost:8000/v1", by the proxy that the variables name.

    No redirect is followed: the key is for the server that was named. InvalidRequest where the URL or the key
    cannot be used; it shows neither.
    """

    def __init__(self, base_url: str, key: str | None = None) -> None:
        if key and not (key.isascii() and key.isprintable()):
            raise InvalidRequest("the key of a model's server must be printable ASCII without line breaks")
        self._key = key or ""
        self.origin, path = _split(base_url)
        self._base = path.rstrip("/")
        self._headers: list[tuple[str, str]] = []
        self._to = self.origin
        proxy = proxy_for(self.origin)
        self._pool = Pool(dial=proxy.tunnel if proxy and self.origin.tls else None)
        if proxy and not self.origin.tls:
            self._base = f"{self.origin}{self._base}"
            self._to = proxy.origin
            self._headers += proxy.headers

    async def close(self) -> None:
        await self._pool.close()

    def authorization(self, header: str = "authorization") -> list[tuple[str, str]]:
        """The key as a header: `authorization` or `x-api-key`."""
        if not self._key:
            return []
        return [(header, f"Bearer {self._key}" if header == "authorization" else self._key)]

    async def request(self, method: str, path: str, headers: Headers, body: bytes = b"") -> Response:
        """The answer to a request for a path below the base URL, once its head is here. NetworkError."""
        return await self._pool.request(self._to, method, f"{self._base}{path}", [*headers, *self._headers], body)

    def without_key(self, text: str) -> str:
        """Some servers repeat the key that they refuse."""
        return text.replace(self._key, "…") if self._key else text


def _split(base_url: str) -> tuple[Origin, str]:
    """Where requests go, and the path that they begin with."""
    is_plain = base_url.isascii() and base_url.isprintable() and not {*base_url} & {*" ?#"}
    try:
        if is_plain and "@" not in urlsplit(base_url).netloc:
            return parse_url(base_url)
    except (ValueError, InvalidRequest):
        pass  # said below: its words repeat the URL, which may hold a secret
    raise InvalidRequest(
        "the URL of a model's server must be an http or https address such as 'http://localhost:8000/v1', without "
        "a user, a query or spaces"
    )
