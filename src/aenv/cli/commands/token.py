"""`aenv token`: accounts, made and revoked in the store itself. No server is needed."""

from __future__ import annotations

import functools
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from ...base import settings
from .. import output, parameters, prefixes
from ..help_pages import CommandGroup
from ..output_formats import formats

if TYPE_CHECKING:
    from ...control.serving.accounts import Account, Accounts

T = TypeVar("T")


def _stored(command: Callable[..., T]) -> Callable[..., T]:
    """Adds --store and --home, and hands the command a `store` of accounts."""

    @parameters.STORE
    @parameters.HOME
    @functools.wraps(command)
    def with_store(store: str, home: Path | None, **given: Any) -> T:
        import asyncio

        return command(store=lambda act: asyncio.run(_opened(store, home or settings.home(), act)), **given)

    return with_store


async def _opened(url: str, home: Path, act: Callable[[Accounts], Awaitable[T]]) -> T:
    from ...control.serving.accounts import Accounts
    from ...control.stores.opening import open_store

    async with open_store(url, home) as store:
        return await act(Accounts(store))


@click.group("token", cls=CommandGroup, examples=("aenv token create --user ada", "aenv token list"))
def command() -> None:
    """Create, list and revoke accounts.

    As soon as an account exists, the gateways that use this store require a token.
    """


@command.command(
    "create", examples=("aenv token create --user ada --role admin", "aenv token create --user ci --expires 30d")
)
@click.option("--user", required=True, help="Name of the user.")
@click.option(
    "--role",
    type=click.Choice(["admin", "user", "viewer"]),
    default="user",
    help="Rights of the user: everything, own instances, or reading only.",
)
@click.option(
    "--max-instances", type=parameters.Number(0), help="Maximum number of running instances.  [default: no limit]"
)
@click.option(
    "--expires",
    type=parameters.DURATION,
    help="Time after which the token expires.  [default: never]",
)
@click.option(
    "--token-file",
    type=click.Path(path_type=Path, exists=True, dir_okay=False),
    help="Use the token in this file, which is not printed; an account that has it already stays as it is.",
)
@click.option(
    "--wait", type=parameters.DURATION, default="0s", help="Maximum time to wait until the store answers."
)
@formats(plain="text", json_help="Print the token and its id as JSON.")
@_stored
def create(
    store: Any,
    user: str,
    role: str,
    max_instances: int | None,
    expires: float | None,
    token_file: Path | None,
    wait: float,
    as_json: bool,
) -> None:
    """Create an account, and print its token once."""
    from ...control.serving.accounts import Role

    if token_file:
        if max_instances is not None or expires is not None:
            raise click.UsageError("--token-file goes with --user and --role only")
        given = token_file.read_text(encoding="utf-8", errors="replace").strip()
        account = store(_patient(wait, lambda accounts: accounts.ensure(user, Role(role), given)))
        output.json({"id": account.id}) if as_json else output.data(account.id)
        return
    new = _patient(wait, lambda accounts: accounts.create(user, Role(role), max_instances, expires))
    account, token = store(new)
    if as_json:
        output.json({"token": token, "id": account.id})
        return
    output.data(token)
    output.talk(f"this is the token of {user!r} ({role}, id {account.id}); it will not be shown again")


def _patient(seconds: float, act: Callable[[Accounts], Awaitable[T]]) -> Callable[[Accounts], Awaitable[T]]:
    """`act`, again while the store does not answer, for at most so long."""

    async def acted(accounts: Accounts) -> T:
        import asyncio

        from ...base.errors import Unavailable

        until = asyncio.get_running_loop().time() + seconds
        while True:
            try:
                return await act(accounts)
            except Unavailable as error:
                if asyncio.get_running_loop().time() + error.retry_after > until:
                    raise
                await asyncio.sleep(error.retry_after)

    return acted


@command.command("list", examples=("aenv token list",))
@formats()
@_stored
def list_(store: Any, as_json: bool) -> None:
    """List the accounts, oldest first."""
    from ...control.serving.account_routes import show

    rows = [show(account) for account in store(lambda accounts: accounts.list())]
    shown = [
        (
            *(row["id"], row["user"], row["role"]),
            "-" if row["maxInstanceCount"] is None else str(row["maxInstanceCount"]),
            *(output.minute(row[moment]) or "-" for moment in ("created_at", "expires_at", "revoked_at")),
        )
        for row in rows
    ]
    headers = ("ID", "User", "Role", "Instances", "Created", "Expires", "Revoked")
    output.answer(rows, headers, shown, as_json=as_json)


@command.command("revoke", examples=("aenv token revoke 3f2a",))
@click.argument("id")
@_stored
def revoke(store: Any, id: str) -> None:
    """Revoke a token.

    ID is shown by 'aenv token list'; its beginning is enough. Running gateways notice within 30 seconds.
    """

    async def revoked(accounts: Accounts) -> Account:
        known = [account.id for account in await accounts.list()]
        return await accounts.revoke(prefixes.only(id, known, "token"))

    account = store(revoked)
    output.talk(f"revoked the token {account.id} of {account.user!r}")
