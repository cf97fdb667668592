"""What a gateway answers to the instances themselves: their children, and nothing else.

Requests come by the relay of an instance (`isolation/egress/gateway_route.py`), which says whose they are. The
instance is not trusted: it can name only what it has made, within its grant.
"""

from __future__ import annotations

import asyncio
import math
import re
from typing import Any

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from ...base import composition
from ...base.errors import AEnvError, MethodNotAllowed, NotFound
from ...base.wire import INSTANCE_HEADER, EnvStatus
from ...isolation.egress.gateway_route import INSTANCE
from ..instances import admission
from ..instances.creator import Creator
from ..instances.instance_access import InstanceAccess
from ..instances.kinship import GRACE, Kinship
from ..instances.records import Record, describe
from ..instances.supervised import Supervised
from ..serving import envelope
from ..serving.clients import Client
from ..serving.routes import STORE_PATIENCE
from ..stores import store_timeouts
from .tokens import Tokens

_MAX_BODY_BYTES = 1 << 20
_CONTROL = re.compile(r"/env-instance/([^/]+)/?\Z")
_PART = re.compile(rf"{composition.PATH}/([^/]+)\Z")
_DATA = re.compile(r"/instances/([^/]+)(/.*)?\Z")
_LOOKS = ("GET", "HEAD")
_INSTANCE = INSTANCE.encode()
_SERVER = (
    "127.0.0.1",
    0,
)  # what is forwarded did not come by the platform's own socket, whose clients are trusted
_DROPPED = {_INSTANCE, INSTANCE_HEADER.lower().encode(), b"authorization", b"cookie", b"origin"}


class ChildRoutes:
    """An application for the relays of instances."""

    def __init__(
        self, kinship: Kinship, creator: Creator, instances: InstanceAccess, tokens: Tokens, proxy: ASGIApp
    ) -> None:
        self._kinship = kinship
        self._creator = creator
        self._instances = instances
        self._tokens = tokens
        self._proxy = proxy

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            parent = self._kinship.parent(_header(scope, _INSTANCE))
            if data := _DATA.match(scope["path"]):
                await self._forward(parent, data[1], scope, receive, send)
                return
            if control := _CONTROL.match(scope["path"]):
                await self._control(parent, control[1], scope, receive, send)
                return
            if part := _PART.match(scope["path"]):
                await self._part(parent, part[1], scope, receive, send)
                return
            raise NotFound(f"no route {scope['path']!r} for an instance; it can create, use and delete instances")
        except AEnvError as error:
            await envelope.failure(error)(scope, receive, send)

    async def _control(self, parent: Supervised, id: str, scope: Scope, receive: Receive, send: Send) -> None:
        reply: Any = None
        with Client(receive) as client, store_timeouts.at_most(STORE_PATIENCE):
            match scope["method"]:
                case "PUT":
                    reply = self._show(await self._create(parent, id, await client.read(_MAX_BODY_BYTES)), scope)
                case "GET":
                    reply = self._show(self._kinship.child(parent, id).record, scope)
                case "DELETE":
                    await self._instances.delete(self._kinship.child(parent, id).record.id)
                    reply = "Deleted successfully"
                case method:
                    raise MethodNotAllowed(f"no route '{method} /env-instance/ID'", ("PUT", "GET", "DELETE"))
        if not client.gone:
            await envelope.success(reply)(scope, receive, send)

    async def _part(self, parent: Supervised, name: str, scope: Scope, receive: Receive, send: Send) -> None:
        """The part of this name, once it is ready: asked for by the runtime of a composed environment."""
        if scope["method"] != "PUT":
            raise MethodNotAllowed(f"no route '{scope['method']} {scope['path']}'", ("PUT",))
        with Client(receive) as client, store_timeouts.at_most(STORE_PATIENCE):
            id = self._kinship.part(parent, name)
            request, caller = await self._kinship.part_request(parent, name)
            if id not in self._creator.begun:
                self._kinship.check_size(parent)  # others may have come first meanwhile
            until = self._kinship.until(self._kinship.parent_of(parent))
            record = await self._creator.create(
                request,
                caller,
                id=id,
                parent=parent.record.id,
                part=name,
                works_in=parent.record.id if self._kinship.shares_workspace(parent, name) else "",
                until=0.0 if until == math.inf else until + GRACE,
            )
        if not client.gone:
            await envelope.success({**self._show(record, scope), "environment": record.environment})(
                scope, receive, send
            )

    async def _create(self, parent: Supervised, id: str, body: bytes) -> Record:
        asked = admission.parse(body)
        if id in self._creator.begun:  # the same request again, perhaps: it needs no more room
            self._kinship.child(parent, id)
        else:
            self._kinship.check_room(parent)
        request, caller = await self._kinship.request(parent, asked)
        if id not in self._creator.begun:
            self._kinship.check_room(parent)  # others may have come first meanwhile
        until = self._kinship.until(parent) + GRACE
        checked = admission.check_id(id)
        try:
            # What loads for ever would end by the limit of a start, which may be long after.
            async with asyncio.timeout(self._kinship.left(parent)) as limit:
                return await self._creator.create(
                    request, caller, id=checked, parent=parent.record.id, until=until
                )
        except TimeoutError:
            if limit.expired():
                raise self._kinship.over(parent) from None
            raise

    async def _forward(self, parent: Supervised, id: str, scope: Scope, receive: Receive, send: Send) -> None:
        """A call of a child, through the same data path as every other, until the grant's time is over."""
        child = self._kinship.child(parent, id)
        limited = self._kinship.limited_by(parent, child)
        if scope["method"] not in _LOOKS:
            self._kinship.count_call(limited)
        token = self._tokens.sign(child.record.id, child.record.account)
        kept = [pair for pair in scope["headers"] if pair[0] not in _DROPPED and not pair[0].startswith(b"sec-")]
        inner = {**scope, "server": _SERVER, "headers": [*kept, (b"authorization", f"Bearer {token}".encode())]}
        began = False

        async def answer(message: Message) -> None:
            nonlocal began
            began = True
            await send(message)

        try:
            async with asyncio.timeout(self._kinship.left(limited)):
                await self._proxy(inner, receive, answer)
        except TimeoutError:
            if not began:  # else it ends as a broken connection
                raise self._kinship.over(limited) from None

    def _show(self, record: Record, scope: Scope) -> dict[str, Any]:
        """A child as its parent sees it: to be called by the same relay, with the same key."""
        shown = describe(record, host="127.0.0.1", frozen=False).model_dump(mode="json")
        shown["owner"] = None
        if record.status is EnvStatus.RUNNING and record.address:
            shown["tools"] = record.address.tools
            shown["mcp_url"] = f"/instances/{record.id}/mcp"
            shown["token"] = _header(scope, b"authorization").removeprefix("Bearer ")
        return shown


def _header(scope: Scope, name: bytes) -> str:
    return next((value for key, value in scope["headers"] if key == name), b"").decode("latin-1")
