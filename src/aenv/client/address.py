"""Where an `Environment` goes: the three modes, and the addresses that people write for them."""

from __future__ import annotations

from urllib.parse import urlsplit

from ..errors import InvalidRequest
from ..http1 import Origin

CONTROL_PORT = 8080
DATA_PORT = 8081


def control_origin(address: str) -> Origin:
    """A gateway's address: the port given, else 8080 for http, as published clients assume, and 443 for https."""
    return _origin(address, CONTROL_PORT)


def direct_origin(address: str) -> Origin:
    """A runtime's address, with or without scheme and port: "127.0.0.1", "http://localhost:9000"."""
    return _origin(address, DATA_PORT)


def published_url(address: str, port: int | str, path: str = "") -> str:
    """The URL that the published SDK makes: always http, always this port."""
    host = urlsplit(address if "://" in address else f"http://{address}").hostname or "127.0.0.1"
    return f"http://{f'[{host}]' if ':' in host else host}:{port}{path}"


def _origin(address: str, default_port: int) -> Origin:
    try:
        parts = urlsplit(address if "://" in address else f"http://{address}")
        port = parts.port
    except ValueError as error:
        raise InvalidRequest(f"bad address {address!r}: {error}") from error
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise InvalidRequest(f"bad address {address!r}; write it as 'http://host:port' or 'host'")
    tls = parts.scheme == "https"
    return Origin(parts.hostname, port or (443 if tls else default_port), tls)
