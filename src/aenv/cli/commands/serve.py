"""`aenv serve`: a gateway on this machine, with its control and data ports."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from ...base import config, settings
from .. import local_project, output, parameters
from ..help_pages import documented

if TYPE_CHECKING:
    from ...control.gateway.gateway_app import GatewayAddress


def _numbers(ctx: click.Context, parameter: click.Parameter, values: tuple[str, ...]) -> dict[str, int]:
    """Options such as "experiment=100"."""
    found = {}
    for value in values:
        name, equals, number = value.rpartition("=")
        if not name or not equals or not number.isdecimal():
            raise click.BadParameter(f"must be NAME=NUMBER, got {value!r}", ctx, parameter)
        found[name] = int(number)
    return found


def _folders(ctx: click.Context, parameter: click.Parameter, values: tuple[str, ...]) -> dict[str, Path]:
    """Options such as "KIT_DATA_DIR=/srv/kit"."""
    found = {}
    for value in values:
        name, _, path = value.partition("=")
        if not config.is_folder_variable(name):
            message = f"must be NAME_DATA_DIR=PATH or NAME_GIT_DIR=PATH, got {value!r}"
            raise click.BadParameter(message, ctx, parameter)
        if not path or not Path(path).expanduser().is_dir():
            raise click.BadParameter(f"{path!r} is not a folder", ctx, parameter)
        found[name] = Path(path).expanduser().absolute()
    return found


@documented(
    "serve",
    examples=(
        "aenv serve",
        "aenv serve ./my-env --port 9080 --data-port 9081",
        "aenv serve --host 0.0.0.0 --max-instances 200 --capacity-memory 64Gi",
    ),
)
@click.argument(
    "paths", nargs=-1, metavar="[PATH]...", type=click.Path(path_type=Path, exists=True, file_okay=False)
)
@parameters.HOST
@click.option("--port", type=parameters.PORT, default=8080, help="Control port; 0 picks a free port.")
@click.option("--data-port", type=parameters.PORT, default=8081, help="Data port; 0 picks a free port.")
@click.option(
    "--workers",
    type=parameters.Number(1),
    help="Processes that serve the data port; 1 serves it in the gateway's own process.  [default: one per core]",
)
@parameters.METRICS_ADDRESS
@click.option(
    "--engine",
    type=click.Choice(["native", "process", "docker", "kubernetes"]),
    default="native",
    help="Engine that makes instances. The process engine does not isolate them.",
)
@click.option(
    "--docker-host",
    envvar="DOCKER_HOST",
    default="unix:///var/run/docker.sock",
    help="Socket of the Docker or podman engine.  [default: DOCKER_HOST, else unix:///var/run/docker.sock]",
)
@click.option(
    "--kubeconfig",
    type=click.Path(path_type=Path),
    envvar="KUBECONFIG",
    help="File that names the cluster.  [default: the Pod's service account, else ~/.kube/config]",
)
@click.option("--kube-namespace", default="", help="Namespace of instances.  [default: that of the kubeconfig]")
@click.option("--kube-name", default="aenv", help="Name of the installation; gateways on one store share it.")
@click.option("--kube-templates", default="", help="ConfigMap with templates of Pods.")
@click.option("--docker-network", default="bridge", help="Docker network of instances that may reach everything.")
@click.option(
    "--base-image",
    default="",
    help="Image of environments without one, in containers and Pods.  [default: aenv-base:VERSION-py{python}]",
)
@parameters.HOME
@click.option("--insecure", is_flag=True, help="Allow other machines to connect although there are no accounts.")
@parameters.STORE
@parameters.BLOBS
@click.option(
    "--no-self-check", is_flag=True, help="Give rewards without waiting for the self-check of their tasks."
)
@click.option(
    "--require-data-token", is_flag=True, help="Require a token for calls to an instance; its id is not enough."
)
@click.option(
    "--rate-limit",
    type=click.FloatRange(0),
    metavar="N",
    default=1000.0,
    help="Maximum number of requests per second for each token; 0 is no limit.",
)
@click.option(
    "--route-limit",
    "route_limits",
    multiple=True,
    callback=_numbers,
    metavar="ROUTE=N",
    help="Requests per second for one route, as in 'POST /env-instance=10'; repeatable.",
)
@click.option(
    "--max-instances", type=parameters.Number(0), help="Maximum number of running instances.  [default: no limit]"
)
@click.option(
    "--max-per-label",
    "max_instances_by_label",
    multiple=True,
    callback=_numbers,
    metavar="LABEL=N",
    help="Maximum number of instances for each value of a label, as in experiment=100; repeatable.",
)
@click.option(
    "--capacity-cpu",
    type=parameters.CPUS,
    help="CPUs that all instances may request together.  [default: no limit]",
)
@click.option(
    "--capacity-memory",
    type=parameters.SIZE,
    help="Memory that all instances may request together, as in 32Gi.  [default: no limit]",
)
@click.option(
    "--allow-network",
    type=click.Choice(["none", "egress", "full"]),
    default="full",
    help="Largest network access that an instance may have.",
)
@click.option(
    "--model-url",
    "model_urls",
    multiple=True,
    metavar="URL",
    help="A model that instances may ask without a network, as in http://10.0.0.5:8000/v1; repeatable. "
    "'loopback' is any on this host's loopback.",
)
@click.option("--model-key-env", metavar="NAME", help="The variable that holds the key of these models.")
@click.option(
    "--data-root",
    "data_roots",
    multiple=True,
    type=click.Path(path_type=Path, exists=True, file_okay=False),
    help="Folder whose subfolders instances may read as datasource; repeatable.",
)
@click.option(
    "--data-folder",
    "data_folders",
    multiple=True,
    callback=_folders,
    metavar="VARIABLE=PATH",
    help="Folder for a data variable of pushed environments, as in KIT_DATA_DIR=/srv/kit; repeatable.",
)
@click.option(
    "--pull",
    type=click.Choice(["skopeo", "podman"]),
    callback=lambda ctx, parameter, value: value or "",
    help="Program that fetches missing images.  [default: images are not fetched]",
)
@click.option(
    "--freeze-after",
    type=parameters.DURATION,
    default="60s",
    help="Freeze an instance after this long without a call; 0 turns freezing off.",
)
@click.option(
    "--reclaim-below",
    type=parameters.SIZE,
    help="Available memory below which frozen instances are ended, if they allow it.  [default: 5 % of the host]",
)
@click.option(
    "--warm-memory",
    type=parameters.SIZE,
    help="Memory for spare instances; 0 makes none.  [default: 10 % of the host]",
)
@parameters.ALLOW_ORIGIN
@click.option("--no-history", is_flag=True, help="Do not record the last calls of instances.")
@click.option(
    "--keep-instances", is_flag=True, help="Leave instances running when the gateway stops, for the next gateway."
)
@click.option(
    "--start-timeout",
    type=parameters.DURATION,
    default="60s",
    help="Maximum time for an instance to become ready.",
)
@parameters.log_level("INFO")
@parameters.LOG_FILE
@click.option("--log-json", is_flag=True, help="Write each log event as a line of JSON.")
@click.option(
    "--socket",
    type=click.Path(path_type=Path, dir_okay=False),
    help="Listen on this unix socket instead of ports. Only this user can open it.",
)
@click.option(
    "--idle-exit",
    type=parameters.DURATION,
    help="Stop after this long without an instance.  [default: never]",
)
@parameters.READY_FD
def command(
    paths: tuple[Path, ...],
    host: str,
    port: int,
    data_port: int,
    workers: int | None,
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
    model_urls: tuple[str, ...],
    model_key_env: str | None,
    **same: Any,
) -> None:
    """Run a gateway with a hub.

    Its clients create instances of the environments in the hub, of the projects at PATH, and of the projects in
    'envs' of the home folder.
    """
    if socket and workers:
        raise click.UsageError("--workers serve the data port, and with --socket there is none")
    for path in paths:
        local_project.load(path)  # a broken config.json is found before anything is opened
    from ...control.gateway import gateway_app

    parameters.start_log(log_level, log_file, as_json=log_json)
    gateway_app.run(
        settings.GatewaySettings(
            host=host,
            port=None if socket else port,
            data_port=None if socket else data_port,
            workers=workers or (1 if socket else len(os.sched_getaffinity(0))),
            socket=socket,
            projects=paths,
            home=home or settings.home(),
            engine=engine,
            start_timeout=start_timeout,
            capacity_cpus=capacity_cpu,
            capacity_memory_bytes=capacity_memory,
            keep_history=not no_history,
            self_check=not no_self_check,
            model_urls=frozenset(model_urls),
            model_key=_model_key(model_key_env),
            **same,  # the options that are called as the settings are
        ),
        lambda address: _announce(address, ready_fd),
    )


def _model_key(name: str | None) -> str:
    from ...base import settings

    key = settings.variables().get(name, "") if name else ""
    if name and not key:
        raise output.Failure(f"variable {name} is not set, and --model-key-env names it")
    return key


def _announce(address: GatewayAddress, ready_fd: int | None) -> None:
    if address.socket:
        output.talk(f"socket   {address.socket}")
    else:
        output.talk(f"control  {address.url}\ndata     {address.data_url}")
    if address.metrics_url:
        output.talk(f"metrics  {address.metrics_url}")
    output.talk(f"engine   {address.engine}")
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
