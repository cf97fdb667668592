"""The routes of secrets: they are set, listed by name and removed here; no reply has a value."""

from __future__ import annotations

from pydantic import BaseModel
from starlette.responses import Response

from ...base.wire import timestamp
from . import envelope
from .accounts import Role
from .named_secrets import Secret, Secrets, owner_of
from .routes import Route, RouteCall

_Shown = dict[str, str]


class SetSecret(BaseModel):
    """The body of `PUT /secret/{name}`."""

    value: str


class SecretRoutes:
    def __init__(self, secrets: Secrets) -> None:
        self._secrets = secrets

    def routes(self) -> list[Route]:
        named, user = "/secret/{name}", Role.USER
        return [
            Route("PUT", named, self._set, user, "set one of the caller's secrets", SetSecret, _Shown),
            Route("DELETE", named, self._remove, user, "remove one of the caller's secrets", reply=bool),
            Route("GET", "/secret", self._list, user, "the names of the caller's secrets", reply=list[_Shown]),
        ]

    async def _set(self, call: RouteCall) -> Response:
        body = await call.read(SetSecret)
        secret = await self._secrets.put(owner_of(call.caller), call.path["name"], body.value)
        return envelope.success(_shown(secret))

    async def _remove(self, call: RouteCall) -> Response:
        await self._secrets.remove(owner_of(call.caller), call.path["name"])
        return envelope.success(True)

    async def _list(self, call: RouteCall) -> Response:
        return envelope.success([_shown(secret) for secret in await self._secrets.list(owner_of(call.caller))])


def _shown(secret: Secret) -> _Shown:
    return {
        "name": secret.name,
        "created_at": timestamp(secret.created_at),
        "updated_at": timestamp(secret.updated_at),
    }
