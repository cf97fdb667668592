"""`aenv serve`: a gateway on this machine, with its control and data ports."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from ...base import settings
from .. import local_project, output, parameters
from ..help_pages import documented
from ..parameters import FILE
from ..settings_options import options

if TYPE_CHECKING:
    from ...control.gateway.gateway_app import GatewayAddress


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
@options("host", "port", "data_port")
@click.option(
    "--workers",
    type=parameters.Number(1, 1024),
    help="Number of processes that serve the data port. With 1, the gateway's own process does.  "
    "[default: one per core]",
)
@options("public_url", "metrics_address", "engine", "engine_url")
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
    help="Configuration file with the address of the cluster.  "
    "[default: the Pod's service account, else ~/.kube/config]",
)
@options(
    "kube_namespace",
    "kube_name",
    "kube_templates",
    "kube_gateways",
    "kube_storage_class",
    "docker_network",
    "base_image",
)
@parameters.HOME
@options("insecure")
@parameters.STORE
@parameters.BLOBS
@options(
    "self_check", "require_data_token", "rate_limit", "route_limits", "max_instances", "max_instances_by_label"
)
@options("capacity_cpus", "capacity_memory_bytes", "allow_network", "model_urls")
@click.option("--model-key-env", metavar="NAME", help="Variable that holds the key for these models.")
@options("data_roots", "data_folders", "pull", "freeze_after", "reclaim_below", "warm_memory", "allow_origins")
@options("keep_history", "keep_instances", "start_timeout")
@parameters.log_level("INFO")
@parameters.LOG_FILE
@click.option("--log-json", is_flag=True, help="Write each log event as a line of JSON.")
@click.option(
    "--socket",
    type=FILE,
    help="Listen on this unix socket instead of ports. Only this user can open it.",
)
@options("idle_exit")
@parameters.READY_FD
def command(
    paths: tuple[Path, ...],
    workers: int | None,
    home: Path | None,
    log_level: str,
    log_file: Path | None,
    log_json: bool,
    socket: Path | None,
    ready_fd: int | None,
    model_key_env: str | None,
    **given: Any,
) -> None:
    """Run a gateway with a hub.

    Its clients create instances of the environments in the hub, of the projects at PATH, and of the projects in
    'envs' of the home folder.
    """
    if socket and workers:
        raise click.UsageError(
            "--workers is for the data port, and --socket replaces the ports; leave out one of them"
        )
    for path in paths:
        local_project.load(path)  # a broken config.json is found before anything is opened
    from ...control.gateway import gateway_app

    parameters.start_log(log_level, log_file, as_json=log_json)
    if socket:
        given |= {"port": None, "data_port": None}
    known = settings.GatewaySettings(
        workers=workers or (1 if socket else len(os.sched_getaffinity(0))),
        socket=socket,
        projects=paths,
        home=home or settings.home(),
        model_key=parameters.key_in(model_key_env, "--model-key-env"),
        **given,
    )
    gateway_app.run(known, lambda address: _announce(address, ready_fd))


def _announce(address: GatewayAddress, ready_fd: int | None) -> None:
    if address.socket:
        output.talk(f"socket   {address.socket}")
    else:
        output.talk(f"control  {address.url}\ndata     {address.data_url}")
    if address.metrics_url:
        output.talk(f"metrics  {address.metrics_url}")
    output.talk(f"engine   {address.engine}")
    if not address.socket:
        output.talk(f"pages    {address.url}/ in a browser")
        output.talk(f"\nexport AENV_SYSTEM_URL={address.url}")
    ready = {"url": address.url, "data_url": address.data_url}
    if address.socket:
        ready = {"socket": str(address.socket)}
    if address.metrics_url:
        ready["metrics_url"] = address.metrics_url
    output.tell_ready(ready_fd, ready)
