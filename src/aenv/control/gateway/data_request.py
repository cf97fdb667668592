"""Whom a data request is for: an instance by path, header or token; a service, or a signed port, by path."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from ...base import origins
from ...base.errors import Forbidden, InvalidRequest, NotFound
from ...base.http1 import RawHeaders
from ...base.wire import INSTANCE_HEADER, PROXY_URL_HEADER
from ..serving.accounts import is_token
from .tokens import Claim, Tokens

INSTANCES = b"/instances/"
SERVICES = b"/services/"
PORTS = b"/ports/"
REWARD = "/task/reward"

_INSTANCE = INSTANCE_HEADER.lower().encode()
_OF_PAGES = {name.encode() for name in origins.HEADERS}
_HOP_BY_HOP = {
    b"connection",
    b"keep-alive",
    b"proxy-authenticate",
    b"proxy-authorization",
    b"proxy-connection",
    b"te",
    b"trailer",
    b"transfer-encoding",
    b"upgrade",
}
# Not for an instance to say: what concerns this gateway's whole origin, and so all other instances behind it.
_OF_THE_ORIGIN = {
    b"alt-svc",
    b"clear-site-data",
    b"expect-ct",
    b"nel",
    b"public-key-pins",
    b"public-key-pins-report-only",
    b"report-to",
    b"reporting-endpoints",
    b"service-worker-allowed",
    b"set-cookie",
    b"set-cookie2",
    b"strict-transport-security",
}
_OUR_PREFIX = b"aenvcore-"
_NOT_IN_REPLIES = _HOP_BY_HOP | _OF_THE_ORIGIN
_BODYLESS = {204, 304}
# Not for the instance: what belongs to the connection, and an address that a client would have us dial.
_OURS = {*_HOP_BY_HOP, b"host", b"content-length", b"expect", _INSTANCE, PROXY_URL_HEADER.lower().encode()}
_OURS_AND_PAGES = _OURS | _OF_PAGES


@dataclass(frozen=True)
class DataRules:
    """What holds for every request on the data path."""

    max_body_bytes: int
    loopback_only: bool
    allowed: origins.Allowed = frozenset()
    """The pages of others that may call."""


@dataclass(slots=True)
class DataRequest:
    """A request for an instance or a service, as it will be forwarded."""

    instance: str
    """Its id; for a service, the service's."""
    is_service: bool
    claim: Claim | None
    """What the instance token says that came with it."""
    account_token: str | None
    """The token of an account that came with it; not forwarded."""
    target: str
    headers: RawHeaders
    length: int | None
    """How long the body says that it is; None when it comes in chunks, 0 when there is none."""

    def header(self, name: bytes) -> str:
        """A header's value; empty when it was not sent."""
        return next((value for key, value in self.headers if key == name), b"").decode("latin-1")


def read(
    scope: Mapping[str, Any], tokens: Tokens, *, loopback_only: bool, allowed: origins.Allowed = frozenset()
) -> DataRequest | None:
    """What `scope` asks of which instance; None when it names none. InvalidRequest when it names two.

    Forbidden when a web page asks; `loopback_only` and `allowed` as in `origins.check`.
    """
    path: bytes = scope["raw_path"]
    prefix = next((prefix for prefix in (INSTANCES, SERVICES, PORTS) if path.startswith(prefix)), b"")
    named: set[str] = set()
    claim: Claim | None = None
    account_token: str | None = None
    callers: dict[str, str] = {}
    headers: RawHeaders = []
    length: int | None = 0
    # What pages may do is decided here; but a server on a port is a site of its own, and decides for itself.
    dropped = (_OURS if prefix == PORTS else _OURS_AND_PAGES) | connection_options(scope["headers"])
    for name, value in scope["headers"]:
        if name == _INSTANCE:
            named.add(value.decode("latin-1").strip())
        elif name == b"authorization" and (token := _bearer(value)):
            # What opens this gateway is none of the instance's business.
            if is_token(token):
                account_token = token
                continue
            if bearer := tokens.verify(token):
                if not bearer.port:  # that of a port opens nothing but its URL
                    claim = bearer
                    named.add(bearer.instance)
                continue
        elif name in _OF_PAGES:
            callers[name.decode()] = value.decode("latin-1")
        elif name == b"content-length":
            length = int(value)
        elif name == b"transfer-encoding":
            length = None
        if name not in dropped:
            headers.append((name, value))
    if prefix == PORTS:  # its URL is a secret: a page that has it may show what is there
        callers.pop("sec-fetch-site", None)
    if refusal := origins.check(scope["method"], callers, loopback_only=loopback_only, allowed=allowed):
        raise Forbidden(refusal)
    if prefix:
        id, slash, rest = path[len(prefix) :].partition(b"/")
        path = slash + rest or b"/"
        name = id.decode("latin-1")
        if prefix == PORTS:
            claim = _port(name, tokens)
            name = claim.instance
        named.add(name)
    if not named:
        return None
    if len(named) > 1:
        raise InvalidRequest(
            "path, header and token name different instances; send one of them, or the same id in all"
        )
    query = scope["query_string"]
    target = (path + b"?" + query if query else path).decode("latin-1")
    return DataRequest(named.pop(), prefix == SERVICES, claim, account_token, target, headers, length)


def reply_headers(status: int, headers: RawHeaders) -> RawHeaders:
    """What of an instance's response headers goes on to the client."""
    dropped = _NOT_IN_REPLIES | connection_options(headers)
    if status in _BODYLESS:
        dropped.add(b"content-length")  # of a body that is not sent
    return [pair for pair in headers if pair[0] not in dropped and not pair[0].startswith(_OUR_PREFIX)]


def connection_options(headers: RawHeaders) -> set[bytes]:
    """The headers that `Connection` declares to be meant for the next hop only."""
    return {
        option.strip().lower() for name, value in headers if name == b"connection" for option in value.split(b",")
    }


def _bearer(value: bytes) -> str:
    scheme, _, token = value.decode("latin-1").partition(" ")
    return token.strip() if scheme.lower() == "bearer" else ""


def _port(token: str, tokens: Tokens) -> Claim:
    claim = tokens.verify(token)
    if claim is None or claim.port is None or claim.is_over:
        raise NotFound("this URL of a port is not valid, or no longer; ask for a new one")
    return claim
