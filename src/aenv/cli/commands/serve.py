"""`aenv serve`: a gateway on this machine, with its control and data ports."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from ...base import config, quantities, settings
from ...base.errors import InvalidRequest
from .. import output, parameters, project

if TYPE_CHECKING:
    from ...control.gateway.gateway_app import GatewayAddress


def _numbers(ctx: click.Context, parameter: click.Parameter, values: tuple[str, ...]) -> dict[str, int]:
    """Options such as "experiment=100"."""
    found = {}
    for value in values:
        name, equals, number = value.rpartition("=")
        if not name or not equals or not number.isdecimal():
            raise click.BadParameter(f"write {value!r} as 'name=number'", ctx, parameter)
        found[name] = int(number)
    return found


def _folders(ctx: click.Context, parameter: click.Parameter, values: tuple[str, ...]) -> dict[str, Path]:
    """Options such as "KIT_DATA_DIR=/srv/kit"."""
    found = {}
    for value in values:
        name, _, path = value.partition("=")
        if not config.is_folder_variable(name):
            message = f"{name!r} is not a variable of data; write 'KIT_DATA_DIR=PATH' or 'KIT_GIT_DIR=PATH'"
            raise click.BadParameter(message, ctx, parameter)
        if not path or not Path(path).expanduser().is_dir():
            raise click.BadParameter(f"{path!r} is not a folder", ctx, parameter)
        found[name] = Path(path).expanduser().absolute()
    return found


def _cpus(ctx: click.Context, parameter: click.Parameter, value: str | None) -> float | None:
    return _amount(ctx, parameter, value, quantities.cpus)


def _size(ctx: click.Context, parameter: click.Parameter, value: str | None) -> float | None:
    return _amount(ctx, parameter, value, quantities.size_bytes)


def _amount(
    ctx: click.Context, parameter: click.Parameter, value: str | None, parse: Callable[[str], float]
) -> float | None:
    try:
        return None if value is None else parse(value)
    except InvalidRequest as error:
        raise click.BadParameter(error.message, ctx, parameter) from error


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
@parameters.METRICS_ADDRESS
@click.option(
    "--engine",
    type=click.Choice(["native", "process"]),
    default="native",
    show_default=True,
    help="What makes instances; process isolates nothing.",
)
@click.option(
    "--home",
    type=click.Path(path_type=Path, file_okay=False),
    help="Folder for all that is kept.  [default: $AENV_HOME, or ~/.aenv]",
)
@click.option("--insecure", is_flag=True, help="Listen beyond this machine although there are no accounts.")
@parameters.STORE
@parameters.BLOBS
@click.option("--no-self-check", is_flag=True, help="Give rewards without the self-check of their tasks.")
@click.option("--require-data-token", is_flag=True, help="An instance's id alone does not open it.")
@click.option(
    "--rate-limit",
    type=click.FloatRange(0),
    default=1000.0,
    show_default=True,
    help="Requests a second for each token; 0 sets no limit.",
)
@click.option(
    "--route-limit",
    "route_limits",
    multiple=True,
    callback=_numbers,
    metavar="ROUTE=N",
    help="The same for one route, as in 'POST /env-instance=10'.",
)
@click.option("--max-instances", type=click.IntRange(0), help="Instances at a time.  [default: no limit]")
@click.option(
    "--max-per-label",
    "max_instances_by_label",
    multiple=True,
    callback=_numbers,
    metavar="LABEL=N",
    help="Instances for each value of a label, as in experiment=100.",
)
@click.option("--capacity-cpu", callback=_cpus, metavar="CPUS", help="What all may ask for.  [default: no limit]")
@click.option("--capacity-memory", callback=_size, metavar="SIZE", help="The same for memory, as in 32Gi.")
@click.option(
    "--allow-network",
    type=click.Choice(["none", "egress", "full"]),
    default="full",
    show_default=True,
    help="What instances may reach at most.",
)
@click.option(
    "--data-root",
    "data_roots",
    multiple=True,
    type=click.Path(path_type=Path, exists=True, file_okay=False),
    help="A folder with data that instances may be given to read; any number of times.",
)
@click.option(
    "--data-folder",
    "data_folders",
    multiple=True,
    callback=_folders,
    metavar="VARIABLE=PATH",
    help="The folder that pushed environments get for this variable of their 'data', as in KIT_DATA_DIR=/srv/kit.",
)
@click.option(
    "--pull",
    type=click.Choice(["skopeo", "podman"]),
    callback=lambda ctx, parameter, value: value or "",
    help="Fetch images that are not here with this program.  [default: none are fetched]",
)
@click.option(
    "--freeze-after",
    callback=parameters.seconds,
    metavar="DURATION",
    default="60s",
    show_default=True,
    help="Freeze an instance that nobody has called for so long; 0 never does.",
)
@click.option(
    "--reclaim-below",
    callback=_size,
    metavar="SIZE",
    help="End frozen instances that allow it when less memory is available.  [default: 5 % of it all]",
)
@click.option(
    "--warm-memory",
    callback=_size,
    metavar="SIZE",
    help="What spare instances, made in advance, may take; 0 makes none.  [default: a tenth of all memory]",
)
@parameters.ALLOW_ORIGIN
@click.option("--no-history", is_flag=True, help="Instances do not remember their last calls.")
@click.option("--keep-instances", is_flag=True, help="Leave instances running on stop, for the next gateway.")
@click.option(
    "--start-timeout",
    callback=parameters.seconds,
    metavar="DURATION",
    default="60s",
    show_default=True,
    help="How long an instance may take to become ready.",
)
@click.option("--log-level", type=parameters.LOG_LEVEL, default="INFO", show_default=True, help="How much to log.")
@parameters.LOG_FILE
@click.option("--log-json", is_flag=True, help="Log a line of JSON for each event.")
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
    start_timeout: float,
    log_level: str,
    log_file: Path | None,
    log_json: bool,
    socket: Path | None,
    ready_fd: int | None,
    capacity_cpu: float | None,
    capacity_memory: int | None,
    no_history: bool,
    no_self_check: bool,
    **same: Any,
) -> None:
    """Run a gateway that makes instances of the environments at PATH, and of those in its home folder."""
    for path in paths:
        project.load(path)  # a broken config.json is found before anything is opened
    from ...control.gateway import gateway_app

    parameters.start_log(log_level, log_file, as_json=log_json)
    gateway_app.run(
        settings.GatewaySettings(
            host=host,
            port=None if socket else port,
            data_port=None if socket else data_port,
            socket=socket,
            projects=paths,
            home=home or settings.home(),
            engine=engine,
            start_timeout=start_timeout,
            capacity_cpus=capacity_cpu,
            capacity_memory_bytes=capacity_memory,
            keep_history=not no_history,
            self_check=not no_self_check,
            **same,  # the options that are called as the settings are
        ),
        lambda address: _announce(address, engine, ready_fd),
    )


def _announce(address: GatewayAddress, engine: str, ready_fd: int | None) -> None:
    if address.socket:
        output.talk(f"socket   {address.socket}")
    else:
        output.talk(f"control  {address.url}\ndata     {address.data_url}")
    if address.metrics_url:
        output.talk(f"metrics  {address.metrics_url}")
    output.talk(f"engine   {engine}: {_isolation(engine)}")
    if not address.socket:
        output.talk(f"\nexport AENV_SYSTEM_URL={address.url}")
    if ready_fd is not None:
        ready = {"url": address.url, "data_url": address.data_url}
        if address.socket:
            ready = {"socket": str(address.socket)}
        if address.metrics_url:
            ready["metrics_url"] = address.metrics_url
        with os.fdopen(ready_fd, "w") as pipe:
            pipe.write(json.dumps(ready) + "\n")


def _isolation(engine: str) -> str:
    if engine == "process":
        return "does not isolate instances; serve code that you trust"
    from ...isolation.sandbox import probe

    missing = probe.missing_isolation()
    if missing:
        return f"cannot isolate instances on this host, so creates are refused: {missing}; or --engine process"
    return "every instance has namespaces and a root file system of its own, no capabilities, and seccomp"
