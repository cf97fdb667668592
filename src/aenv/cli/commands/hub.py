"""`aenv hub`: the registry of environments alone, without instances; and who may do what there."""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from ...base import settings
from .. import connection, output, parameters
from ..formats import formats
from ..groups import Group

if TYPE_CHECKING:
    from ...client.hub import Hub
    from ...control.gateway.app import GatewayAddress


@click.group("hub", cls=Group, invoke_without_command=True)
@click.option("--host", default="127.0.0.1", show_default=True, help="Address to listen on.")
@click.option("--port", type=parameters.PORT, default=8083, show_default=True, help="Port; 0 takes a free one.")
@parameters.METRICS_ADDRESS
@parameters.STORE
@parameters.BLOBS
@click.option(
    "--home",
    type=click.Path(path_type=Path, file_okay=False),
    help="Folder for all that is kept.  [default: $AENV_HOME, or ~/.aenv]",
)
@click.option("--insecure", is_flag=True, help="Listen beyond this machine although there are no accounts.")
@parameters.ALLOW_ORIGIN
@click.option("--log-level", type=parameters.LOG_LEVEL, default="INFO", show_default=True, help="How much to log.")
@parameters.LOG_FILE
@click.option("--ready-fd", type=int, hidden=True, help="Write the address here, as one JSON line, once ready.")
@click.pass_context
def command(
    ctx: click.Context,
    host: str,
    port: int,
    metrics_address: tuple[str, int] | None,
    store: str,
    blobs: str,
    home: Path | None,
    insecure: bool,
    allow_origins: frozenset[str],
    log_level: str,
    log_file: Path | None,
    ready_fd: int | None,
) -> None:
    """Run the hub alone, or say who may use an environment of a hub.

    `aenv serve` has a hub of its own; this one is for several gateways to share.
    """
    if ctx.invoked_subcommand:
        return
    import uvloop

    from ...control.gateway import app

    parameters.start_log(log_level, log_file)
    known = settings.GatewaySettings(
        host=host,
        port=port,
        data_port=None,
        metrics_address=metrics_address,
        home=home or settings.home(),
        store=store,
        blobs=blobs,
        insecure=insecure,
        allow_origins=allow_origins,
    )
    uvloop.run(app.serve_hub(known, lambda address: _announce(address, ready_fd)))


def _announce(address: GatewayAddress, ready_fd: int | None) -> None:
    output.talk(f"hub      {address.url}\n\nexport HUB_BACKEND={address.url}")
    if address.metrics_url:
        output.talk(f"metrics  {address.metrics_url}")
    if ready_fd is not None:
        with os.fdopen(ready_fd, "w") as pipe:
            pipe.write(json.dumps({"url": address.url}) + "\n")


_USERS: Any = {"multiple": True, "metavar": "USER"}


@command.command("access")
@click.argument("name")
@click.option("--add-writer", **_USERS, help="Let USER push versions; any number of times.")
@click.option("--remove-writer", **_USERS, help="Let USER push no longer.")
@click.option("--add-reader", **_USERS, help="Let USER see it, where it is private.")
@click.option("--remove-reader", **_USERS, help="Let USER see it no longer.")
@click.option("--visibility", type=click.Choice(["private", "team", "public"]), help="Who sees it.")
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
    """Show who may see the environment NAME and push to it, after the changes that the options ask for."""

    async def changed(hub: Hub) -> dict[str, Any]:
        policy = await hub.access(name)
        wanted = {
            **policy,
            "access": visibility or policy["access"],
            "readers": _with(policy["readers"], add_reader, remove_reader),
            "writers": _with(policy["writers"], add_writer, remove_writer),
        }
        return policy if wanted == policy else await hub.set_access(name, wanted)

    policy = connection.ask_hub(changed)
    if as_json:
        output.json(policy)
        return
    rows = [("owner", policy["owner"]), ("visibility", policy["access"])]
    rows += [(kind, ", ".join(policy[kind]) or "-") for kind in ("readers", "writers")]
    output.table(("Field", "Value"), rows)


def _with(users: Sequence[str], added: Sequence[str], removed: Sequence[str]) -> list[str]:
    """The users in their order, without those that are removed; one that is not there cannot be."""
    if missing := [user for user in removed if user not in users]:
        raise output.Failure(f"{missing[0]!r} is not in the list, which has {', '.join(users) or 'no users'}")
    return [user for user in dict.fromkeys((*users, *added)) if user not in removed]


@command.command("audit")
@click.argument("name", required=False)
@click.option(
    "-l", "--limit", type=click.IntRange(1, 1000), default=100, show_default=True, help="At most so many."
)
@formats()
def audit(name: str | None, limit: int, as_json: bool) -> None:
    """List who did what to the environment NAME, or, for administrators, to all; newest first."""
    found = connection.ask_hub(lambda hub: hub.audit(name, limit))
    if as_json:
        output.json(found)
    elif found:
        cells = ("at", "user", "action", "environment", "digest")
        rows = [tuple(str(each.get(key) or "-") for key in cells) for each in found]
        output.table(("At", "User", "Action", "Environment", "Digest"), rows)
    else:
        output.talk("no entries")
