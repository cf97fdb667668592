"""The addresses that people write for an `Environment`, and the ports that they leave out."""

from __future__ import annotations

from dataclasses import replace
from functools import lru_cache
from urllib.parse import urlsplit

from ..base.addresses import Origin, parse_url

CONTROL_PORT = 8080
DATA_PORT = 8081


class Located(str):
    """An address that knows where it was found: "the variable AENV_SYSTEM_URL"."""

    source: str

    def __new__(cls, address: str, source: str) -> Located:
        made = super().__new__(cls, address)
        made.source = source
        return made


def control_origin(address: str) -> Origin:
    """A gateway's address: the port given, else 8080 for http, as published clients assume, and 443 for https."""
    return _sourced(_parsed(address, CONTROL_PORT), address)


def direct_origin(address: str) -> Origin:
    """A runtime's address, with or without scheme and port: "127.0.0.1", "http://localhost:9000"."""
    return _sourced(_parsed(address, DATA_PORT), address)


@lru_cache
def _parsed(address: str, http_port: int) -> Origin:
    return parse_url(_with_scheme(address), http_port=http_port)[0]


def _sourced(origin: Origin, address: str) -> Origin:
    return replace(origin, source=address.source) if isinstance(address, Located) else origin


@lru_cache
def published_url(address: str, port: int | str, path: str = "") -> str:
    """The URL that the published SDK makes: always http, always this port."""
    host = urlsplit(_with_scheme(address)).hostname or "127.0.0.1"
    return f"http://{f'[{host}]' if ':' in host else host}:{port}{path}"


def _with_scheme(address: str) -> str:
    return str(address) if "://" in address else f"http://{address}"
