"""The addresses that people write for an `Environment`, and the ports that they leave out."""

from __future__ import annotations

from functools import lru_cache
from urllib.parse import urlsplit

from ..addresses import Origin, parse_url

CONTROL_PORT = 8080
DATA_PORT = 8081


@lru_cache
def control_origin(address: str) -> Origin:
    """A gateway's address: the port given, else 8080 for http, as published clients assume, and 443 for https."""
    return parse_url(_with_scheme(address), http_port=CONTROL_PORT)[0]


def direct_origin(address: str) -> Origin:
    """A runtime's address, with or without scheme and port: "127.0.0.1", "http://localhost:9000"."""
    return parse_url(_with_scheme(address), http_port=DATA_PORT)[0]


@lru_cache
def published_url(address: str, port: int | str, path: str = "") -> str:
    """The URL that the published SDK makes: always http, always this port."""
    host = urlsplit(_with_scheme(address)).hostname or "127.0.0.1"
    return f"http://{f'[{host}]' if ':' in host else host}:{port}{path}"


def _with_scheme(address: str) -> str:
    return address if "://" in address else f"http://{address}"
