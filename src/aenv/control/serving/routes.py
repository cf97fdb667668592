"""Routes as a table: each says what it answers and who may call it, and the table becomes the application.

Everything that holds for all routes is here: whose request it is, how many are allowed, what is counted, and
how an error becomes a reply.
"""

from __future__ import annotations

import logging
import re
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, TypeVar

from pydantic import BaseModel, ValidationError
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import compile_path
from starlette.types import ASGIApp, Receive, Scope, Send

from ...base import logs, mcp, origins
from ...base.errors import (
    AEnvError,
    Forbidden,
    InvalidRequest,
    MethodNotAllowed,
    NotFound,
    Unauthenticated,
    Unavailable,
)
from ...base.origins import Allowed
from ..stores import store_timeouts
from . import envelope, pages
from .accounts import ANONYMOUS, LOCAL, Accounts, Caller, Role
from .clients import Client, Disconnected
from .metrics import Metrics
from .rates import Rates

logger = logging.getLogger("aenv.control.serving")

M = TypeVar("M", bound=BaseModel)
RouteHandler = Callable[["RouteCall"], Awaitable[Response]]

MAX_BODY_BYTES = 1 << 20
STORE_PATIENCE = 5.0  # seconds for which one request waits for the store, in all
_GONE = 499  # as other servers count requests whose client went away
_FORMS = ("text/plain", "application/x-www-form-urlencoded", "multipart/form-data")


@dataclass(frozen=True)
class Route:
    """One route, as it is served and as the OpenAPI document shows it."""

    method: str
    path: str
    handler: RouteHandler
    access: Role | None
    """The least role that may call it; None: anyone, and no token is read. `Role.ANONYMOUS`: anyone, and a token
    that is sent counts. Whose things a caller may see and touch is the handler's business."""
    summary: str
    body: type[BaseModel] | None = None
    reply: Any = None
    """The type of the reply's `data`."""
    query: Mapping[str, str] = field(default_factory=dict)
    media: str | None = None
    """What the reply is when it is not an envelope."""
    any_origin: bool = False
    """Sent whatever `Origin` a page has: only for files that everybody has."""


@dataclass
class RouteCall:
    request: Request
    caller: Caller
    client: Client

    @property
    def path(self) -> Mapping[str, str]:
        return self.request.path_params

    @property
    def query(self) -> Mapping[str, str]:
        return self.request.query_params

    @property
    def is_local_socket(self) -> bool:
        return is_local_socket(self.request.scope)

    @property
    def host(self) -> str:
        """The host under which this client reached us."""
        try:
            return origins.host_of(self.request.headers.get("host", "")) or "localhost"
        except ValueError:
            raise InvalidRequest("the Host header is malformed") from None

    def number(self, name: str, default: int, *, least: int = 0, most: int) -> int:
        text = self.query.get(name, str(default))
        if not text.isascii() or not text.isdecimal() or not least <= int(text[:10]) <= most:
            raise InvalidRequest(f"field {name!r}: must be a number from {least} to {most}, got {text!r}")
        return int(text)

    def flag(self, name: str) -> bool:
        """Whether a switch of the query is on."""
        return self.query.get(name, "").lower() in ("1", "true", "yes")

    async def body(self, limit: int = MAX_BODY_BYTES) -> bytes:
        return await self.client.read(limit)

    def stream(self, limit: int) -> AsyncIterator[bytes]:
        return self.client.stream(limit)

    async def read(self, model: type[M], limit: int = MAX_BODY_BYTES) -> M:
        """The body as a `model`; InvalidRequest names the field that is wrong, and never repeats a value."""
        return parse(model, await self.body(limit))


def parse(model: type[M], body: bytes) -> M:
    """Read a JSON body; a field that is null counts as left out."""
    try:
        value = mcp.loads(body or b"{}")
    except ValueError as error:
        raise InvalidRequest(f"the body is not JSON: {error}") from None
    if not isinstance(value, dict):
        raise InvalidRequest("the body must be a JSON object")
    try:
        return model.model_validate({name: part for name, part in value.items() if part is not None})
    except ValidationError as error:
        first = error.errors(include_input=False, include_url=False)[0]
        where = _place(first["loc"], value, is_missing=first["type"] == "missing")
        raise InvalidRequest(f"field {where!r}: {first['msg'][:1].lower()}{first['msg'][1:]}") from None


def _place(parts: Iterable[str | int], value: Any, *, is_missing: bool) -> str:
    """Where in `value` a field is. Left out: which of several types pydantic tried there, which it names, too."""
    found = []
    for part in parts:
        is_there = part in value if isinstance(value, dict) else isinstance(value, list) and isinstance(part, int)
        if is_there or is_missing:
            found.append(str(part)[:100])
            value = value[part] if is_there else None
    return ".".join(found)


def trace_id(headers: Mapping[str, str]) -> str | None:
    """By which the lines of a log belong together: from `traceparent`, else what published clients send."""
    parts = headers.get("traceparent", "").split("-")
    trace = parts[1] if len(parts) == 4 else headers.get("env-instance-trace-id", "")
    return trace[:64] if trace.replace("-", "").isalnum() else None


def is_local_socket(scope: Scope) -> bool:
    """Whether a request came through the platform's unix socket, which only its user can open."""
    server = scope.get("server")
    return server is None or server[1] is None


