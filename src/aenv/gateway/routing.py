"""Which instance a data request is for: by path, else by header, else by the bearer's instance token."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from starlette.types import Scope

from .. import origins
from ..errors import Forbidden, InvalidRequest
from ..wire import INSTANCE_HEADER, PROXY_URL_HEADER
from .tokens import Tokens

PREFIX = b"/instances/"

_INSTANCE = INSTANCE_HEADER.lower().encode()
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
# Not for the instance: what belongs to the connection, and an address that a client would have us dial.
_OURS = {*_HOP_BY_HOP, b"host", b"content-length", b"expect", _INSTANCE, PROXY_URL_HEADER.lower().encode()}


@dataclass(slots=True)
class DataRequest:
    """A request for an instance, as it will be forwarded."""

    instance: str
    target: str
    headers: list[tuple[str, str]]
    length: int | None
    """How long the body says that it is; None when it comes in chunks, 0 when there is none."""


def read(scope: Scope, tokens: Tokens, *, loopback_only: bool) -> DataRequest | None:
    """What `scope` asks of which instance; None when it names none. InvalidRequest when it names two.

    Forbidden when a web page asks; `loopback_only` as in `origins.refusal`.
    """
    named: set[str] = set()
    callers: dict[bytes, str] = {}
    headers: list[tuple[str, str]] = []
    length: int | None = 0
    dropped = _OURS | connection_options(scope["headers"])
    for name, value in scope["headers"]:
        if name == _INSTANCE:
            named.add(value.decode("latin-1").strip())
        elif name == b"authorization" and (owner := _bearer(value, tokens)):
            named.add(owner)
            continue  # it opens this gateway, and is none of the instance's business
        elif name in (b"host", b"origin"):
            callers[name] = value.decode("latin-1")
        elif name == b"content-length":
            length = int(value)
        elif name == b"transfer-encoding":
            length = None
        if name not in dropped:
            headers.append((name.decode("latin-1"), value.decode("latin-1")))
    refusal = origins.refusal(callers.get(b"host"), callers.get(b"origin"), loopback_only=loopback_only)
    if refusal:
        raise Forbidden(refusal)
    path: bytes = scope["raw_path"]
    if path.startswith(PREFIX):
        id, slash, rest = path[len(PREFIX) :].partition(b"/")
        named.add(id.decode("latin-1"))
        path = slash + rest or b"/"
    if not named:
        return None
    if len(named) > 1:
        raise InvalidRequest(
            "path, header and token name different instances; send one of them, or the same id in all"
        )
    query = scope["query_string"]
    target = (path + b"?" + query if query else path).decode("latin-1")
    return DataRequest(named.pop(), target, headers, length)


def reply_headers(headers: Iterable[tuple[bytes, bytes]]) -> list[tuple[bytes, bytes]]:
    """What of an instance's response headers goes on to the client."""
    pairs = [(name.lower(), value) for name, value in headers]
    dropped = _HOP_BY_HOP | connection_options(pairs)
    return [pair for pair in pairs if pair[0] not in dropped]


def connection_options(headers: Iterable[tuple[bytes, bytes]]) -> set[bytes]:
    """The headers that `Connection` declares to be meant for the next hop only."""
    return {
        option.strip().lower() for name, value in headers if name == b"connection" for option in value.split(b",")
    }


def _bearer(value: bytes, tokens: Tokens) -> str | None:
    scheme, _, token = value.decode("latin-1").partition(" ")
    return tokens.verify(token.strip()) if scheme.lower() == "bearer" else None
