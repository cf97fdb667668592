"""The routes of services: made, shown, listed, changed and ended here. Data goes to their URL."""

from __future__ import annotations

from starlette.responses import Response, StreamingResponse

from ...base.models import CreateService, EnvService, UpdateService
from ..serving import envelope
from ..serving.accounts import Role
from ..serving.routes import Route, RouteCall
from .service_records import ServiceRecord, describe
from .service_supervisor import ServiceSupervisor

_TEXT = "text/plain"
_LOGS = {
    "replica": "which of its `instances`; the first unless told",
    "follow": "1 goes on with what comes, until the replica ends",
}


class ServiceRoutes:
    def __init__(self, services: ServiceSupervisor, *, data_port: int | None, public_url: str = "") -> None:
        self._services = services
        self._data_port = data_port
        self._public_url = public_url

    def routes(self) -> list[Route]:
        one, user, viewer = "/env-service/{id}", Role.USER, Role.VIEWER
        named = {"envName": "with '*': those of this environment"}
        kept = {"deleteStorage": "true: remove its storage, too"}
        return [
            Route("POST", "/env-service", self._create, user, "make a service", CreateService, EnvService),
            Route("GET", f"{one}/list", self._list, viewer, "list services", reply=list[EnvService], query=named),
            Route("GET", one, self._get, viewer, "show a service", reply=EnvService),
            Route("PUT", one, self._update, user, "change a service", body=UpdateService, reply=EnvService),
            Route("DELETE", one, self._delete, user, "end a service", reply=str, query=kept),
            Route("GET", f"{one}/logs", self._logs, viewer, "what a replica prints", query=_LOGS, media=_TEXT),
        ]

    async def _create(self, call: RouteCall) -> Response:
        return self._reply(call, await self._services.create(await call.read(CreateService), call.caller))

    async def _get(self, call: RouteCall) -> Response:
        return self._reply(call, await self._services.get(call.path["id"], call.caller))

    async def _list(self, call: RouteCall) -> Response:
        which = call.path["id"]
        if which == "*":
            which = call.query.get("envName") or which
        found = await self._services.list(which, call.caller)
        return envelope.success([self._show(call, record).model_dump(mode="json") for record in found])

    async def _update(self, call: RouteCall) -> Response:
        changes = await call.read(UpdateService)
        return self._reply(call, await self._services.update(call.path["id"], changes, call.caller))

    async def _delete(self, call: RouteCall) -> Response:
        await self._services.delete(call.path["id"], call.caller, delete_storage=call.flag("deleteStorage"))
        return envelope.success("Deleted successfully")

    async def _logs(self, call: RouteCall) -> Response:
        replica = call.query.get("replica")
        lines = await self._services.logs(call.path["id"], replica, call.caller, follow=call.flag("follow"))
        return StreamingResponse(lines, media_type="text/plain; charset=utf-8")

    def _reply(self, call: RouteCall, record: ServiceRecord) -> Response:
        return envelope.success(self._show(call, record).model_dump(mode="json"))

    def _show(self, call: RouteCall, record: ServiceRecord) -> EnvService:
        path = f"/services/{record.id}"
        host = f"[{call.host}]" if ":" in call.host else call.host
        here = call.is_local_socket or self._data_port is None
        data = self._public_url or f"http://{host}:{self._data_port}"
        return describe(record, url=path if here else f"{data}{path}")