class Front:
    """What every request passes before its handler."""

    def __init__(
        self,
        accounts: Accounts,
        rates: Rates,
        metrics: Metrics,
        *,
        loopback_only: bool,
        allowed: Allowed = frozenset(),
    ) -> None:
        """`allowed`: the pages of others that may call."""
        self._allowed = allowed
        self._accounts = accounts
        self._rates = rates
        self._metrics = metrics
        self._loopback_only = loopback_only

    def app(self, routes: Iterable[Route]) -> ASGIApp:
        """The application of a table of routes."""
        table = RouteTable(routes)

        async def app(scope: Scope, receive: Receive, send: Send) -> None:
            request = Request(scope, receive, send)
            try:
                # Without a redirect: published clients send both forms, and a redirected POST loses its body.
                route, scope["path_params"] = table.find(scope["method"], scope["path"].rstrip("/") or "/")
            except AEnvError as error:
                response = envelope.failure(error)
            else:
                response = await self._respond(request, route)
            await response(scope, receive, send)

        return pages.allowing(app, self._allowed)

    async def is_admin(self, call: RouteCall) -> bool:
        """Whether an administrator asks, on a route that is open to anyone; no while the store does not answer."""
        try:
            return (await self._caller(call.request, Role.ANONYMOUS)).is_admin
        except (Unauthenticated, Unavailable):
            return False

    async def _caller(self, request: Request, access: Role | None) -> Caller:
        """Who asks; Unauthenticated when accounts exist and the request brings no good token."""
        if access is None:
            return ANONYMOUS  # without a look into the store: /health answers when nothing else does
        if is_local_socket(request.scope) or not await self._accounts.are_needed():
            return LOCAL
        header = request.headers.get("authorization")
        if not header and access is Role.ANONYMOUS:
            return ANONYMOUS
        if not header:
            raise Unauthenticated("missing Authorization header; send 'Authorization: Bearer <token>'")
        scheme, _, token = header.partition(" ")
        if scheme.lower() != "bearer" or not token.strip():
            raise Unauthenticated("the Authorization header should be 'Bearer <token>'")
        return (await self._accounts.authenticate(token.strip())).caller()

    async def _respond(self, request: Request, route: Route) -> Response:
        began = time.perf_counter()
        logs.request_id.set(trace_id(request.headers))
        response = await self._answer(request, route)
        self._metrics.answered(route.method, route.path, response.status_code, time.perf_counter() - began)
        return response

    async def _answer(self, request: Request, route: Route) -> Response:
        headers: dict[str, str] = {}
        response = Response(status_code=_GONE)  # for a client that has gone; this is counted, and not sent
        with Client(request.receive) as client, store_timeouts.at_most(STORE_PATIENCE):
            try:
                self._refuse_web_pages(request, any_origin=route.any_origin)
                caller = await self._caller(request, route.access)
                if route.access and not caller.role.includes(route.access):
                    raise Forbidden(
                        f"the role '{caller.role}' may not do this; it needs the role '{route.access}'"
                    )
                if route.access:  # the others answer also when the store does not
                    headers = await self._rates.take(caller, route.method, route.path)
                response = await route.handler(RouteCall(request, caller, client))
            except AEnvError as error:
                response = envelope.failure(error)
                headers = {**headers, **error.details.get("headers", {})}
            except Disconnected:
                raise  # ends in `client`: a client that breaks off is not an error of ours
            except Exception:  # boundary: our own handlers; a bug must not end the connection without an answer
                logger.exception("%s %s failed", route.method, route.path)
                response = envelope.failure(AEnvError("internal error; the server's log says more"))
        for name, value in headers.items():
            response.headers[name] = value
        return response

    def _refuse_web_pages(self, request: Request, *, any_origin: bool) -> None:
        headers: Mapping[str, str] = request.headers
        if any_origin:
            headers = {name: headers[name] for name in origins.HEADERS if name != "origin" and name in headers}
        refusal = origins.check(request.method, headers, loopback_only=self._loopback_only, allowed=self._allowed)
        if refusal:
            raise Forbidden(refusal)
        # What a form sends, and what a page sends without asking first. No page of ours sends it.
        media = headers.get("content-type", "").partition(";")[0].strip().lower()
        if request.method == "POST" and media in _FORMS and ("origin" in headers or "sec-fetch-site" in headers):
            raise Forbidden(f"a page may not send {media!r} here; send 'Content-Type: application/json'")


class RouteTable:
    """Finds the route of a request among those whose path begins with the same part."""

    def __init__(self, routes: Iterable[Route]) -> None:
        by_path: dict[str, dict[str, Route]] = {}
        for route in routes:
            by_path.setdefault(route.path, {})[route.method] = route
        self._by_first: dict[str, list[tuple[re.Pattern[str], dict[str, Route]]]] = {}
        for path, by_method in by_path.items():
            same = self._by_first.setdefault(path.split("/", 2)[1], [])
            same.append((compile_path(path)[0], by_method))

    def find(self, method: str, path: str) -> tuple[Route, dict[str, str]]:
        """The route and what the path says by name. NotFound, or MethodNotAllowed with those that are."""
        asked = "GET" if method == "HEAD" else method
        allowed: tuple[str, ...] = ()
        for pattern, by_method in self._by_first.get(path.split("/", 2)[1], ()):
            if match := pattern.match(path):
                if route := by_method.get(asked):
                    return route, match.groupdict()
                allowed = allowed or (*by_method, *(["HEAD"] if "GET" in by_method else []))
        if allowed:
            raise MethodNotAllowed(f"no route {f'{method} {path}'!r}; use {', '.join(allowed)}", allowed)
        raise NotFound(f"no route {f'{method} {path}'!r}; /docs shows all")
