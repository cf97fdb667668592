"""The routes of accounts: tokens are made, shown and revoked here; spec 4.4's, which were never served before."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

from pydantic import AliasChoices, BaseModel, Field
from starlette.responses import Response

from ...base import quantities
from ...base.errors import Forbidden, InvalidRequest, NotFound, Unauthenticated, of_field
from ...base.wire import timestamp
from . import envelope
from .accounts import Account, Accounts, Role
from .routes import Route, RouteCall


class CreateToken(BaseModel):
    """The body of `POST /token`."""

    user: str
    max_instances: int | None = Field(
        None, ge=0, validation_alias=AliasChoices("maxInstanceCount", "max_instances")
    )
    role: Role = Role.USER
    expires: str | None = None


class UpdateToken(BaseModel):
    """The body of `PUT /token`: the accounts of a token or of a user, and how many instances they may have."""

    token: str | None = None
    user: str | None = None
    max_instances: int = Field(ge=1, validation_alias=AliasChoices("maxInstanceCount", "max_instances"))


class AccountRoutes:
    def __init__(self, accounts: Accounts) -> None:
        self._accounts = accounts

    def routes(self) -> list[Route]:
        admin = Role.ADMIN
        return [
            Route("POST", "/token", self._create, admin, "make an account", body=CreateToken, reply=dict),
            Route("PUT", "/token", self._update, admin, "change an account's quota", body=UpdateToken, reply=bool),
            Route("GET", "/token", self._list, admin, "all accounts", reply=list[dict[str, Any]]),
            Route("GET", "/token/validate/{token}", self._validate, None, "whose token this is", reply=dict),
            Route("GET", "/token/info/{id}", self._info, Role.VIEWER, "an account", reply=dict),
            Route("DELETE", "/token/{id}", self._revoke, Role.VIEWER, "revoke an account's token", reply=bool),
            Route("GET", "/whoami", self._whoami, Role.VIEWER, "who the caller is", reply=dict),
        ]

    async def _create(self, call: RouteCall) -> Response:
        body = await call.read(CreateToken)
        with of_field("expires"):
            expires = quantities.seconds(body.expires) if body.expires else None
        account, token = await self._accounts.create(body.user, body.role, body.max_instances, expires)
        return envelope.success({**show(account), "token": token})

    async def _update(self, call: RouteCall) -> Response:
        body = await call.read(UpdateToken)
        if not body.token and not body.user:
            raise InvalidRequest("field 'user': say whose quota to change, by 'user' or 'token'")
        if body.token:
            ids = [(await self._accounts.authenticate(body.token)).id]
        else:
            ids = [account.id for account in await self._accounts.list() if account.user == body.user]
        if not ids:
            raise NotFound(f"user {body.user!r} not found")
        for id in ids:
            await self._accounts.change(id, max_instances=body.max_instances)
        return envelope.success(True)

    async def _list(self, call: RouteCall) -> Response:
        return envelope.success([show(account) for account in await self._accounts.list()])

    async def _validate(self, call: RouteCall) -> Response:
        # Open to anyone: who asks has the token, and learns only what holds for it.
        try:
            account = await self._accounts.authenticate(call.path["token"])
        except Unauthenticated as error:
            raise NotFound(error.message) from None
        return envelope.success({**show(account), "token": call.path["token"]})

    async def _info(self, call: RouteCall) -> Response:
        account = await self._accounts.get(call.path["id"])
        if not call.caller.owns(account.user):
            raise NotFound(f"token {account.id!r} not found")
        return envelope.success(show(account))

    async def _revoke(self, call: RouteCall) -> Response:
        account = await self._accounts.get(call.path["id"])
        acts = call.caller.role.includes(Role.USER) or call.caller.account == account.id
        if not (acts and call.caller.owns(account.user)):
            raise Forbidden("only an administrator, or its user, may revoke a token; a viewer its own alone")
        await self._accounts.revoke(account.id)
        return envelope.success(True)

    async def _whoami(self, call: RouteCall) -> Response:
        return envelope.success(asdict(call.caller))


def show(account: Account) -> dict[str, Any]:
    """An account as replies and `aenv token list` show it."""
    return {
        "id": account.id,
        "user": account.user,
        "maxInstanceCount": account.max_instances,
        "role": account.role.value,
        "created_at": timestamp(account.created_at),
        "expires_at": timestamp(account.expires_at) if account.expires_at else None,
        "revoked_at": timestamp(account.revoked_at) if account.revoked_at else None,
    }
