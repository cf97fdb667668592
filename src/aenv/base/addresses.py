"""Network addresses: where requests go, and the URLs that say so."""

from __future__ import annotations

from dataclasses import dataclass, field
from urllib.parse import urlsplit

from .errors import InvalidRequest


@dataclass(frozen=True)
class Origin:
    """Where requests go: a host and port, or a unix socket."""

    host: str
    port: int = 80
    tls: bool = False
    socket: str | None = None
    source: str = field(default="", compare=False)
    """Where the address was found, for the error of a connection that fails."""

    @property
    def authority(self) -> str:
        """What the Host header says."""
        if self.socket:
            return "localhost"
        host = f"[{self.host}]" if ":" in self.host else self.host
        return host if self.port == (443 if self.tls else 80) else f"{host}:{self.port}"

    def __str__(self) -> str:
        return f"unix:{self.socket}" if self.socket else f"{'https' if self.tls else 'http'}://{self.authority}"


def parse_url(url: str, *, http_port: int = 80) -> tuple[Origin, str]:
    """Split a URL into its origin and its path with query; `http_port` is for http without a port."""
    try:
        parts = urlsplit(url)
        port = parts.port
    except ValueError as error:
        raise InvalidRequest(f"bad URL {url!r}: {error}") from error
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise InvalidRequest(f"bad URL {url!r}; write it as 'http://host:port'")
    tls = parts.scheme == "https"
    target = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
    return Origin(parts.hostname, port or (443 if tls else http_port), tls), target
