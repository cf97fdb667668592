"""Which web pages may speak to a server: its own, and those that its operator lists.

A page can make a browser send requests to this machine: to a name that was made to resolve to it (DNS rebinding),
or from another server of this machine. Programs send none of the headers that are looked at here, but for Host.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from urllib.parse import SplitResult, urlsplit

from .errors import InvalidRequest

Allowed = frozenset[str]
"""Origins of pages that may call a server, as browsers write them: `http://localhost:6274`."""

HEADERS = ("host", "origin", "sec-fetch-site", "sec-fetch-mode", "sec-fetch-dest")
"""What `check` looks at."""


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


def read(text: str) -> str:
    """An origin that an operator lists, as browsers write it. InvalidRequest when it is none, or would be any."""
    try:
        parts = urlsplit(text)
        is_origin = parts.scheme in ("http", "https") and parts.hostname and _port(parts)
    except ValueError:
        is_origin = False
    if not is_origin or "*" in text or parts.username is not None or parts.path.strip("/") or parts.query:
        raise InvalidRequest(f"{text!r} is not the origin of a page; write it as 'http://localhost:6274'")
    return f"{parts.scheme}://{parts.netloc}".lower()


def check(
    method: str, headers: Mapping[str, str], *, loopback_only: bool, allowed: Allowed | None = None
) -> str | None:
    """Why a request is refused, or None when it may pass. `headers` has those of `HEADERS` that were sent.

    `allowed` is None where an operator has no way to list pages.
    """
    site = headers.get("sec-fetch-site", "")
    # A link that is followed: the page that has it does not get to see the reply.
    follows = headers.get("sec-fetch-mode") == "navigate" and headers.get("sec-fetch-dest") == "document"
    is_foreign = site in ("cross-site", "same-site") and not (follows and method in ("GET", "HEAD"))
    origin = headers.get("origin")
    listed = allowed or frozenset()
    refused = refusal(headers.get("host"), origin, loopback_only=loopback_only, allowed=listed)
    if refused is None and is_foreign and origin not in listed:
        refused = "a page of another origin may not call this server"
    if refused and (origin or is_foreign) and allowed is not None:
        return f"{refused}; its operator lists the pages that may with --allow-origin"
    return refused


@lru_cache(maxsize=256)  # the same few hosts call again and again, and parsing them is a tenth of a tool call
def refusal(
    host: str | None, origin: str | None, *, loopback_only: bool, allowed: Allowed = frozenset()
) -> str | None:
    """Why a request with these headers is refused, or None when it may pass.

    `loopback_only`: the server listens on loopback, so any other name in Host was rebound. A server that listens
    elsewhere is known under names that it cannot list; there only Origin is checked, and a page of its own is one
    that was fetched by its address.
    """
    try:
        ours = urlsplit(f"//{host or ''}")
        page = urlsplit(origin or "")
        name = ours.hostname or ""
        is_own = bool(origin) and (page.hostname, _port(page)) == (
            name,
            ours.port or _port(page, with_given=False),
        )
    except ValueError:
        return "the Host or Origin header is malformed"
    if loopback_only and host and not is_loopback(name):
        return f"host {name!r} is not this machine; use localhost or 127.0.0.1"
    if origin and origin not in allowed and not (is_own and (is_loopback(name) or _is_address(name))):
        return f"origin {origin!r} may not call this server"
    return None


def _port(parts: SplitResult, *, with_given: bool = True) -> int | None:
    """The port of an origin; without the one that is given, that of its scheme."""
    return (parts.port if with_given else None) or {"http": 80, "https": 443}.get(parts.scheme)


def _is_address(host: str) -> bool:
    import ipaddress

    try:
        ipaddress.ip_address(host)
    except ValueError:
        return False
    return True
