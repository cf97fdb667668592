"""`aenv serve`: a gateway on this machine, with its control and data ports."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import TYPE_CHECKING

import click

from .. import logs, settings
from . import output, parameters, project

if TYPE_CHECKING:
    from ..gateway.app import GatewayAddress


@click.command("serve")
@click.argument(
    "paths", nargs=-1, metavar="[PATH]...", type=click.Path(path_type=Path, exists=True, file_okay=False)
)
@click.option("--host", default="127.0.0.1", show_default=True, help="Address to listen on.")
@click.option(
    "--port", type=parameters.PORT, default=8080, show_default=True, help="Control port; 0 takes a free one."
)
@click.option(
    "--data-port",
    type=parameters.PORT,
    default=8081,
    show_default=True,
    help="Data port; 0 takes a free one.",
)
@click.option(
    "--engine",
    type=click.Choice(["process"]),
    default="process",
    show_default=True,
    help="What makes instances.",
)
@click.option(
    "--home",
    type=click.Path(path_type=Path, file_okay=False),
    help="Folder for all that is kept.  [default: $AENV_HOME, or ~/.aenv]",
)
@click.option("--insecure", is_flag=True, help="Listen beyond this machine although anyone may create instances.")
@click.option(
    "--start-timeout",
    callback=parameters.seconds,
    metavar="DURATION",
    default="60s",
    show_default=True,
    help="How long an instance may take to become ready.",
)
@click.option("--log-level", type=parameters.LOG_LEVEL, default="INFO", show_default=True, help="How much to log.")
@click.option(
    "--socket",
    type=click.Path(path_type=Path, dir_okay=False),
    help="Listen on this unix socket, for this user alone, and on no port.",
)
@click.option(
    "--idle-exit",
    callback=parameters.seconds,
    metavar="DURATION",
    help="End after so long without an instance.  [default: never]",
)
@click.option("--ready-fd", type=int, hidden=True, help="Write the addresses here, as one JSON line, once ready.")
def command(
    paths: tuple[Path, ...],
    host: str,
    port: int,
    data_port: int,
    engine: str,
    home: Path | None,
    insecure: bool,
    start_timeout: float,
    log_level: str,
    socket: Path | None,
    idle_exit: float | None,
    ready_fd: int | None,
) -> None:
    """Run a gateway that makes instances of the environments at PATH, and of those in its home folder."""
    for path in paths:
        project.load(path)  # a broken config.json is found before anything is opened
    from ..gateway import app

    logs.configure(log_level)
    app.run(
        settings.GatewaySettings(
            host=host,
            port=None if socket else port,
            data_port=None if socket else data_port,
            socket=socket,
            projects=paths,
            home=home or settings.home(),
            engine=engine,
            start_timeout=start_timeout,
            insecure=insecure,
            idle_exit=idle_exit,
        ),
        lambda address: _announce(address, engine, ready_fd),
    )


def _announce(address: GatewayAddress, engine: str, ready_fd: int | None) -> None:
    if address.socket:
        output.talk(f"socket   {address.socket}")
    else:
        output.talk(f"control  {address.url}\ndata     {address.data_url}\n\nexport AENV_SYSTEM_URL={address.url}")
    if engine == "process":
        output.talk("this engine does not isolate instances: serve code that you trust")
    if ready_fd is not None:
        ready = {"url": address.url, "data_url": address.data_url}
        if address.socket:
            ready = {"socket": str(address.socket)}
        with os.fdopen(ready_fd, "w") as pipe:
            pipe.write(json.dumps(ready) + "\n")
