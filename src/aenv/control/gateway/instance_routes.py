"""The control routes of instances: they are created, shown, listed, renewed and deleted here."""

from __future__ import annotations

import asyncio
from dataclasses import asdict
from typing import Any

from starlette.background import BackgroundTask
from starlette.responses import Response

from ...base.errors import InvalidRequest
from ...base.http1 import Pool
from ...base.models import CreateInstance, CreateInstances, EnvInstance, Renew
from ...base.wire import LEASES_HEADER, EnvStatus
from ..instances import admission, selection
from ..instances.creator import Creator
from ..instances.instance_access import InstanceAccess
from ..instances.leases import Leases
from ..instances.records import Record, describe
from ..serving import envelope
from ..serving.accounts import Role
from ..serving.deliveries import Delivery
from ..serving.routes import Route, RouteCall
from .same_host import is_near
from .tokens import Tokens

_MAX_KEY_LENGTH = 255
_MAX_BODY_BYTES = 1 << 20
_WAIT = {"wait": "how long to wait for room when a quota is used up, as in 30s"}
FILTERS = {
    "envName": "name or name@version, where the path says *",
    "owner": "whose they are",
    "label": "name=value",
    "status": "Creating, Running, Failed or Terminated; without it, those that live",
    "limit": "how many at most, 1 to 1000",
    "cursor": "the id that the page before ended with",
}


