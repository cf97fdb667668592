"""Who may speak to a local server: protection against DNS rebinding.

A web page can make a browser send requests to a name that resolves to this machine. Such a request carries
that name in Host, and an Origin that is no address of ours.
"""

from __future__ import annotations

from functools import lru_cache
from urllib.parse import urlsplit


def is_loopback(host: str) -> bool:
    """Whether `host` (without port) is this machine's own: localhost, 127.0.0.0/8, ::1."""
    if host in ("localhost", "127.0.0.1", "::1") or host.endswith(".localhost"):
        return True
    import ipaddress  # not needed for the usual names, and an instance's start counts every millisecond

    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def host_of(authority: str) -> str:
    """The host of a Host header, in lower case, without port and brackets."""
    return (urlsplit(f"//{authority}").hostname or "") if authority else ""


@lru_cache(maxsize=256)  # the same few hosts call again and again, and parsing them is a tenth of a tool call
def refusal(host: str | None, origin: str | None, *, loopback_only: bool) -> str | None:
    """Why a request with these headers is refused, or None when it may pass.

    `loopback_only`: the server listens on loopback, so any other name in Host was rebound. A server that
    listens elsewhere is known under names that it cannot list; there only Origin is checked.
    """
    try:
        name = host_of(host or "")
        page = (urlsplit(origin).hostname or "") if origin else ""
    except ValueError:
        return "the Host or Origin header is malformed"
    if loopback_only and host and not is_loopback(name):
        return f"host {name!r} is not this machine; use localhost or 127.0.0.1"
    if origin and not is_loopback(page) and not (_is_address(page) and page == name):
        return f"origin {origin!r} may not call this server"
    return None


def _is_address(host: str) -> bool:
    import ipaddress

    try:
        ipaddress.ip_address(host)
    except ValueError:
        return False
    return True
