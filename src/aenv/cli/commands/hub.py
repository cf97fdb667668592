"""`aenv hub`: the registry of environments without a gateway; and who may use its environments."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from ...base import settings
from .. import connection, output, parameters
from ..help_pages import CommandGroup
from ..output_formats import formats
from ..settings_options import options

if TYPE_CHECKING:
    from ...client.hub import Hub
    from ...client.hub_records import HubAccess
    from ...control.gateway.gateway_app import GatewayAddress


@click.group(
    "hub",
    cls=CommandGroup,
    invoke_without_command=True,
    examples=("aenv hub --port 8083", "aenv hub access my-env --add-writer ada", "aenv hub audit my-env"),
)
@options("host")
@click.option("--port", type=parameters.PORT, default=8083, help="Port to listen on; 0 picks a free port.")
@options("metrics_address")
@parameters.STORE
@parameters.BLOBS
@parameters.HOME
@options("insecure", "allow_origins")
@parameters.log_level("INFO")
@parameters.LOG_FILE
@parameters.READY_FD
@click.pass_context
def command(
    ctx: click.Context,
    /,
    home: Path | None,
    log_level: str,
    log_file: Path | None,
    ready_fd: int | None,
    **same: Any,
) -> None:
    """Run a hub alone, or manage access to its environments.

    'aenv serve' includes a hub. Run one separately for several gateways to share.
    """
    if ctx.invoked_subcommand:
        return
    import uvloop

    from ...control.gateway import gateway_app

    parameters.start_log(log_level, log_file)
    # The other options are called as the settings are.
    known = settings.GatewaySettings(data_port=None, home=home or settings.home(), **same)
    uvloop.run(gateway_app.serve_hub(known, lambda address: _announce(address, ready_fd)))


def _announce(address: GatewayAddress, ready_fd: int | None) -> None:
    output.talk(f"hub      {address.url}\n\nexport HUB_BACKEND={address.url}")
    if address.metrics_url:
        output.talk(f"metrics  {address.metrics_url}")
    output.tell_ready(ready_fd, {"url": address.url})


_USERS: Any = {"multiple": True, "metavar": "USER"}


@command.command(
    "access", examples=("aenv hub access my-env", "aenv hub access my-env --add-writer ada --visibility team")
)
@click.argument("name")
@click.option("--add-writer", **_USERS, help="Allow USER to push versions; repeatable.")
@click.option("--remove-writer", **_USERS, help="Stop USER from pushing; repeatable.")
@click.option("--add-reader", **_USERS, help="Allow USER to see the environment if it is private; repeatable.")
@click.option(
    "--remove-reader", **_USERS, help="Stop USER from seeing the environment if it is private; repeatable."
)
@click.option(
    "--visibility", type=click.Choice(["private", "team", "public"]), help="Users who can see the environment."
)
@formats()
def access(
    name: str,
    add_writer: Sequence[str],
    remove_writer: Sequence[str],
    add_reader: Sequence[str],
    remove_reader: Sequence[str],
    visibility: str | None,
    as_json: bool,
) -> None:
    """Show or change who can see an environment and push to it."""

    async def changed(hub: Hub) -> HubAccess:
        policy = await hub.access(name)
        wanted = replace(
            policy,
            access=visibility or policy.access,
            readers=_with(policy.readers, add_reader, remove_reader),
            writers=_with(policy.writers, add_writer, remove_writer),
        )
        return policy if wanted == policy else await hub.set_access(name, wanted)

    policy = connection.ask_hub(changed)
    rows = [("owner", policy.owner), ("visibility", policy.access)]
    rows += [("readers", ", ".join(policy.readers) or "-"), ("writers", ", ".join(policy.writers) or "-")]
    output.answer(asdict(policy), ("Field", "Value"), rows, as_json=as_json)


def _with(users: Sequence[str], added: Sequence[str], removed: Sequence[str]) -> tuple[str, ...]:
    """The users in their order, without those that are removed; one that is not there cannot be."""
    if missing := [user for user in removed if user not in users]:
        raise output.Failure(f"user {missing[0]!r} is not in the list; it has {', '.join(users) or 'no users'}")
    return tuple(user for user in dict.fromkeys((*users, *added)) if user not in removed)


@command.command("audit", examples=("aenv hub audit my-env", "aenv hub audit --limit 10"))
@click.argument("name", required=False)
@click.option("-l", "--limit", type=parameters.Number(1, 1000), default=100, help="Maximum number of entries.")
@formats()
def audit(name: str | None, limit: int, as_json: bool) -> None:
    """List the changes to an environment, newest first.

    Without NAME, administrators see the changes to all environments.
    """
    found = connection.ask_hub(lambda hub: hub.audit(name, limit))
    cells = [(each.at, each.user, each.action, each.environment, each.digest) for each in found]
    rows = [tuple(cell or "-" for cell in row) for row in cells]
    headers = ("At", "User", "Action", "Environment", "Digest")
    output.answer([each.sent for each in found], headers, rows, as_json=as_json, nothing="no entries")
