"""`aenv hub`: the registry of environments alone, without instances."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import TYPE_CHECKING

import click

from .. import logs, settings
from . import output, parameters

if TYPE_CHECKING:
    from ..gateway.app import GatewayAddress


@click.command("hub")
@click.option("--host", default="127.0.0.1", show_default=True, help="Address to listen on.")
@click.option("--port", type=parameters.PORT, default=8083, show_default=True, help="Port; 0 takes a free one.")
@parameters.STORE
@parameters.BLOBS
@click.option(
    "--home",
    type=click.Path(path_type=Path, file_okay=False),
    help="Folder for all that is kept.  [default: $AENV_HOME, or ~/.aenv]",
)
@click.option("--insecure", is_flag=True, help="Listen beyond this machine although there are no accounts.")
@click.option("--log-level", type=parameters.LOG_LEVEL, default="INFO", show_default=True, help="How much to log.")
@click.option("--ready-fd", type=int, hidden=True, help="Write the address here, as one JSON line, once ready.")
def command(
    host: str,
    port: int,
    store: str,
    blobs: str,
    home: Path | None,
    insecure: bool,
    log_level: str,
    ready_fd: int | None,
) -> None:
    """Run the hub alone. `aenv serve` has one of its own; this one is for several gateways to share."""
    import uvloop

    from ..gateway import app

    logs.configure(log_level)
    known = settings.GatewaySettings(
        host=host,
        port=port,
        data_port=None,
        home=home or settings.home(),
        store=store,
        blobs=blobs,
        insecure=insecure,
    )
    uvloop.run(app.serve_hub(known, lambda address: _announce(address, ready_fd)))


def _announce(address: GatewayAddress, ready_fd: int | None) -> None:
    output.talk(f"hub      {address.url}\n\nexport HUB_BACKEND={address.url}")
    if ready_fd is not None:
        with os.fdopen(ready_fd, "w") as pipe:
            pipe.write(json.dumps({"url": address.url}) + "\n")
