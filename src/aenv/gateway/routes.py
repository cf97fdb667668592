"""The control routes: instances are created, shown, listed and deleted here."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route
from starlette.types import ASGIApp

from .. import origins
from ..errors import AEnvError, Forbidden, InvalidRequest, MethodNotAllowed, NotFound, Unsupported
from ..wire import EnvStatus
from . import admission, envelope, selection
from .clients import Client
from .instances import Instances
from .records import Record, describe
from .tokens import Tokens

_MAX_BODY_BYTES = 1 << 20
_MAX_KEY_LENGTH = 255

_Handler = Callable[[Request], Awaitable[Response]]


class Routes:
    """The handlers; `app()` is the ASGI application."""

    def __init__(
        self, instances: Instances, tokens: Tokens, *, data_port: int | None, loopback_only: bool
    ) -> None:
        self._instances = instances
        self._tokens = tokens
        self._data_port = data_port
        self._loopback_only = loopback_only

    def app(self) -> ASGIApp:
        table: dict[str, dict[str, _Handler]] = {
            "/health": {"GET": self._health},
            "/env-instance": {"POST": self._post},
            "/env-instances": {"DELETE": self._delete_many},
            "/env-instance/{id}": {"GET": self._get, "PUT": self._put, "DELETE": self._delete},
            "/env-instance/{id}/list": {"GET": self._list},
            "/env-instance/{id}/ttl": {"PUT": self._renew},
            "/env-instance/{id}/presign-url": {"POST": self._presign},
        }
        routes = [
            # Without a redirect: published clients send both forms, and a redirected POST loses its body.
            Route(path + end, self._endpoint(by_method), methods=list(by_method))
            for path, by_method in table.items()
            for end in ("", "/")
        ]
        handlers = {AEnvError: _failure, HTTPException: _no_route, Exception: _bug}
        app = Starlette(routes=routes, exception_handlers=handlers)  # type: ignore[arg-type]
        app.router.redirect_slashes = False
        return app

    def _endpoint(self, by_method: dict[str, _Handler]) -> _Handler:
        async def endpoint(request: Request) -> Response:
            self._refuse_web_pages(request)
            return await by_method["GET" if request.method == "HEAD" else request.method](request)

        return endpoint

    def _refuse_web_pages(self, request: Request) -> None:
        host, origin = request.headers.get("host"), request.headers.get("origin")
        refusal = origins.refusal(host, origin, loopback_only=self._loopback_only)
        if refusal:
            raise Forbidden(refusal)

    # Handlers

    async def _health(self, request: Request) -> Response:
        return envelope.success({"status": "healthy"})

    async def _post(self, request: Request) -> Response:
        key = request.headers.get("idempotency-key")
        if key and len(key) > _MAX_KEY_LENGTH:
            raise InvalidRequest(f"the Idempotency-Key is longer than {_MAX_KEY_LENGTH} characters")
        return await self._create(request, key=key)

    async def _put(self, request: Request) -> Response:
        return await self._create(request, id=admission.check_id(request.path_params["id"]))

    async def _create(self, request: Request, *, id: str | None = None, key: str | None = None) -> Response:
        with Client(request.receive) as client:
            body = await client.read(_MAX_BODY_BYTES)
            record = await self._instances.create(admission.parse(body), id=id, key=key)
            return self._show(request, record)
        return Response()  # the client has gone; this is sent to nobody

    async def _get(self, request: Request) -> Response:
        return self._show(request, self._instances.get(request.path_params["id"]))

    async def _delete(self, request: Request) -> Response:
        await self._instances.delete(request.path_params["id"])
        return envelope.success("Deleted successfully")

    async def _list(self, request: Request) -> Response:
        chosen = selection.read(request.path_params["id"], request.query_params)
        host = self._host(request)
        found = [describe(record, host=host).model_dump(mode="json") for record in self._instances.select(chosen)]
        return envelope.success(found)

    async def _renew(self, request: Request) -> Response:
        with Client(request.receive) as client:
            ttl = admission.parse_ttl(await client.read(_MAX_BODY_BYTES))
            return self._show(request, self._instances.renew(request.path_params["id"], ttl))
        return Response()  # the client has gone; this is sent to nobody

    async def _presign(self, request: Request) -> Response:
        self._instances.get(request.path_params["id"])
        engine = self._instances.engine.name
        raise Unsupported(f"not supported on this engine ({engine}): URLs of an instance's ports")

    async def _delete_many(self, request: Request) -> Response:
        label = request.query_params.get("label")
        if not label:
            raise InvalidRequest("field 'label': say which instances to delete, as in '?label=experiment=a'")
        deleted = await self._instances.delete_all(selection.Selection(label=selection.read_label(label)))
        return envelope.success({"deleted": deleted})

    # Showing an instance to the client who asked

    def _show(self, request: Request, record: Record) -> Response:
        """With everything that lets the client use it: whoever knows the id may."""
        host = self._host(request)
        instance = describe(record, host=host)
        instance.engine = self._instances.engine.name
        instance.isolation = list(self._instances.engine.isolation)
        if record.status is EnvStatus.RUNNING and record.address:
            path = f"/instances/{record.id}/mcp"
            shown = f"[{host}]" if ":" in host else host
            instance.mcp_url = path if _is_local_socket(request) else f"http://{shown}:{self._data_port}{path}"
            instance.token = self._tokens.sign(record.id)
            instance.tools = record.address.tools
        return envelope.success(instance.model_dump(mode="json"))

    def _host(self, request: Request) -> str:
        """The host under which this client reached us: data is on the same one."""
        try:
            return origins.host_of(request.headers.get("host", "")) or "localhost"
        except ValueError:
            raise InvalidRequest("the Host header is malformed") from None


def _is_local_socket(request: Request) -> bool:
    server = request.scope.get("server")
    return server is None or server[1] is None


async def _failure(request: Request, error: AEnvError) -> Response:
    return envelope.failure(error)


async def _no_route(request: Request, error: HTTPException) -> Response:
    route = f"{request.method} {request.url.path}"
    if error.status_code == 405:
        allowed = tuple((error.headers or {}).get("Allow", "").split(", "))
        return envelope.failure(MethodNotAllowed(f"no route {route!r}; use {', '.join(allowed)}", allowed))
    return envelope.failure(NotFound(f"no route {route!r}; instances are at /env-instance"))


async def _bug(request: Request, error: Exception) -> Response:
    return envelope.failure(AEnvError("internal error; the gateway's log says more"))