class InstanceRoutes:
    """The handlers; `routes()` is the table."""

    def __init__(
        self,
        instances: InstanceAccess,
        creator: Creator,
        leases: Leases,
        tokens: Tokens,
        pool: Pool,
        *,
        data_port: int | None,
        public_url: str = "",
    ) -> None:
        """`pool` is that of the data path."""
        self._instances = instances
        self._creator = creator
        self._leases = leases
        self._tokens = tokens
        self._pool = pool
        self._data_port = data_port
        self._public_url = public_url
        self._connecting: set[asyncio.Task[None]] = set()

    def routes(self) -> list[Route]:
        one, several = EnvInstance, list[EnvInstance]
        path = "/env-instance/{id}"
        return [
            Route(
                "PUT",
                path,
                self._put,
                Role.USER,
                "create an instance with this id; repeating it is the same instance",
                body=CreateInstance,
                reply=one,
                query=_WAIT,
            ),
            Route("GET", path, self._get, Role.VIEWER, "an instance", reply=one),
            Route("DELETE", path, self._delete, Role.USER, "end an instance", reply=str),
            Route(
                "POST",
                "/env-instance",
                self._post,
                Role.USER,
                "create an instance; an Idempotency-Key makes it safe to repeat",
                body=CreateInstance,
                reply=one,
                query=_WAIT,
            ),
            Route(
                "POST",
                "/env-instances",
                self._post_many,
                Role.USER,
                "create several instances, all or none",
                body=CreateInstances,
                reply=several,
                query=_WAIT,
            ),
            Route(
                "DELETE",
                "/env-instances",
                self._delete_many,
                Role.USER,
                "end all instances with a label",
                reply=dict[str, int],
                query={"label": "name=value"},
            ),
            Route(
                "GET",
                "/env-instance/{id}/list",
                self._list,
                Role.VIEWER,
                "the instances of *, a name, or name@version",
                reply=several,
                query=FILTERS,
            ),
            Route(
                "PUT",
                "/env-instance/{id}/ttl",
                self._renew,
                Role.USER,
                "let an instance live for so long from now",
                body=Renew,
                reply=one,
            ),
        ]

    async def _post(self, call: RouteCall) -> Response:
        key = call.request.headers.get("idempotency-key")
        if key and len(key) > _MAX_KEY_LENGTH:
            raise InvalidRequest(f"the Idempotency-Key is longer than {_MAX_KEY_LENGTH} characters")
        return await self._create(call, key=key)

    async def _put(self, call: RouteCall) -> Response:
        return await self._create(call, id=admission.check_id(call.path["id"]))

    async def _create(self, call: RouteCall, *, id: str | None = None, key: str | None = None) -> Response:
        request = _with_wait(call, admission.parse(await call.body(_MAX_BODY_BYTES)))
        record = await self._creator.create(request, call.caller, id=id, key=key)
        # Its first call is on its way as soon as the client has read this reply: in a burst others go first, and
        # by PUT from this host it goes to the instance's socket and not through here.
        if record.address and not self._creator.is_crowded and not (id and is_near(call.request.scope)):
            connecting = asyncio.create_task(self._pool.open(record.address.origin))
            self._connecting.add(connecting)
            connecting.add_done_callback(self._connecting.discard)
        shown = self._show(call, record)
        if (key := call.request.headers.get(LEASES_HEADER)) and shown.get("socket"):
            grant = await self._leases.offer(key, call.caller, record.id)
            shown["lease"] = asdict(grant) if grant else None
        return self._delivering(call, [record], envelope.success(shown))

    async def _post_many(self, call: RouteCall) -> Response:
        request, ids = admission.parse_many(await call.body(_MAX_BODY_BYTES))
        records = await self._creator.create_many(_with_wait(call, request), call.caller, ids)
        shown = envelope.success([self._show(call, record) for record in records])
        return self._delivering(call, records, shown)

    def _delivering(self, call: RouteCall, records: list[Record], response: Response) -> Response:
        """With what is to be done when it was sent: to end what its client never heard of."""
        delivery = Delivery(call.request.scope)

        async def confirm() -> None:
            if not await delivery.arrived():
                self._creator.not_delivered(records)

        response.background = BackgroundTask(confirm)
        return response

    async def _get(self, call: RouteCall) -> Response:
        return envelope.success(self._show(call, await self._instances.get(call.path["id"], call.caller)))

    async def _delete(self, call: RouteCall) -> Response:
        await self._instances.delete(call.path["id"], call.caller)
        return envelope.success("Deleted successfully")

    async def _list(self, call: RouteCall) -> Response:
        chosen = selection.read(call.path["id"], call.query)
        records = await self._instances.list(chosen, call.caller)
        shown = [
            describe(record, host=call.host, frozen=self._instances.is_frozen(record.id)) for record in records
        ]
        for instance, record in zip(shown, records, strict=True):
            instance.id = self._instances.shown_id(record, call.caller)
        return envelope.success([instance.model_dump(mode="json") for instance in shown])

    async def _renew(self, call: RouteCall) -> Response:
        ttl = admission.parse_ttl(await call.body(_MAX_BODY_BYTES))
        return envelope.success(self._show(call, await self._instances.renew(call.path["id"], ttl, call.caller)))

    async def _delete_many(self, call: RouteCall) -> Response:
        label = call.query.get("label")
        if not label:
            raise InvalidRequest("field 'label': say which instances to delete, as in '?label=experiment=a'")
        chosen = selection.Selection(label=selection.read_label(label))
        return envelope.success({"deleted": await self._instances.delete_all(chosen, call.caller)})

    def _show(self, call: RouteCall, record: Record) -> dict[str, Any]:
        """An instance with everything that lets its owner use it."""
        host = call.host
        instance = describe(record, host=host, frozen=self._instances.is_frozen(record.id))
        # Filled in as it is sent: a model takes longer for each field than for all of its JSON.
        shown = instance.model_dump(mode="json")
        shown["engine"] = self._instances.engine.name
        if record.address:
            shown["isolation"], shown["not_enforced"] = record.isolation, record.not_enforced
            shown["root"] = record.root or None
        if record.status is EnvStatus.RUNNING and record.address:
            path = f"/instances/{record.id}/mcp"
            data = self._public_url or data_url(host, self._data_port)
            shown["mcp_url"] = path if call.is_local_socket else f"{data}{path}"
            if call.caller.role.includes(Role.USER):  # a viewer looks at it, and calls nothing
                shown["token"] = self._tokens.sign(record.id, call.caller.account)
                shown["socket"] = self._instances.socket(record) if is_near(call.request.scope) else None
            shown["tools"] = record.address.tools
        return shown


def data_url(host: str, port: int | None) -> str:
    """The data port, under the name by which a client reached us."""
    return f"http://{f'[{host}]' if ':' in host else host}:{port}"


def _with_wait(call: RouteCall, request: CreateInstance) -> CreateInstance:
    wait = call.query.get("wait") or request.wait
    request = request.model_copy(update={"wait": wait})
    admission.wait_of(request)
    return request
