"""The routes of environments: publish, find, list, release, delete; who has access; the audit log."""

from __future__ import annotations

from typing import Any

from starlette.responses import Response

from ...base import refs
from ...base.errors import NotFound, of_field
from ...base.models import AccessPolicy, AuditEntry, Env, EnvDetails, EnvVersions, PushEnvironment, SetImage
from ...base.refs import Ref
from ...base.wire import HUB_STATUSES
from ..serving import envelope
from ..serving.accounts import Role
from ..serving.routes import Route, RouteCall
from ..stores.base import Store
from . import audit
from .environments import Environments, Filter
from .publishing import Publishing

_MAX_PAGE = 1000
_MAX_OFFSET = 10**9
_FILTERS = {
    "limit": f"at most so many, 1 to {_MAX_PAGE}; 100 unless told",
    "offset": "leave out so many first",
    "q": "only those whose name, description and tags hold all these words",
    "tags": "only those with all these tags, separated by commas",
    "name": "only the versions of this environment",
    "builtin": "true for those that come with aenv, instead of those in the hub",
}
_LOG = {"limit": f"at most so many, 1 to {_MAX_PAGE}; 100 unless told", "cursor": "`next` of the page before"}
_FORCE = {"force": "true deletes a released version, for administrators"}


class EnvironmentRoutes:
    """The handlers; `routes()` is the table. Reading is open to all, since what is public is."""

    def __init__(self, environments: Environments, publishing: Publishing, store: Store) -> None:
        self._environments = environments
        self._publishing = publishing
        self._store = store

    def routes(self) -> list[Route]:
        reader, pusher, log = Role.ANONYMOUS, Role.USER, list[AuditEntry]
        whole, one = "/env/{name}", "/env/{name}/{version}"
        push, policy, image = PushEnvironment, AccessPolicy, SetImage
        return [
            Route("GET", "/env", self._list, reader, "environments", reply=list[Env], query=_FILTERS),
            Route("POST", "/env", self._create, pusher, "publish a version", push, bool),
            Route("GET", whole, self._history, reader, "the versions of an environment", reply=EnvVersions),
            Route("GET", f"{whole}/access", self._get_access, pusher, "who may see and push", reply=policy),
            Route("PUT", f"{whole}/access", self._set_access, pusher, "change that", policy, policy),
            Route("GET", f"{whole}/audit", self._audit, pusher, "who did what to it", reply=log, query=_LOG),
            Route("GET", "/audit", self._audit_all, Role.ADMIN, "who did what", reply=log, query=_LOG),
            Route("GET", one, self._get, reader, "everything about a version", reply=EnvDetails),
            Route("PUT", one, self._update, pusher, "replace what is given of a version", push, bool),
            Route("DELETE", one, self._delete, pusher, "delete a version", reply=bool, query=_FORCE),
            Route("GET", f"{one}/exists", self._exists, reader, "whether it exists", reply=dict[str, Any]),
            Route("GET", f"{one}/status", self._status, reader, "its status", reply=dict[str, str]),
            Route("POST", f"{one}/release", self._release, pusher, "make it immutable", reply=bool),
            Route("POST", f"{one}/aci_trigger", self._set_image, pusher, "set its image", image, bool),
        ]

    async def _list(self, call: RouteCall) -> Response:
        wanted = Filter(
            name=call.query.get("name", ""),
            tags=tuple(tag for part in call.query.get("tags", "").split(",") if (tag := part.strip())),
            words=tuple(call.query.get("q", "").lower().split()),
        )
        limit = call.number("limit", 100, least=1, most=_MAX_PAGE)
        offset = call.number("offset", 0, most=_MAX_OFFSET)
        if call.flag("builtin"):
            ours = self._environments.built_in(wanted, call.caller)
            found, total = ours[offset : offset + limit], len(ours)
        else:
            found, total = await self._environments.list(wanted, call.caller, limit=limit, offset=offset)
        response = envelope.success([environment.described() for environment in found], total=total)
        response.headers["x-total-count"] = str(total)
        return response

    async def _create(self, call: RouteCall) -> Response:
        await self._publishing.create(await call.read(PushEnvironment), call.caller)
        return envelope.success(True)

    async def _update(self, call: RouteCall) -> Response:
        await self._publishing.update(exact_ref(call), await call.read(PushEnvironment), call.caller)
        return envelope.success(True)

    async def _history(self, call: RouteCall) -> Response:
        return envelope.success(await self._environments.history(_name(call), call.caller))

    async def _get(self, call: RouteCall) -> Response:
        environment = await self._environments.find(any_ref(call), call.caller)
        return envelope.success(await self._environments.details(environment))

    async def _exists(self, call: RouteCall) -> Response:
        try:  # the caller wants to push: a name that is built in is free
            environment = await self._environments.find(any_ref(call), call.caller, built_in=False)
        except NotFound:
            return envelope.success({"exists": False})
        return envelope.success({"exists": True, "status": environment.status})

    async def _status(self, call: RouteCall) -> Response:
        environment = await self._environments.find(any_ref(call), call.caller)
        return envelope.success({"status": HUB_STATUSES[environment.status]})

    async def _release(self, call: RouteCall) -> Response:
        await self._environments.release(exact_ref(call), call.caller)
        return envelope.success(True)

    async def _delete(self, call: RouteCall) -> Response:
        await self._environments.delete(exact_ref(call), call.caller, force=call.flag("force"))
        return envelope.success(True)

    async def _set_image(self, call: RouteCall) -> Response:
        image = (await call.read(SetImage)).image
        return envelope.success(await self._environments.set_image(exact_ref(call), image, call.caller))

    async def _get_access(self, call: RouteCall) -> Response:
        return envelope.success((await self._environments.policy(_name(call), call.caller)).value())

    async def _set_access(self, call: RouteCall) -> Response:
        new = await call.read(AccessPolicy)
        return envelope.success((await self._environments.set_policy(_name(call), new, call.caller)).value())

    async def _audit(self, call: RouteCall) -> Response:
        name = _name(call)
        await self._environments.policy(name, call.caller)
        return await self._log(call, name)

    async def _audit_all(self, call: RouteCall) -> Response:
        return await self._log(call, None)

    async def _log(self, call: RouteCall, name: str | None) -> Response:
        limit = call.number("limit", 100, least=1, most=_MAX_PAGE)
        with of_field("cursor"):
            lines, following = await audit.read(self._store, name, limit=limit, cursor=call.query.get("cursor"))
        return envelope.success(lines, next=following)


def _name(call: RouteCall) -> str:
    return refs.exact(call.path["name"], "0").name


def any_ref(call: RouteCall) -> Ref:
    """What a path names: a version, a range, or `latest`."""
    return refs.parse(f"{call.path['name']}@{call.path['version']}")


def exact_ref(call: RouteCall) -> Ref:
    """The one version that a path names."""
    return refs.exact(call.path["name"], call.path["version"])
